"""The real pynvml on the fake library: the sampler must report the curves of the script."""

import itertools
import json
import math
import shutil
import subprocess
import sys

import pytest

from perfkit.clock import ManualClock
from perfkit.telemetry.gpu.sampler import GpuSampler
from tests.telemetry.fake_nvml.library import FOLDER, FakeNvml

MIG = "the driver reports memory per instance, but power, energy, clocks and temperature only for the whole GPU."
LINE, SINE = [(0, 100_000), (5, 300_000), (10, 200_000), (40, 260_000)], (200.0, 80.0, 7.0)
TWO_GPUS = f"""
gpu
name Fake A100
uuid GPU-a
memory_total 42949672960
power_mw line {" ".join(f"{at}:{value}" for at, value in LINE)}
utilization steps 0:0 3:100 7:40
memory_utilization steps 0:0 4:50
memory_used steps 0:1000 4.03:5000 6:2000
temperature steps 0:40 5:61 9:50
sm_clock steps 0:1410 5:1000
memory_clock 1215
throttle_reasons steps 0:1 5:0x4 6:0x24 7:2
pcie_sent_kb_per_s 500
pcie_received_kb_per_s 20
gpu
name Fake H100
uuid GPU-b
power_mw 90000
mig
uuid MIG-0
name Fake H100 MIG 1g.10gb
memory_total 10737418240
memory_used steps 0:777 5:888
mig
uuid MIG-1
memory_used 5
"""


def watts(t):
    for (t0, v0), (t1, v1) in itertools.pairwise(LINE):
        if t0 <= t <= t1:
            return (v0 + (v1 - v0) * (t - t0) / (t1 - t0)) / 1000
    raise AssertionError


def joules(start_s, end_s, steps=100_000):
    width = (end_s - start_s) / steps
    return sum(watts(start_s + (i + 0.5) * width) for i in range(steps)) * width


@pytest.fixture(scope="module")
def two_gpus(compiled_nvml, tmp_path_factory):
    folder = tmp_path_factory.mktemp("two_gpus")
    shutil.copy(compiled_nvml, folder)
    return FakeNvml(folder).play(TWO_GPUS, [(1.013, 9.377)])


def test_every_change_of_power_is_reported_at_its_instant(two_gpus):
    series = two_gpus["windows"][0]["series"]["gpu_power GPU-a"]
    assert [value for _, value in series] == pytest.approx([watts(at_s) for at_s, _ in series], abs=0.001)
    # power changes every tenth of a second
    assert [at_s for at_s, _ in series] == pytest.approx([i / 10 for i in range(10, 94)], abs=1e-5)


def test_utilisation_is_read_from_the_drivers_buffer_with_its_timestamps(two_gpus):
    series = two_gpus["windows"][0]["series"]["gpu_utilization GPU-a"]
    assert [at_s for at_s, _ in series] == pytest.approx([i / 6 for i in range(6, 57)], abs=1e-5)
    # each value is the mean of the sixth of a second before it, and 3 s and 7 s are ends of such spans
    expected = [0.0 if at_s < 3.01 else 1.0 if at_s < 7.01 else 0.4 for at_s, _ in series]
    assert [value for _, value in series] == pytest.approx(expected)


def test_changes_of_polled_values_are_reported_within_one_interval(two_gpus):
    (window,) = two_gpus["windows"]
    changes: dict[str, list[tuple[float, float]]] = {
        "gpu_memory_used GPU-a": [(4.03, 5000), (6, 2000)],
        "gpu_sm_clock GPU-a": [(5, 1000)],
        "gpu_memory_used MIG-0": [(5, 888)],
    }
    for name, expected in changes.items():
        changed = window["series"][name][1:]  # the first sample was in effect at the start
        assert [value for _, value in changed] == [value for _, value in expected]
        assert all(0 <= at_s - when_s < 0.05 + 1e-6 for (at_s, _), (when_s, _) in zip(changed, expected, strict=True))


