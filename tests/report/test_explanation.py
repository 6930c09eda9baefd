"""How each figure came about: the arithmetic reproduces the stored figures, from counts that are known beforehand."""

import numpy as np
import pytest

from perfkit.cli.main import main
from perfkit.points.point import LoadSummary
from perfkit.report.explanation import explain
from perfkit.result.load import ClosedLoad
from perfkit.result.model import Result
from perfkit.transport.base import Outcome
from tests.queue_results import bucket_counts, measured_point
from tests.stored_results import SCENARIO, changed, document, write

SERVER = {
    "requests": 10, "failed": 0, "success_ns": 1.5e6, "queue_ns": 5e5, "compute_input_ns": 1e5, "compute_infer_ns": 8e5, "compute_output_ns": 1e5,
    "executions": 4, "mean_batch": 2.5, "inferences": 10, "client_requests": 12, "client_mean_ns": 2e6,
}  # fmt: skip


def measured(number, *, ok, timed_out, finished, seconds, batch_size=1, load=None):
    times_s = np.random.default_rng(number).exponential(0.002, ok + timed_out)
    outcomes = {Outcome.OK: ok, Outcome.TIMED_OUT: timed_out, Outcome.REJECTED: 2}
    times = {"service_time": bucket_counts(times_s), "failure_time": bucket_counts([0.001, 0.001])}
    return measured_point(
        load or ClosedLoad(concurrency=4), number, seconds=seconds, outcomes=outcomes, times=times, ended=ok, finished=finished,
        batch_size=batch_size, cpu_share=0.1 * (number + 1), protocol="http", warnings=(),
    )  # fmt: skip


def result_of(*repetitions):
    summary = LoadSummary()
    points = tuple(summary.add(one) for one in repetitions)
    return Result(
        scenario=SCENARIO,
        environment={},
        status="complete",
        started_at="2026-01-02T03:04:05.000+00:00",
        points=points,
        summary=(summary.pooled(),),
    )


def stored(point, path):
    value = point
    for name in path.split("."):
        value = getattr(value, name)
    return value


def by_figure(result):
    return {one.figure: one for one in explain(result.summary[0], result)}


REPETITIONS = (
    measured(0, ok=8_141, timed_out=3, finished=8_124, seconds=10, batch_size=4),
    measured(1, ok=3_001, timed_out=0, finished=3_007, seconds=7, batch_size=4),
)


@pytest.mark.parametrize("repetitions", [REPETITIONS[:1], REPETITIONS[1:], REPETITIONS])
def test_every_figure_that_is_computed_is_the_stored_one(repetitions):
    result = result_of(*repetitions)
    found = by_figure(result)
    assert {
        "throughput_per_s",
        "inferences_per_s",
        "error_rate",
        "requests.scheduled",
        "requests.sent",
        "generator.cpu_share",
        "service_time_ns.count",
    } <= set(found)
    for path, one in found.items():
        if one.computed is not None:
            assert one.computed == pytest.approx(stored(result.summary[0], path), rel=1e-12), path


def test_the_counts_of_the_throughput_are_those_of_the_window():
    assert by_figure(result_of(REPETITIONS[0]))["throughput_per_s"].text == (
        "throughput 812/s = 8,124 ok answers that finished in the window ÷ 10.000 s; of the window's own 8,141 ok requests, 17 more finished"
        " after its end than older ones finished in it; not counted: 2 rejected, 3 timed out"
    )
    assert (
        "of the window's own 3,001 ok requests, 6 fewer finished after its end than older ones finished in it"
        in by_figure(result_of(REPETITIONS[1]))["throughput_per_s"].text
    )
    both = by_figure(result_of(*REPETITIONS))
    assert "(8,124 + 3,007 = 11,131) ok answers × 4 inferences each ÷ (10.000 + 7.000) s" in both["inferences_per_s"].text
    assert both["error_rate"].text == "errors 0.06% = 1 - 11,142 ok ÷ 11,149 scheduled, 7 failed or dropped"


