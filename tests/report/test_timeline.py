"""The time series of a result, read from its folder."""

import functools

import pytest

from perfkit.recorder.histogram import encode
from perfkit.report.timeline import read_timeline
from perfkit.stats.buckets import EMPTY

S = 1_000_000_000


def test_the_histograms_cover_all_repetitions(synthetic):
    maker = synthetic(repetitions=3)
    result = maker.write()
    timeline = read_timeline(maker.folder, result)
    assert [histogram.count for histogram in timeline.histograms] == [point.service_time_ns.count for point in result.summary]
    assert [histogram.values_at([0.5])[0] for histogram in timeline.histograms] == [point.service_time_ns.p50 for point in result.summary]


def test_intervals_of_a_point_that_the_result_lacks_are_left_out(synthetic):
    maker = synthetic(protocols=("http",), concurrencies=(1,), repetitions=1)
    result = maker.write()
    before = read_timeline(maker.folder, result).histograms[0].count
    (maker.folder / "checksums.sha256").unlink()
    with (maker.folder / "latency.hlog").open("a", encoding="ascii") as log:
        for tag in ("p0.r1.service", "p1.r0.service", "p0.r0.response", "else"):
            log.write(f"Tag={tag},1.000,1.000,0.000,{encode(EMPTY)}\n")
    timeline = read_timeline(maker.folder, result)
    assert timeline.histograms[0].count == before
    assert list(timeline.slices) == [(0, 0)]


def slice_starts(maker, result):
    return {key: [part.start_s for part in slices] for key, slices in read_timeline(maker.folder, result).slices.items()}


@pytest.fixture
def silent(synthetic):
    """Makes a result whose windows have no samples in their first two seconds."""
    return functools.partial(synthetic, protocols=("http",), concurrencies=(1,), silent_s=2, samples=20)


def test_slices_count_from_the_windows_start(silent):
    maker = silent()
    assert slice_starts(maker, maker.write()) == {(0, 0): [2, 3, 4], (0, 1): [2, 3, 4]}