def test_the_figures_of_a_whole_gpu_are_those_of_its_curves(two_gpus):
    figures = two_gpus["windows"][0]["figures"][0]
    length_s = 9.377 - 1.013
    assert figures["energy_j"] == pytest.approx(joules(1.013, 9.377), rel=0.005)
    assert (figures["energy_source"], figures["power_source"]) == ("counter", "instant")
    assert figures["power_mean_w"] == pytest.approx(joules(1.013, 9.377) / length_s, rel=0.005)
    # the last sixth of a second has not ended at the window's end
    assert figures["utilization_mean"] == pytest.approx((4 * 1.0 + 2.377 * 0.4) / length_s, abs=0.01)
    assert figures["memory_utilization_mean"] == pytest.approx(5.377 * 0.5 / length_s, abs=0.01)
    assert figures["sm_clock_mean_mhz"] == pytest.approx((3.987 * 1410 + 4.377 * 1000) / length_s, abs=410 * 0.05 / length_s)
    assert figures["throttled_share"] == pytest.approx(2 / length_s, abs=0.05 / length_s + 0.001)
    assert figures["driver_version"] == "550.54.15"
    plain = ("uuid", "name", "source", "index", "mig", "memory_used_max_bytes", "memory_total_bytes", "temperature_max_celsius")
    assert [figures[name] for name in plain] == ["GPU-a", "Fake A100", "nvml", 0, False, 5000, 42949672960, 61.0]
    assert figures["memory_clock_mean_mhz"] == 1215
    assert figures["throttle_reasons"] == ["power cap", "software thermal slowdown"]
    assert (figures["pcie_sent_mean_bytes_per_s"], figures["pcie_received_mean_bytes_per_s"]) == (500_000, 20_000)


def test_throttling_is_a_warning_but_idling_is_not(two_gpus):
    (warning,) = two_gpus["windows"][0]["warnings"]
    assert warning["code"] == "gpu_throttled"
    assert warning["message"].startswith("GPU 0 (Fake A100) lowered its clocks for 23.")
    assert "software thermal slowdown 1" in warning["message"]


def test_mig_instances_report_memory_only_and_one_note_says_so(fake_nvml):
    played = fake_nvml.play(TWO_GPUS, [(1, 2), (2, 6)])
    whole, first, second = played["windows"][1]["figures"][1:]
    assert (whole["mig"], whole["utilization_mean"], whole["power_mean_w"]) == (False, None, 90.0)
    assert (first["uuid"], first["mig"], first["parent_uuid"], first["memory_total_bytes"]) == ("MIG-0", True, "GPU-b", 10737418240)
    assert (first["memory_used_max_bytes"], second["memory_used_max_bytes"]) == (888, 5)
    reported = {"driver_version", "uuid", "name", "source", "index", "mig", "parent_uuid", "throttle_reasons"}
    reported |= {"memory_total_bytes", "memory_used_max_bytes"}
    assert all(value is None for name, value in first.items() if name not in reported)
    assert played["notes"] == [
        f"GPU 1 (Fake H100) is divided (MIG) into 2 instances: {MIG}",
        "GPU 1 (Fake H100): the driver does not report utilisation, memory-controller utilisation; everything else is sampled.",
    ]


FIELDS, COUNTER = "fail nvmlDeviceGetFieldValues", "fail nvmlDeviceGetTotalEnergyConsumption 3"
METHODS = {
    "GPU-counter": ("counter", "instant", f"{FIELDS}:83 3"),
    "GPU-instant": ("power", "instant", f"{FIELDS}:83 3\n{COUNTER}"),
    "GPU-samples": ("power", "samples", f"{FIELDS} 13\n{COUNTER}"),
    "GPU-average": ("power", "average", f"{FIELDS} 13\n{COUNTER}\nfail nvmlDeviceGetSamples:0 3\npower_usage average"),
}


