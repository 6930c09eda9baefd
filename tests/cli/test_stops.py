"""A run whose process is stopped by a signal for a while."""

import contextlib
import signal
import time

import psutil

LENGTH_S = 1.0
SLOTS = 4


def has_begun(running):
    """Whether all connections of the load are open."""
    with contextlib.suppress(psutil.Error):
        return len(psutil.Process(running.process.pid).net_connections("tcp")) >= SLOTS
    return False


def test_a_run_that_was_stopped_by_a_signal_is_no_measurement(perfkit, write_scenario):
    measure = {"warmup": "0s", "duration": "3s", "repetitions": 1}
    running = perfkit.start("run", write_scenario(load={"closed": {"concurrency": SLOTS, "think_time": "5ms"}}, measure=measure))
    running.wait_for_line("target:")
    while not has_begun(running):
        time.sleep(0.01)
    time.sleep(0.7)  # the connections are opened before the first request is sent
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