@pytest.mark.parametrize(("name", "quantile"), [("p50", 0.5), ("p99", 0.99), ("p99_9", 0.999)])
def test_the_rank_of_a_percentile_is_that_of_the_stored_value(name, quantile):
    result = result_of(REPETITIONS[0])
    text = by_figure(result)[f"service_time_ns.{name}"].text
    rank = int(text.partition("rank ")[2].partition(" ")[0].replace(",", ""))
    value_ns = np.sort(np.rint(np.random.default_rng(0).exponential(0.002, 8_144) * 1e9))[rank - 1]
    assert getattr(result.summary[0].service_time_ns, name) == pytest.approx(value_ns, rel=2e-3)
    assert rank == round(quantile * 8_144)


def test_a_percentile_that_is_withheld_says_what_it_needs():
    assert by_figure(result_of(REPETITIONS[0]))["service_time_ns.p99_99"].text == "p99.99 is left out: it needs 10,000 times"


def test_goodput_the_server_and_energy_are_explained_where_they_are_known():
    gpu = {"uuid": "GPU-1", "name": "T4", "source": "nvml", "energy_j": 600.0}
    made = document(goodput_per_s=490.0, server=SERVER, gpus=[gpu], energy_per_inference_j=0.04)
    result = Result.model_validate(changed(made, "summary.0.gpus", [gpu]))
    found = by_figure(result)
    for path in ("goodput_per_s", "server.mean_batch", "energy_per_inference_j"):
        assert found[path].computed == pytest.approx(stored(result.summary[0], path), rel=1e-12)
    assert found["goodput_per_s"].text.startswith("goodput 490/s = (4,900 + 4,900 + 4,900 = 14,700) of these answers")
    assert found["server.mean_batch"].text == "server mean batch 2.50 = 10 inferences ÷ 4 executions"
    assert "the mean of 10 successful requests" in found["server.queue_ns"].text


def with_server_cpu(made, *repetitions, pooled):
    """A document whose repetitions, of 5,000 answers in 10 s each, have these `server_cpu`; None for one in which it is unknown."""
    made = changed(made, "summary.0.server_cpu", pooled)
    for number, one in enumerate(repetitions):
        made = changed(made, f"points.{number}.server_cpu", one)
    return Result.model_validate(made)


def cpu(cpus, time_per_request_ns, instructions=None):
    return {"cpus": cpus, "time_per_request_ns": time_per_request_ns, "instructions_per_request": instructions}


def test_the_servers_cpu_time_is_explained_from_its_repetitions():
    # 3 + 4 + 5 s of CPU time in 30 s
    result = with_server_cpu(
        document(), cpu(0.3, 0, 1e4), cpu(0.4, 0, 2e4), cpu(0.5, 0, 3e4), pooled=cpu(0.4, 12e9 / 15_000, instructions=2e4)
    )
    found = by_figure(result)
    for path in ("server_cpu.cpus", "server_cpu.time_per_request_ns", "server_cpu.instructions_per_request"):
        assert found[path].computed == pytest.approx(stored(result.summary[0], path), rel=1e-12)
    assert found["server_cpu.cpus"].text == (
        "server CPUs 0.40 = 12 s of user and system time of all its processes ÷ (10.000 + 10.000 + 10.000) s"
    )
    assert found["server_cpu.time_per_request_ns"].text == (
        "server CPU time 800 µs a request = 12 s of user and system time of all its processes ÷ "
        "(5,000 + 5,000 + 5,000 = 15,000) ok answers that finished in the window"
    )


def test_repetitions_whose_cpu_time_is_unknown_are_left_out_of_it():
    found = by_figure(with_server_cpu(document(), None, cpu(0.4, 0), cpu(0.6, 0), pooled=cpu(0.5, 1e6)))
    assert found["server_cpu.cpus"].computed == pytest.approx(0.5)
    assert found["server_cpu.time_per_request_ns"].computed == pytest.approx(1e6)
    assert "server_cpu.instructions_per_request" not in found
    assert not [path for path in by_figure(Result.model_validate(document())) if path.startswith("server_cpu")]


def test_the_command_prints_each_load_point_and_reads_one_file_only(tmp_path, capsys):
    folder = write(tmp_path / "r", document())
    assert main(["explain", str(folder)]) == 0
    said = capsys.readouterr().out
    assert "http, concurrency 4, 3 repetitions pooled\n  requests 15,000 = 15,000 sent + 0 dropped" in said
    assert main(["explain", str(tmp_path / "nothing")]) == 2
