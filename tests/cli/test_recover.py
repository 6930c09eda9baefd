"""A run that is killed in the middle of a load point, and the result that `perfkit recover` makes of what it left."""

import collections
import signal

import pytest
from hdrh.histogram import HdrHistogram

from perfkit.recorder.histogram import encode
from perfkit.result.file import read_result
from perfkit.result.interval_log import read_intervals, read_window_starts
from perfkit.stats.buckets import DIGITS, HIGHEST_NS, LOWEST_NS
from tests.conditions import until_ended

OPEN, CLOSED = {"open": {"rate": 50}}, {"closed": {"concurrency": 2, "think_time": "10ms"}}


@pytest.mark.parametrize(
    ("load", "workers", "kind", "window"),
    [(OPEN, 1, "response", {"duration": "1h"}), (CLOSED, 2, "service", {"duration": "1h"}), (OPEN, 1, "response", {"requests": 100_000})],
)
def test_a_killed_run_gives_the_figures_of_what_had_been_logged(perfkit, write_scenario, server, load, workers, kind, window):
    measure = {"warmup": "1s", **window, "repetitions": 1, "workers": workers, "checkpoint": "1s"}
    target = {"url": server.http, "model": "simple"}
    running = perfkit.start("run", write_scenario(target=target, load=load, measure=measure, telemetry=False))
    running.wait_for_pieces(2)
    processes = running.descendants()
    running.signal(signal.SIGKILL)
    running.finish()
    until_ended(processes)
    seconds = running.wait_for_pieces(2)
    partial = running.folder.with_name("out.partial")
    recovered = perfkit.run("recover", partial, "--out", running.folder.with_name("saved"), "--no-report")
    assert recovered.code == 0, recovered.stderr
    assert "lost: What came later than" in recovered.stdout
    result, folder = read_result(running.folder.with_name("saved"))
    (point,) = result.points
    assert (result.status, point.duration_s) == ("incomplete", seconds)
    # the same figures from the log alone, by the library of HdrHistogram
    whole, starts = HdrHistogram(LOWEST_NS, HIGHEST_NS, DIGITS), collections.Counter[int]()
    for tag, start_s, times in read_intervals(folder):
        if tag == f"p0.r0.{kind}":
            whole.decode_and_add(encode(times).encode())
            starts[round(start_s - read_window_starts(folder)[0, 0])] += times.count
    assert whole.get_total_count() == point.times.count == point.requests.sent > 0
    assert set(starts) <= set(range(seconds))
    assert whole.get_value_at_percentile(50) == point.times.p50
    assert point.times.max is not None
    assert sum(point.throughput_series_per_s or ()) == pytest.approx(point.throughput_per_s * seconds)


def test_a_folder_whose_run_goes_on_and_one_that_is_none_are_refused(perfkit, write_scenario, tmp_path):
    running = perfkit.start("run", write_scenario(load=CLOSED, measure={"warmup": "0s", "duration": "1h", "repetitions": 1}))
    running.wait_for_line("target:")
    refused = perfkit.run("recover", running.folder.with_name("out.partial"))
    assert (refused.code, "its run still goes on (process" in refused.stderr) == (2, True)
    (tmp_path / "x.partial").mkdir()
    refused = perfkit.run("recover", tmp_path / "x.partial")
    assert (refused.code, "nothing to recover" in refused.stderr) == (2, True)
