"""A run whose process is stopped by a signal for a while."""

import threading
import time

import psutil
import pytest

from tests.json_server import serving, v2_handler

LENGTH_S = 2.0
SLOTS = 16
TRIALS = 32  # more than the requests that are sent before the load


@pytest.fixture
def server():
    """A target in this process that holds its answers when the load has gone on for a while: its section, whether all slots wait, the end."""
    all_wait, may_answer = threading.Event(), threading.Event()

    def hold(number):
        if number == TRIALS + 11 * SLOTS:
            all_wait.set()
        if number > TRIALS + 10 * SLOTS:
            may_answer.wait(60)

    with serving(v2_handler(hold)) as port:
        yield {"url": f"http://127.0.0.1:{port}", "model": "m"}, all_wait, may_answer


def test_a_run_that_was_stopped_by_a_signal_is_no_measurement(perfkit, write_scenario, server):
    target, all_wait, may_answer = server
    measure = {"warmup": "0s", "requests": TRIALS + 20 * SLOTS, "repetitions": 1}
    load = {"closed": {"concurrency": SLOTS, "think_time": "5ms"}}
    running = perfkit.start("run", write_scenario(target=target, load=load, measure=measure))
    assert all_wait.wait(60)
    processes = [psutil.Process(running.process.pid), *running.descendants()]  # all of them, as by Ctrl-Z
    for process in processes:
        process.suspend()
    may_answer.set()  # what is answered meanwhile is seen late: one in twenty times is as long as the stop
    time.sleep(LENGTH_S)
    for process in processes:
        process.resume()
    finished = running.finish()
    assert finished.code == 5, finished.stderr
    (point,) = finished.result["points"]
    assert not point["valid"]
    (message,) = [warning["message"] for warning in point["warnings"] if warning["code"] == "generator_stopped"]
    assert "Without that, the " in message
    stops = point["generator"]["stops"]
    assert LENGTH_S - 0.05 <= stops["max_ns"] / 1e9 <= point["duration_s"]
    assert stops["touched_requests"] >= SLOTS
