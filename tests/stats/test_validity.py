"""When the load generator, not the target, made a point's figures."""

import dataclasses

import pytest

from perfkit.stats.buckets import BucketCounts
from perfkit.stats.validity import ClosedLoopFigures, OpenLoopFigures, judge_generator

MS = 1_000_000


def delays(late_ns, late, count=1000):
    """So many start delays, `late` of them that long, the rest 50 µs."""
    return BucketCounts.of([late_ns] * late + [50_000] * (count - late))


ON_SCHEDULE = OpenLoopFigures(scheduled=10_000, sent=9_900, dropped=100, pacing_delay=delays(MS // 5, 20), response_p50_ns=10 * MS)
BUSY = ClosedLoopFigures(concurrency=8, finished_per_s=800.0, mean_service_time_ns=10 * MS)


def codes(warnings):
    return [warning.code for warning in warnings]


@pytest.mark.parametrize("loop", [ON_SCHEDULE, BUSY, None, OpenLoopFigures(0, 0, 0, BucketCounts.of([]), 0)])
def test_a_quiet_generator_is_valid_without_warnings(loop):
    found = judge_generator(0.85, 0.01, 0.01, loop)
    assert (found.is_valid, found.invalid, found.warnings) == (True, (), ())


@pytest.mark.parametrize("loop", [ON_SCHEDULE, BUSY, None])
def test_a_busy_core_is_invalid_and_stolen_time_is_a_warning(loop):
    found = judge_generator(0.97, 0.02, 0, loop)
    assert not found.is_valid
    assert (codes(found.invalid), codes(found.warnings)) == (["generator_bound"], ["steal"])
    assert "97%" in found.invalid[0].message
    assert "2.0%" in found.warnings[0].message


@pytest.mark.parametrize(("sent", "dropped", "valid"), [(9_900, 0, True), (9_800, 100, True), (9_899, 0, False), (0, 0, False)])
def test_missing_more_than_one_percent_of_the_schedule_is_invalid(sent, dropped, valid):
    found = judge_generator(0.1, 0, 0, dataclasses.replace(ON_SCHEDULE, sent=sent, dropped=dropped))
    assert (found.is_valid, codes(found.invalid)) == (valid, [] if valid else ["behind_schedule"])


@pytest.mark.parametrize(
    ("delay_ms", "response_ms", "valid"),
    [(1, 1, True), (1.01, 1, False), (1.01, 20, False), (1.01, 20.3, True), (5, 100, True), (5.1, 100, False)],
)
def test_late_starts_are_invalid_above_a_millisecond_and_a_twentieth_of_the_response_time(delay_ms, response_ms, valid):
    loop = dataclasses.replace(ON_SCHEDULE, pacing_delay=delays(round(delay_ms * MS), 19), response_p50_ns=response_ms * MS)
    found = judge_generator(0.1, 0, 0, loop)
    assert (found.is_valid, codes(found.invalid)) == (valid, [] if valid else ["late_starts"])


@pytest.mark.parametrize(
    ("late", "count", "valid"), [(2, 149, True), (4, 149, True), (5, 149, False), (1, 20, True), (2, 20, False), (17, 1000, True), (18, 1000, False), (114, 10_000, True), (130, 10_000, False)]
)  # fmt: skip
def test_late_starts_are_invalid_where_their_share_is_above_one_percent_beyond_chance(late, count, valid):
    """The lower limits are those of R's `binom.test`, such as 0.0110 for 5 of 149, 0.0092 for 4 and 0.0123 for 2 of 20."""
    found = judge_generator(0.1, 0, 0, dataclasses.replace(ON_SCHEDULE, pacing_delay=delays(5 * MS, late, count), response_p50_ns=10 * MS))
    assert found.is_valid is valid


@pytest.mark.parametrize(("share", "valid"), [(0.0, True), (0.01, True), (0.011, False), (0.5, False)])
@pytest.mark.parametrize("loop", [ON_SCHEDULE, BUSY, None])
def test_a_quota_that_stops_the_generator_is_invalid(loop, share, valid):
    found = judge_generator(0.1, 0, share, loop)
    assert (found.is_valid, codes(found.invalid)) == (valid, [] if valid else ["throttled"])
    assert valid or f"for {share:.0%} of the window" in found.invalid[0].message


def test_a_starved_generator_has_all_reasons():
    found = judge_generator(0.99, 0.0, 0.3, OpenLoopFigures(1000, 500, 0, delays(80 * MS, 50), 10 * MS))
    assert codes(found.invalid) == ["generator_bound", "throttled", "behind_schedule", "late_starts"]
    assert "50.0% of the 1,000 scheduled requests" in found.invalid[2].message
    assert "it sent 50 of the 1,000 requests more than 1.00 ms after their scheduled time" in found.invalid[3].message


@pytest.mark.parametrize(("per_s", "think_ms", "warned"), [(800, 0, False), (765, 0, False), (755, 0, True), (845, 0, True), (400, 10, False), (400, 0, True), (0, 0, True)])  # fmt: skip
def test_a_closed_loop_that_breaks_littles_law_has_a_warning(per_s, think_ms, warned):
    loop = dataclasses.replace(BUSY, finished_per_s=per_s, mean_think_time_ns=think_ms * MS)
    found = judge_generator(0.1, 0, 0, loop)
    assert (found.is_valid, codes(found.warnings)) == (True, ["littles_law"] if warned else [])
