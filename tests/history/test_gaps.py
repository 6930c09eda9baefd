"""Missing results: gaps in regular series, the silence at the end, and results without valid figures."""

from perfkit.clock import parse_instant
from perfkit.history.check import find_gaps
from perfkit.history.series import HistoryEntry, Series
from perfkit.history.trend import Trend

SERIES = Series("smoke", branch="main", machine="host-a")


def entries(days):
    return [HistoryEntry(f"2026-01-{day:02}T00:00:00.000+00:00", "", "host-a", {}, "r") for day in days]


def gaps(days, *, invalid=(), now=1, forked=()):
    listed = entries(days)
    valid = [entry for day, entry in zip(days, listed, strict=True) if day not in invalid]
    trend = Trend(SERIES, "http, concurrency 4", "p50", "ns", tuple(valid), (1.0,) * len(valid))
    found = find_gaps({SERIES: listed}, [trend], parse_instant(f"2026-02-{now:02}T00:00:00+00:00"), forked)
    return [(gap.after[8:10], gap.before and gap.before[8:10], gap.missing) for gap in found]


def test_a_gap_in_a_nightly_series_says_how_many_are_missing():
    nightly = [*range(1, 11), *range(14, 20), *range(21, 32)]
    assert gaps(nightly) == [("10", "14", 3), ("19", "21", 1)]
    assert gaps(range(1, 32)) == []


def test_the_silence_since_the_last_result_is_a_gap_without_an_end():
    assert gaps(range(1, 30)) == [("29", None, 3)]
    assert gaps(range(1, 32), now=2) == [("31", None, 2)]
    assert gaps([*range(1, 11), *range(14, 30)], forked=("main",)) == [("10", "14", 3)]  # such a branch may end


def test_results_that_come_irregularly_have_no_gaps():
    assert gaps([1, 2, 9, 10, 20, 21, 31]) == []
    assert gaps([1, 2, 31]) == []


def test_a_result_without_valid_figures_is_named():
    assert gaps(range(1, 32), invalid=(7,)) == [("07", None, None)]
