"""A run whose process is stopped by a signal for a while."""

import signal
import threading
import time

import pytest

from tests.json_server import serving, v2_handler

LENGTH_S = 0.5
SLOTS = 4


@pytest.fixture
def server():
    """The sections of a scenario with a target in this process, and whether the load has begun there."""
    has_begun = threading.Event()

    def note(number):
        if number >= 20 * SLOTS:  # more than the requests that are sent on trial
            has_begun.set()

    with serving(v2_handler(note)) as port:
        yield {"url": f"http://127.0.0.1:{port}", "model": "m"}, has_begun


def test_a_run_that_was_stopped_by_a_signal_is_no_measurement(perfkit, write_scenario, server):
    target, has_begun = server
    measure = {"warmup": "0s", "duration": "2s", "repetitions": 1}
    load = {"closed": {"concurrency": SLOTS, "think_time": "5ms"}}
    running = perfkit.start("run", write_scenario(target=target, load=load, measure=measure))
    assert has_begun.wait(60)
    running.signal(signal.SIGSTOP)
    time.sleep(LENGTH_S)
    running.signal(signal.SIGCONT)
    finished = running.finish()
    assert finished.code == 5, finished.stderr
    (point,) = finished.result["points"]
    assert not point["valid"]
    (message,) = [warning["message"] for warning in point["warnings"] if warning["code"] == "generator_stopped"]
    assert "throughput" in message
    stops = point["generator"]["stops"]
    assert LENGTH_S - 0.05 <= stops["max_ns"] / 1e9 <= LENGTH_S + 1
    assert stops["touched_requests"] >= SLOTS