def test_energy_is_within_half_a_percent_of_the_integral_with_every_method(fake_nvml):
    mean, amplitude, period = SINE
    script = "".join(
        f"gpu\nuuid {name}\npower_mw sine {mean * 1000} {amplitude * 1000} {period}\n{rest}\n" for name, (_, _, rest) in METHODS.items()
    )
    windows = [(2.0, 22.03), (22.03, 22.03 + 3 * period)]
    played = fake_nvml.play(script, windows)
    for (start_s, end_s), window in zip(windows, played["windows"], strict=True):
        turns = [2 * math.pi * at_s / period for at_s in (start_s, end_s)]
        expected = mean * (end_s - start_s) + amplitude * period / (2 * math.pi) * (math.cos(turns[0]) - math.cos(turns[1]))
        for figures in window["figures"]:
            source, power_source, _ = METHODS[figures["uuid"]]
            assert (figures["energy_source"], figures["power_source"]) == (source, power_source)
            # a mean over the last second lags by half a second, which full periods of the sine hide
            if power_source != "average" or start_s > 22:
                assert figures["energy_j"] == pytest.approx(expected, rel=0.005), figures["uuid"]
    assert played["notes"] == [
        f"GPU {index} (Fake GPU): the driver does not report the energy counter; everything else is sampled." for index in (1, 2, 3)
    ]


def test_idle_power_is_measured_before_the_run_and_subtracted(fake_nvml):
    script = "gpu\nuuid GPU-a\npower_mw steps 0:60000 3:250000\nmig\n"
    played = fake_nvml.play(script, [(4.0, 14.0)], idle_s=2.0)
    whole, instance = played["windows"][0]["figures"]
    assert whole["idle_power_w"] == pytest.approx(60, rel=0.005)
    assert whole["energy_j"] == pytest.approx(2500, rel=0.005)
    assert whole["energy_above_idle_j"] == pytest.approx(1900, rel=0.005)
    assert (instance["idle_power_w"], instance["energy_above_idle_j"]) == (None, None)


def test_a_gpu_that_is_busy_before_the_run_is_noted(fake_nvml):
    played = fake_nvml.play("gpu\nname A100\nutilization 30\npower_mw 100000\n", [(4.0, 5.0)], idle_s=2.0)
    (note,) = played["notes"]
    assert note.startswith("GPU 0 (A100) was not idle before the run (utilisation 30%): the measured idle power is too high")


def test_a_sampler_thread_samples_everything_in_real_time_and_leaves_no_thread(fake_nvml):
    script = fake_nvml.folder / "live.txt"
    script.write_text("gpu\npower_mw 100000\nutilization 50\npcie_blocks_s 0.02\npcie_sent_kb_per_s 3\nmemory_used 5\n")
    command = [sys.executable, str(FOLDER / "live.py")]
    live = subprocess.run(command, env=fake_nvml.environment(script), capture_output=True, text=True, check=False)
    assert live.stderr == ""
    assert json.loads(live.stdout) == {"power_mean_w": 100.0, "threads": []}


def test_queries_run_no_more_often_than_their_values_change(fake_nvml):
    names = ["nvmlDeviceGetTemperature", "nvmlDeviceGetSamples", "nvmlDeviceGetPcieThroughput", "nvmlDeviceGetClockInfo"]
    played = fake_nvml.play("gpu\nuuid GPU-a\ntemperature 50\n", [(1, 10)], rate_per_s=100, count_calls=names)
    calls = played["calls"]
    assert 10 <= calls["nvmlDeviceGetTemperature"] <= 12  # once a second
    assert 2 * 2 * 20 <= calls["nvmlDeviceGetSamples"] <= 2 * 2 * 22  # two buffers, each read twice a second with two calls
    assert 2 * 10 <= calls["nvmlDeviceGetPcieThroughput"] <= 2 * 11  # sent and received
    assert calls["nvmlDeviceGetClockInfo"] >= 2 * 1000


def test_an_unchanged_value_is_one_sample(fake_nvml):
    (window,) = fake_nvml.play("gpu\nuuid GPU-a\ntemperature 50\nmemory_used 7\n", [(5, 10)])["windows"]
    assert window["series"]["gpu_memory_used GPU-a"] == [[0.0, 7.0]]  # from when it was new


def test_the_newest_values_are_available_for_live_metrics(fake_nvml):
    latest = {(name, uuid): value for name, uuid, value in fake_nvml.play(TWO_GPUS, [(1, 8)])["latest"]}
    assert latest["gpu_power", "GPU-a"] == pytest.approx(watts(8.0))
    assert latest["gpu_memory_used", "MIG-0"] == 888


def test_without_a_gpu_the_servers_processes_are_not_searched():
    def search():
        raise AssertionError

    assert GpuSampler(100, ManualClock(), server_pids=search).window(0, 10**9).summary == ()
