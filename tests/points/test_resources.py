"""Resources pooled over windows: means by length, sums, maxima."""

import pytest

from perfkit.figures.resources import BusyProcess, GpuFigures, MachineFigures, MetricFigures, OtherProcesses, ServerCpuFigures, ServerCpuUse
from perfkit.points.judgement import busy_machine_warnings, network_warnings
from perfkit.points.measured import (
    Resources,
    energy_per_inference_j,
    generator_figures,
    pooled_gpus,
    pooled_metrics,
    server_cpu_figures,
    server_figures,
)
from perfkit.result.generator import Generator, Tcp
from perfkit.telemetry.prometheus.server_times import ServerTime, TimeCounts

S = 1_000_000_000


def gpu(uuid, **figures):
    return GpuFigures(uuid, "T4", "metrics", **figures)


def test_gpus_are_pooled_by_their_uuid():
    first = gpu("a", utilization_mean=0.2, power_mean_w=100.0, energy_j=100.0, memory_used_max_bytes=5, throttle_reasons=("power",), energy_source="counter")  # fmt: skip
    second = gpu("a", utilization_mean=0.8, power_mean_w=200.0, energy_j=600.0, memory_used_max_bytes=9, throttle_reasons=("heat", "power"))
    other = gpu("b", energy_j=1.0)
    found = pooled_gpus([(Resources(gpus=(first, other)), S), (Resources(gpus=(second,)), 3 * S)])
    assert [one.uuid for one in found] == ["a", "b"]
    assert [found[0].utilization_mean, found[0].power_mean_w] == pytest.approx([0.65, 175.0])
    assert (found[0].energy_j, found[0].memory_used_max_bytes, found[0].throttle_reasons) == (700.0, 9, ("power", "heat"))
    assert found[0].sm_clock_mean_mhz is None
    assert found[1] is other


@pytest.mark.parametrize(("energies", "expected"), [([10.0, 30.0], 4.0), ([10.0, None], None), ([], None)])
def test_energy_per_inference_adds_all_gpus(energies, expected):
    gpus = [gpu(str(number), energy_j=energy, energy_above_idle_j=5.0) for number, energy in enumerate(energies)]
    assert energy_per_inference_j(10.0, gpus, "energy_j") == expected
    assert energy_per_inference_j(0.0, gpus, "energy_j") is None
    assert energy_per_inference_j(10.0, gpus, "energy_above_idle_j") == (0.5 * len(energies) or None)


def test_energy_per_inference_leaves_out_unused_gpus_and_mig_instances():
    mine, unknown, others = (gpu(str(used), energy_j=10.0, used_by_server=used) for used in (True, None, False))
    assert energy_per_inference_j(10.0, [mine, unknown, others, gpu("instance", mig=True)], "energy_j") == 2.0


def test_facts_of_a_gpu_from_one_window_hold_for_all_but_an_energy_unknown_in_one_is_unknown():
    counted, integrated = gpu("a", energy_source="counter", energy_j=5.0), gpu("a", energy_source="power", used_by_server=True)
    (found,) = pooled_gpus([(Resources(gpus=(counted,)), S), (Resources(gpus=(integrated,)), S)])
    assert (found.energy_source, found.used_by_server, found.energy_j) == ("power", True, None)


def test_metrics_are_pooled_by_name_and_labels():
    def counter(rise, seconds=1):
        return MetricFigures("n", {"model": "m"}, "counter", rise=rise, per_s=None if rise is None else rise / seconds)

    gauge = [MetricFigures("g", {}, "gauge", mean=mean, min=mean - 1, max=mean + 1) for mean in (2.0, 6.0)]
    found = pooled_metrics([(Resources(metrics=(counter(10.0), gauge[0])), S), (Resources(metrics=(counter(50.0, 3), gauge[1])), 3 * S)])
    assert (found[0].rise, found[0].per_s) == (60.0, 15.0)
    assert (found[1].mean, found[1].min, found[1].max) == (5.0, 1.0, 7.0)
    assert pooled_metrics([(Resources(metrics=(counter(10.0),)), S), (Resources(metrics=(counter(None),)), S)])[0].rise is None


def test_the_generators_figures_are_pooled():
    machines = [
        MachineFigures(0.5, 0.0, (0.2, 0.4), 100, 5, 1000, 1, 30, 20, 1024),
        MachineFigures(0.9, 0.1, (0.6,), 200, 7, 3000, 2, 10, 40, 1024),
    ]
    found = generator_figures([(Resources(machine=machines[0], gc_pauses_ns=(5, 9)), S), (Resources(machine=machines[1], gc_pauses_ns=()), 3 * S)])  # fmt: skip
    generator = Generator(cpu_share=0.5, steal_share=0.0, **found)
    assert generator.machine_cpu_share == pytest.approx(0.8)
    assert list(generator.worker_cpu_shares) == pytest.approx([0.5, 0.4])
    assert (generator.gc_pauses.count, generator.gc_pauses.total_ns, generator.gc_pauses.max_ns) == (2, 14, 9)
    assert (generator.context_switches.voluntary, generator.context_switches.involuntary) == (300, 12)
    assert (generator.tcp.segments_sent, generator.tcp.retransmits) == (4000, 3)
    assert (generator.sockets_max, generator.open_files_max, generator.open_files_limit) == (30, 40, 1024)
    assert not any(generator_figures([(Resources(), S)]).values())  # without telemetry they are unknown


