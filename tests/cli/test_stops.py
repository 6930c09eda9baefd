"""A run whose process is stopped by a signal for a while."""

import signal
import threading
import time

import pytest

from tests.json_server import serving, v2_handler

LEAST_S = 0.5
SLOTS = 16
TRIALS = 32  # more than the requests that are sent before the load


@pytest.fixture
def server():
    """A target in this process: the section of a scenario, and the instants at which the load began and went on for a while."""
    instants, has_gone_on = [], threading.Event()

    def note(number):
        if number in (TRIALS, TRIALS + 10 * SLOTS):
            instants.append(time.monotonic())
        if len(instants) == 2:
            has_gone_on.set()

    with serving(v2_handler(note)) as port:
        yield {"url": f"http://127.0.0.1:{port}", "model": "m"}, has_gone_on, instants


def test_a_run_that_was_stopped_by_a_signal_is_no_measurement(perfkit, write_scenario, server):
    target, has_gone_on, instants = server
    # about three equal parts, however fast the machine is: load, the stop, load
    measure = {"warmup": "0s", "requests": TRIALS + 20 * SLOTS, "repetitions": 1}
    load = {"closed": {"concurrency": SLOTS, "think_time": "40ms"}}
    running = perfkit.start("run", write_scenario(target=target, load=load, measure=measure))
    assert has_gone_on.wait(60)
    length_s = max(LEAST_S, instants[1] - instants[0])
    running.signal(signal.SIGSTOP)
    time.sleep(length_s)
    running.signal(signal.SIGCONT)
    finished = running.finish()
    assert finished.code == 5, finished.stderr
    (point,) = finished.result["points"]
    assert not point["valid"]
    (message,) = [warning["message"] for warning in point["warnings"] if warning["code"] == "generator_stopped"]
    assert "throughput" in message
    stops = point["generator"]["stops"]
    assert length_s - 0.05 <= stops["max_ns"] / 1e9 <= point["duration_s"]
    assert stops["touched_requests"] >= 1
