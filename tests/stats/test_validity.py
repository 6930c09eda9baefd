"""When the load generator, not the target, made a point's figures."""

import dataclasses

import pytest

from perfkit.stats.buckets import BucketCounts
from perfkit.stats.validity import ClosedLoopFigures, Effect, OpenLoopFigures, StopFigures, judge_generator

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


def test_the_core_of_a_scan_must_be_less_busy_since_its_load_rises():
    # linearly to the whole core at 70 % of the scan, where it stays: 65 % as a mean
    (found,) = judge_generator(0.65, 0, 0, None, is_scan=True).invalid
    assert (found.code, "65% busy, above 60%" in found.message) == ("generator_bound", True)
    assert judge_generator(0.59, 0, 0, None, is_scan=True).is_valid


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
    loop = dataclasses.replace(ON_SCHEDULE, pacing_delay=delays(round(delay_ms * MS), 31), response_p50_ns=response_ms * MS)
    found = judge_generator(0.1, 0, 0, loop)
    assert (found.is_valid, codes(found.invalid)) == (valid, [] if valid else ["late_starts"])


def test_late_starts_beside_other_processes_are_blamed_on_them_first():
    late = dataclasses.replace(ON_SCHEDULE, pacing_delay=delays(5 * MS, 100, 100), response_p50_ns=MS)
    (alone,) = judge_generator(0.1, 0, 0, late).invalid
    assert alone.message.endswith(" beyond chance. Lower the rate, or use more workers if CPUs are free for them.")
    (beside,) = judge_generator(0.1, 0, 0, late, others="pytest (pid 7) 90% of a CPU").invalid
    assert "Other processes used its machine's CPUs (pytest (pid 7) 90% of a CPU): end those first. If that is not enough" in beside.message
    (perhaps,) = judge_generator(0.1, 0, 0, late, others="tritonserver (pid 9) 90% of a CPU", may_include_target=True).invalid
    assert "end those that are not the target, or measure from another machine. If that is not enough, lower the rate." in perhaps.message


@pytest.mark.parametrize(
    ("late", "count", "valid"), [(2, 149, True), (7, 149, True), (8, 149, False), (1, 20, True), (2, 20, True), (3, 20, False), (29, 1000, True), (30, 1000, False), (228, 10_000, True), (229, 10_000, False)]
)  # fmt: skip
def test_late_starts_are_invalid_where_their_share_is_above_two_percent_beyond_chance(late, count, valid):
    """The exact lower limits of 95 % are 0.0235 for 8 of 149 and 0.0191 for 7."""
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


def test_late_starts_that_moved_a_figure_are_invalid_however_few_they_are():
    loop = dataclasses.replace(ON_SCHEDULE, pacing_delay=delays(80 * MS, 3), late_effect=Effect("p95", 30 * MS, 20 * MS))
    found = judge_generator(0.1, 0, 0, loop)
    assert codes(found.invalid) == ["late_starts"]
    assert "Without that, the p95 would be about 20.0 ms instead of 30.0 ms." in found.invalid[0].message


@pytest.mark.parametrize(
    ("effect", "said"),
    [
        (Effect("p99", 3e9, 9e6), "Without that, the p99 would be about 9.00 ms instead of 3.00 s."),
        (Effect("throughput", 125.0, 200.04), "Without that, the throughput would be about 200/s instead of 125/s."),
        (Effect("error rate", 0.01, 0.0), "Without that, the error rate would be about 0.00% instead of 1.00%."),
        (Effect("p50", 5e6, None), "What the p50 would be without that cannot be told; 5.00 ms was measured."),
    ],
)
def test_a_stop_that_moved_a_figure_is_invalid(effect, said):
    stops = StopFigures(count=2, total_ns=3_020 * MS, max_ns=3_000 * MS, touched=12, effect=effect, cause="a CPU quota stopped it")
    found = judge_generator(0.1, 0, 0, BUSY, stops=stops)
    assert (found.is_valid, codes(found.invalid), found.warnings) == (False, ["generator_stopped"], ())
    stood = "The load generator stood still 2 times, for 3.02 s in all and up to 3.00 s (a CPU quota stopped it), and touched 12 requests."
    assert found.invalid[0].message == f"{stood} {said}"


@pytest.mark.parametrize(("max_ms", "warned"), [(9, False), (10, True), (400, True)])
def test_a_stop_that_moved_nothing_is_a_warning_from_ten_milliseconds_on(max_ms, warned):
    stops = StopFigures(count=1, total_ns=max_ms * MS, max_ns=max_ms * MS, touched=1, effect=None)
    found = judge_generator(0.1, 0, 0, BUSY, stops=stops)
    assert (found.is_valid, codes(found.warnings)) == (True, ["generator_paused"] if warned else [])
    assert not warned or f"stood still for {max_ms}" in found.warnings[0].message


def test_a_suspended_machine_is_invalid():
    found = judge_generator(0.1, 0, 0, BUSY, suspended_ns=90 * 10**9)
    assert codes(found.invalid) == ["suspended"]
    assert "suspended for 90.0 s" in found.invalid[0].message
