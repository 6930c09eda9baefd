"""`perfkit calibrate` on the command line, and what a run makes of a stored calibration."""

import functools
import json
import signal

import pytest

from perfkit.calibration.measurement import Lengths
from perfkit.calibration.model import identity
from perfkit.machine.cpus import usable_cpus
from perfkit.machine.description import describe_host
from tests.conditions import until_ended

MS = 1_000_000
SPREAD = {
    "count": 9,
    "min": 1,
    "mean": 2.0,
    "stddev": 1.0,
    "p50": 2,
    "p90": 3,
    "p95": 4,
    "p99": None,
    "p99_9": None,
    "p99_99": None,
    "max": 7,
}


@pytest.fixture
def cache(tmp_path):
    """The folder of the cache, and the environment that sets it."""
    return tmp_path / "cache", {"PERFKIT_CACHE_DIR": str(tmp_path / "cache")}


def document(**host):
    """A calibration of this machine, on which a request costs a second."""
    costs = [
        {
            "protocol": protocol, "tensor_bytes": 128, "cpu_ns_per_request": 1e9, "ceiling_per_s": 0.85, "service_time_p50_ns": 11_000_000,
            "bare_p50_ns": 1_000_000, "overhead_p50_ns": 10_000_000,
        }
        for protocol in ("http", "grpc")
    ]  # fmt: skip
    return {
        "schema": "perfkit.calibration/1",
        "measured_at": "2026-01-02T03:04:05+00:00",
        "host": {**identity(describe_host()), **host},
        "server_cpus": [],
        "driver_cpus": [],
        "warnings": [],
        "rounds": 3,
        "costs": costs,
        "start_delay_rate_per_s": 1000.0,
        "start_delay_ns": SPREAD,
        "timer_late_ns": SPREAD,
        "clock_resolution_ns": 1.0,
    }


def store(folder, **host):
    folder.mkdir()
    (folder / "calibration.json").write_text(json.dumps(document(**host)))


def test_a_calibration_is_printed_stored_and_shown_in_results(perfkit, write_scenario, cache, monkeypatch):
    folder, environ = cache
    short = functools.partial(Lengths, warmup_ns=10 * MS, window_ns=60 * MS, timer_waits=100, requests=200)
    monkeypatch.setattr("perfkit.calibration.measurement.Lengths", short)
    finished = perfkit.run("calibrate", "--rounds", "1", "--format", "json", environ=environ)
    assert finished.code == 0, finished.stderr
    stored = json.loads((folder / "calibration.json").read_text())
    assert stored == json.loads(finished.stdout)
    assert len(stored["costs"]) == 4
    run = perfkit.measure(write_scenario(measure={"warmup": "0s", "requests": 50, "repetitions": 1}), environ=environ)
    assert run.result["environment"]["generator"]["calibration"] == stored
    assert perfkit.run("report", run.folder).code == 0
    assert "Calibrated ceiling of one worker in a closed loop: http, 128 bytes: " in (run.folder / "report.md").read_text()


def test_an_interrupt_leaves_the_stored_calibration_and_no_process(perfkit, cache):
    folder, environ = cache
    store(folder, kernel="another one")
    before = (folder / "calibration.json").read_text()
    running = perfkit.start("calibrate", environ=environ)
    running.wait_for_line("is not used and will be replaced: ")
    assert "was made with another kernel: another one, now " in running.seen[-1]
    running.wait_for_line("round 1 of 3: http")
    servers = running.descendants()
    running.signal(signal.SIGINT)
    finished = running.finish()
    assert finished.code == 130, finished.stderr
    assert (folder / "calibration.json").read_text() == before
    until_ended(servers)


def test_sigterm_ends_it_with_exit_code_143(perfkit, cache):
    running = perfkit.start("calibrate", environ=cache[1])
    running.wait_for_line("round 1 of 3: http")
    running.signal(signal.SIGTERM)
    assert running.finish().code == 143


@pytest.mark.parametrize("rounds", ["0", "-1", "x", "1000"])
def test_an_invalid_number_of_rounds_is_refused(perfkit, cache, rounds):
    finished = perfkit.run("calibrate", f"--rounds={rounds}", environ=cache[1])
    assert finished.code == 2
    assert "expected a whole number from 1 to 100" in finished.stderr


@pytest.mark.parametrize(
    "load", [{"open": {"rate": 500, "arrivals": "constant"}}, {"closed": {"concurrency": 64, "think_time": "1ms"}}], ids=["open", "closed"]
)
def test_auto_starts_the_workers_that_the_calibration_requires(perfkit, write_quick_scenario, cache, load):
    folder, environ = cache
    store(folder)
    cpus = usable_cpus()[:2]
    measure = {"warmup": "0s", "requests": 60, "repetitions": 1, "cpus": ",".join(map(str, cpus))}
    finished = perfkit.run("run", write_quick_scenario(load=load, measure=measure), environ=environ)
    (point,) = finished.result["points"]
    # 500/s at one second each need hundreds; the closed loop needs several, unless the first answer took a minute
    assert point["generator"]["workers"] == len(cpus), finished.stderr
    assert finished.result["summary"][0]["generator"]["workers"] == len(cpus)


def test_a_given_number_of_workers_is_started(perfkit, write_quick_scenario, cache):
    folder, environ = cache
    store(folder)
    measure = {"warmup": "0s", "requests": 60, "repetitions": 1, "workers": 3}
    finished = perfkit.run("run", write_quick_scenario(load={"open": {"rate": 500}}, measure=measure), environ=environ)
    assert [point["generator"]["workers"] for point in finished.result["points"]] == [3]


def test_without_a_calibration_auto_is_one_worker_and_the_result_says_so(perfkit, write_quick_scenario, cache):
    measure = {"warmup": "0s", "requests": 60, "repetitions": 1, "cpus": ",".join(map(str, usable_cpus()[:2]))}
    finished = perfkit.run("run", write_quick_scenario(load={"open": {"rate": 500}}, measure=measure), environ=cache[1])
    assert finished.result["environment"]["generator"]["calibration"] is None
    assert [point["generator"]["workers"] for point in finished.result["points"]] == [1]