@pytest.mark.parametrize(("sent", "again", "warned"), [(1000, 9, False), (1000, 10, True), (100_000, 99, False), (100_000, 100, True)])
def test_lost_packets_are_a_warning(sent, again, warned):
    generator = Generator(cpu_share=0, steal_share=0, tcp=Tcp(segments_sent=sent, retransmits=again))
    assert [one.code for one in network_warnings(generator, S)] == (["tcp_retransmits"] if warned else [])
    assert network_warnings(generator, 199_000_000) == []  # no request was delayed by TCP's time-out
    assert network_warnings(Generator(cpu_share=0, steal_share=0), S) == []


COMPILER, SHELL = BusyProcess("cc1plus", 77, 0.95), BusyProcess("sh", 78, 0.2)


def test_other_processes_are_pooled_by_name_and_number():
    windows = [
        (Resources(machine=MachineFigures(others=OtherProcesses(2.0, (COMPILER,)))), S),
        (Resources(machine=MachineFigures(others=OtherProcesses(1.0, (BusyProcess("cc1plus", 77, 0.15), SHELL)))), 3 * S),
    ]
    others = generator_figures(windows)["others"]
    assert others.cpus == pytest.approx(1.25)
    assert [(one.name, round(one.cpus, 3)) for one in others.busiest] == [("cc1plus", 0.35), ("sh", 0.15)]
    assert generator_figures([(Resources(machine=MachineFigures()), S)])["others"] is None


@pytest.mark.parametrize(
    ("others", "machine_cpu_share", "has_disturbed", "named"),
    [
        (OtherProcesses(1.15, (COMPILER, SHELL)), 0.9, False, "used 1.1 of its 2 CPUs: cc1plus (pid 77) 95% of a CPU, sh (pid 78) 20%."),
        (OtherProcesses(1.0), 0.9, False, "used 1.0 of its 2 CPUs, which perfkit cannot see."),
        (OtherProcesses(1.15, (COMPILER,)), 0.5, True, "used 1.1 of its 2 CPUs: cc1plus (pid 77) 95% of a CPU."),
        (OtherProcesses(1.15, (COMPILER,)), 0.5, False, None),
        (OtherProcesses(0.2, (SHELL,)), 0.99, True, None),
        (None, 0.99, True, None),
    ],
)
def test_a_busy_machine_is_named_with_its_processes(others, machine_cpu_share, has_disturbed, named):
    generator = Generator(cpu_share=0.1, steal_share=0.0, machine_cpu_share=machine_cpu_share, others=others)
    warnings = busy_machine_warnings(generator, 2, has_disturbed=has_disturbed)
    assert [warning.code for warning in warnings] == ["busy_machine"] * (named is not None)
    assert named is None or f"processes besides perfkit and the target {named}" in warnings[0].message


def test_a_target_that_cannot_be_told_from_other_processes_is_not_blamed():
    windows = [
        (Resources(machine=MachineFigures(others=OtherProcesses(1.0, (BusyProcess("tritonserver", 9, 1.0),), may_include_target=True))), S),
        (Resources(machine=MachineFigures(others=OtherProcesses(1.0))), S),
    ]
    generator = Generator(cpu_share=0.1, steal_share=0.0, machine_cpu_share=0.9, others=generator_figures(windows)["others"])
    (warning,) = busy_machine_warnings(generator, 2, has_disturbed=False)
    assert (
        "processes besides perfkit used 1.0 of its 2 CPUs: tritonserver (pid 9) 50% of a CPU. The target itself may be among"
        in warning.message
    )


def test_the_servers_cpu_time_is_divided_by_the_answers_of_the_same_windows():
    windows = [(Resources(server_cpu=ServerCpuUse(S, 900)), S), (Resources(server_cpu=ServerCpuUse(2 * S, 300)), 4 * S), (Resources(), S)]
    assert server_cpu_figures(windows, [100, 200, 10_000]) == ServerCpuFigures(3 / 5, 3 * S / 300, 1200 / 300)
    assert server_cpu_figures([(Resources(server_cpu=ServerCpuUse(S)), S)], [0]) == ServerCpuFigures(1.0, None, None)
    assert server_cpu_figures([(Resources(), S)], [100]) is None


def test_the_clients_part_of_a_page_is_that_of_the_windows_whose_page_was_read(measured):
    windows = [measured([milliseconds * S // 1000] * 100).window for milliseconds in (10, 30, 50)]
    page = Resources(server_times=(ServerTime("total", "m", TimeCounts(100.0, 0.8 * S)),))
    for was_read, mean_ns in (((0, 1, 0), 30e6), ((1, 0, 1), 30e6), ((1, 1, 0), 20e6), ((1, 1, 1), 30e6)):
        found = server_figures([(page if one else Resources(), S) for one in was_read], windows)
        assert (found.requests, found.client_requests) == (100 * sum(was_read),) * 2
        assert found.client_mean_ns == pytest.approx(mean_ns, rel=1e-3)
    assert server_figures([(Resources(), S)] * 3, windows) is None
