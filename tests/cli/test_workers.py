"""Runs with several worker processes: their combined result, and what a worker that is killed leaves of it."""

import contextlib
import os
import signal
import threading

import psutil
import pytest

from tests.children import listening
from tests.conditions import until_ended, wait_until
from tests.json_server import serving, v2_handler

TRIALS = 32  # more than the requests that are sent before the load
CLOSED, OPEN = {"closed": {"concurrency": 4, "think_time": "5ms"}}, {"open": {"rate": 200, "arrivals": "constant"}}


def two_workers_of(running):
    """Waits for both worker processes of a run."""
    found = list[psutil.Process]()

    def are_found():
        with contextlib.suppress(psutil.NoSuchProcess):
            found[:] = [one for one in running.descendants() if "perfkit.workers.worker_process" in one.cmdline()]
        return len(found) == 2

    wait_until(are_found)
    return found


def logged(finished, kind):
    """The number of samples in the interval log."""
    from perfkit.result.interval_log import read_intervals

    return sum(histogram.count for tag, _, histogram in read_intervals(finished.folder) if tag.endswith(kind))


@pytest.mark.parametrize(("load", "kind"), [({"closed": {"concurrency": 75}}, "service"), (OPEN, "response")])
def test_the_recordings_of_all_workers_make_one_result(perfkit, write_scenario, slow_server, load, kind):
    measure = {"warmup": "200ms", "requests": 150, "repetitions": 1, "workers": 3}
    finished = perfkit.measure(write_scenario(**slow_server, load=load, measure=measure))
    for number, point in enumerate(finished.result["points"]):
        assert point["protocol"] == ("http", "grpc")[number]
        assert point["requests"]["ok"] == point["requests"]["scheduled"] == 150
        assert logged(finished, f"p{number}.r0.{kind}") == point[f"{kind}_time_ns"]["count"] == 150
        assert point["connections"]["opened"] >= 3


def test_a_killed_worker_is_named_and_the_data_of_the_others_count(perfkit, write_scenario):
    hangs, is_killed = threading.Event(), threading.Event()

    def hang(number):
        if number > TRIALS:  # each worker waits for its answers
            hangs.set()
            is_killed.wait(60)

    with serving(v2_handler(hang)) as port:
        measure = {"warmup": "0s", "requests": 80, "repetitions": 1, "workers": 2}
        target = {"url": f"http://127.0.0.1:{port}", "model": "m"}
        running = perfkit.start(
            "run", write_scenario(target=target, load=CLOSED, measure=measure, check={"share": "100%"}, telemetry=False)
        )
        running.wait_for_line("target:")
        victim = two_workers_of(running)[0]
        assert hangs.wait(60)
        wait_until(victim.net_connections)  # it has begun
        os.kill(victim.pid, signal.SIGKILL)
        is_killed.set()
        finished = running.finish()
    assert finished.code == 5, finished.stderr
    (point,) = finished.result["points"]
    assert not point["valid"]
    (message,) = [one["message"] for one in point["warnings"] if one["code"] == "worker_lost"]
    assert f"(process {victim.pid}) ended with signal 9" in message
    assert logged(finished, "r0.service") == point["service_time_ns"]["count"] > 0
    until_ended([victim])


def test_when_all_workers_are_killed_what_they_had_sent_is_kept(perfkit, write_quick_scenario):
    measure = {"warmup": "0s", "duration": "1h", "repetitions": 1, "workers": 2}
    running = perfkit.start("run", write_quick_scenario(load=OPEN, measure=measure))
    running.wait_for_line("target:")
    workers = two_workers_of(running)
    running.wait_for_pieces(1)
    for worker in workers:
        worker.kill()
    finished = running.finish()
    assert finished.code == 5, finished.stderr
    (point,) = finished.result["points"]
    assert (finished.result["status"], point["valid"]) == ("invalid", False)
    assert len([one for one in point["warnings"] if one["code"] == "worker_lost"]) == 2
    assert logged(finished, "r0.response") == point["response_time_ns"]["count"] == point["requests"]["sent"] > 0
    until_ended(workers)


def test_an_interrupt_ends_all_workers_and_keeps_their_measurements(perfkit, write_quick_scenario):
    running = perfkit.start(
        "run", write_quick_scenario(load=CLOSED, measure={"warmup": "0s", "duration": "300ms", "repetitions": 500, "workers": 2})
    )
    running.wait_for_line("[2/500]")
    processes = running.descendants()
    running.signal(signal.SIGINT)
    finished = running.finish()
    assert finished.code == 130
    assert finished.result["status"] == "interrupted"
    until_ended(processes)


def test_workers_cannot_be_reached_from_another_machine_and_end_even_when_the_run_is_killed(perfkit, write_quick_scenario):
    measure = {"warmup": "0s", "duration": "1h", "repetitions": 1, "workers": 2}
    running = perfkit.start("run", write_quick_scenario(load=CLOSED, measure=measure))
    running.wait_for_line("target:")
    workers = two_workers_of(running)
    assert not listening([running.process]) - {"127.0.0.1"}
    running.signal(signal.SIGKILL)
    running.finish()
    until_ended(workers)


def test_a_target_that_ends_during_the_run_ends_all_workers(perfkit, write_scenario):
    measure = {"warmup": "0s", "duration": "300ms", "repetitions": 500, "workers": 2}
    running = perfkit.start("run", write_scenario(load=CLOSED, measure=measure, telemetry=False))
    running.wait_for_line("[2/500]")
    (server,) = [one for one in running.descendants() if "server_stub" in one.cmdline()]
    server.kill()
    finished = running.finish()
    assert finished.code == 6
    assert finished.result["status"] == "incomplete"
    assert len(finished.result["points"]) >= 2
