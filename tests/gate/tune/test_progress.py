"""The state of a tune, from windows with known times."""

import pytest

from perfkit.gate.tune.folder import Window
from perfkit.gate.tune.objective import objective_of
from perfkit.gate.tune.progress import TuneState
from perfkit.stats.buckets import BucketCounts
from perfkit.stats.slo import SloLimits

LADDER = (1, 2, 4)
SLO = SloLimits({0.95: 50_000_000})


def window(candidate, phase, number, concurrency, rate, *, ms=10.0, **more):
    """A window of 1,000 answers that took `ms` each."""
    times = BucketCounts.of([round(ms * 1e6)] * 1000)
    pairs = tuple(zip(times.indices.tolist(), times.counts.tolist(), strict=True))
    known = {"length_s": 1.0, "is_valid": True, "throughput_per_s": rate, "scheduled": 1000, "answers": 1000, "times": (pairs,)}
    return Window.model_validate({"candidate": candidate, "phase": phase, "round": number, "concurrency": concurrency, **known, **more})


def scans(candidate, rates, **more):
    return [window(candidate, "scan", 1, concurrency, rate, **more) for concurrency, rate in zip(LADDER, rates, strict=True)]


def state_of(windows, candidates=2, slo=SLO):
    state = TuneState(range(candidates), LADDER, slo)
    for one in windows:
        state.add(one)
    return state


def raced(rates, rounds, first=1):
    """Rounds in which each configuration has its rate at concurrency 4, with a little noise that differs between them."""
    return [
        window(candidate, "race", number, 4, rate * (1 + 0.001 * ((number * (candidate + 3)) % 5)))
        for number in range(first, first + rounds)
        for candidate, rate in enumerate(rates)
    ]


def test_a_configuration_is_measured_where_its_scan_was_best():
    state = state_of(scans(0, (100, 200, 300)))
    assert state.entries[0].state == "racing"
    assert LADDER[state.entries[0].step] == 4
    assert state.scan_step(0) is None
    assert state.scan_step(1) == 0
    assert state.left() == [0, 1]


def test_a_configuration_that_never_meets_the_slo_is_out_with_the_reason():
    state = state_of([window(0, "scan", 1, 1, 100, ms=80)])
    assert state.scan_step(0) == 0, "one window may be a disturbance"
    state.add(window(0, "scan", 1, 1, 100, ms=80))
    assert state.entries[0].state == "unmet"
    assert "p95" in state.entries[0].reason


def test_a_refused_configuration_is_out_with_the_servers_words():
    state = state_of([Window(candidate=1, phase="race", round=1, refusal="out of memory")])
    assert (state.entries[1].state, state.entries[1].reason) == ("refused", "out of memory")


def test_the_slower_configuration_is_dropped_and_the_faster_one_leads():
    state = state_of([*scans(0, (100, 200, 300)), *scans(1, (100, 200, 400)), *raced((300, 400), 6)])
    state.close_round()
    assert (state.entries[0].state, state.entries[0].better) == ("worse", 1)
    assert state.leader == 1
    assert state.is_decided(0.03) == 1


def test_the_same_windows_give_the_same_state_whenever_the_rounds_are_closed():
    windows = [*scans(0, (100, 200, 300)), *scans(1, (100, 200, 305)), *raced((300, 305), 5)]
    at_the_end, at_once = state_of(windows), TuneState(range(2), LADDER, SLO)
    for one in windows:
        at_once.add(one)
        if one.phase == "race" and one.candidate == 1:
            at_once.close_round(one.round)
    at_the_end.close_round()
    assert at_the_end.standing == at_once.standing
    assert {one: entry.out_after for one, entry in at_the_end.entries.items()} == {
        one: entry.out_after for one, entry in at_once.entries.items()
    }


def test_a_configuration_whose_windows_miss_the_slo_goes_one_step_down_and_those_it_beat_are_in_again():
    windows = [*scans(0, (100, 200, 300)), *scans(1, (100, 200, 400)), *raced((300, 400), 6)]
    state = state_of(windows)
    state.close_round()
    assert state.entries[0].state == "worse"
    state.add(window(1, "confirmation", 1, 4, 400, ms=80))
    assert LADDER[state.entries[1].step] == 4, "one window of seven may be a disturbance"
    for number in range(2, 9):
        state.add(window(1, "confirmation", number, 4, 400, ms=80))
    assert LADDER[state.entries[1].step] == 2
    assert state.entries[0].state == "racing"
    assert state.throughput_per_s(1) == 0.0, "windows of another load do not count"


def invalid(number, phase="race"):
    return window(0, phase, number, 4, 300, is_valid=False, reason="The load generator was the bottleneck.")


def test_windows_that_are_not_valid_do_not_count_and_end_a_configuration_without_valid_ones():
    state = state_of([*scans(0, (100, 200, 300)), *map(invalid, (1, 2))])
    assert state.entries[0].state == "racing"
    state.add(invalid(3))
    assert state.entries[0].state == "invalid"
    assert state.entries[0].reason == "The load generator was the bottleneck."
    assert state.entries[0].windows == []


def test_a_disturbance_of_some_windows_ends_no_configuration():
    state = state_of([*scans(0, (100, 200, 300)), *(window(0, "race", number, 4, 300) for number in (1, 2)), *map(invalid, range(3, 9))])
    for number in range(1, 9):
        state.add(invalid(number, "confirmation"))
    assert state.entries[0].state == "racing"
    state.add(invalid(9))
    assert state.entries[0].state == "invalid"


def test_a_scan_window_that_is_not_valid_is_repeated_and_says_nothing_of_the_slo():
    slow = window(0, "scan", 1, 1, 100, ms=80, is_valid=False, reason="The load generator was the bottleneck.")
    state = state_of([slow, slow])
    assert state.scan_step(0) == 0
    state.add(window(0, "scan", 1, 1, 100))
    assert (state.entries[0].state, state.scan_step(0)) == ("waiting", 1)
    state = state_of([slow] * 3)
    assert (state.entries[0].state, state.entries[0].reason) == ("invalid", "The load generator was the bottleneck.")


def test_a_configuration_that_fails_while_it_is_measured_is_out_after_three_times():
    lost = Window(candidate=1, phase="race", round=1, has_failed=True, reason="connection refused")
    state = state_of([*scans(0, (100, 200, 300)), lost, lost])
    assert (state.entries[1].state, state.scan_step(1)) == ("waiting", 0)
    state.add(lost)
    assert (state.entries[1].state, state.entries[1].reason) == ("failed", "connection refused")


@pytest.mark.parametrize(
    ("last", "times", "left_as"),
    [({"refusal": "out of memory"}, 1, "refused"), ({"has_failed": True, "reason": "connection refused"}, 19, "failed")],
)
def test_those_that_were_dropped_because_of_one_that_leaves_are_in_again(last, times, left_as):
    state = state_of([*scans(0, (100, 200, 300)), *scans(1, (100, 200, 400)), *raced((300, 400), 6)])
    state.close_round()
    assert state.entries[0].state == "worse"
    for _ in range(times):
        state.add(Window.model_validate({"candidate": 1, "phase": "confirmation", "round": 1, **last}))
    assert state.entries[1].state == left_as
    assert state.entries[0].state == "racing"
    assert state.leader == 0


def test_the_ratio_comes_from_the_pairs_of_the_confirmation_alone():
    state = state_of([*scans(0, (100, 200, 300)), *scans(1, (100, 200, 400)), *raced((300, 400), 3)])
    for number in range(1, 6):
        state.add(window(1, "confirmation", number, 4, 360))
        state.add(window(0, "confirmation", number, 4, 300))
    ratio = state.ratio(1)
    assert ratio is not None
    assert ratio.estimate == pytest.approx(1.2)
    assert len(state.pairs(1)) == 5


def test_percentiles_are_those_of_all_windows_at_the_step():
    state = state_of([*scans(0, (100, 200, 300)), window(0, "race", 1, 4, 300, ms=10), window(0, "race", 2, 4, 300, ms=30)])
    assert state.percentile_ns(0, 0.99) == pytest.approx(30e6, rel=0.01)
    assert state.percentile_ns(0, 0.25) == pytest.approx(10e6, rel=0.01)
    assert state.judged(0).verdict == "satisfied"


def test_without_a_slo_mostly_failed_requests_still_are_no_throughput():
    state = state_of([window(0, "scan", 1, 1, 100, failed=600, reason="most requests failed: busy")] * 2, slo=None)
    assert state.entries[0].state == "unmet"
    assert state.entries[0].reason == "most requests failed: busy"


def test_one_that_joins_later_has_no_part_in_the_answer_until_it_is_compared():
    state = state_of([*scans(0, (100, 200, 300)), *scans(1, (100, 200, 400)), *raced((300, 400), 6)])
    state.close_round()
    state.open([7])
    assert state.left() == [1, 7]
    assert (state.leader, state.is_decided(0.03)) == (1, 1)
    for one in (*scans(7, (100, 200, 500)), window(7, "race", 7, 4, 500), window(1, "race", 7, 4, 401)):
        state.add(one)
    state.close_round()
    assert state.entries[7].is_pending
    assert state.is_decided(0.03) == 1, "one common round says nothing"
    for one in (window(7, "race", 8, 4, 501), window(1, "race", 8, 4, 400)):
        state.add(one)
    state.close_round()
    assert not state.entries[7].is_pending
    assert (state.leader, state.is_decided(0.03)) == (7, 7)
    assert (state.entries[1].state, state.entries[1].better) == ("worse", 7)
    assert max(state.levels(), key=state.levels().get) == 7


def test_the_error_is_divided_over_all_that_may_join():
    windows = [*scans(0, (100, 200, 300)), *scans(1, (100, 200, 300)), *raced((300, 300), 5)]
    few, many = (TuneState(range(2), LADDER, SLO, most=most) for most in (2, 64))
    for one in windows:
        few.add(one)
        many.add(one)
    few.close_round()
    many.close_round()
    assert few.standing.bounds[0] < many.standing.bounds[0]


def test_a_rate_that_a_configuration_does_not_deliver_takes_it_out():
    objective = objective_of("latency", 1000.0)
    state = TuneState(range(2), (0,), None, objective=objective)
    for candidate in range(2):
        state.add(window(candidate, "scan", 1, 0, 1000))
        assert state.entries[candidate].state == "racing"
    state.add(window(1, "race", 1, 0, 700, p99_ns=400_000_000))
    state.add(window(1, "race", 2, 0, 700, p99_ns=400_000_000))
    assert (state.entries[1].state, state.entries[1].reason) == (
        "unmet", "the rate is not delivered: 1,400 of 2,000 requests were answered within the windows",
    )  # fmt: skip
    behind = TuneState(range(1), (0,), None, objective=objective)
    behind.add(window(0, "scan", 1, 0, 700))
    behind.add(window(0, "scan", 1, 0, 700))
    assert behind.entries[0].state == "unmet"


def test_the_lower_p99_leads_whatever_the_throughput():
    state = TuneState(range(2), (0,), None, objective=objective_of("latency", 1000.0))
    for candidate, ms in enumerate((10, 5)):
        state.add(window(candidate, "scan", 1, 0, 1000, p99_ns=ms * 1_000_000))
    for number in range(1, 6):
        for candidate, ms in enumerate((10, 5)):
            wobble = 1 + 0.01 * ((number * (candidate + 3)) % 5)
            state.add(window(candidate, "race", number, 0, 1000, p99_ns=round(ms * 1_000_000 * wobble)))
    state.close_round()
    assert state.leader == 1
    assert state.entries[0].state == "worse"


def test_a_configuration_is_measured_where_it_is_within_all_limits():
    over = {"over": "the server used 3.00 CPUs, and 2 are the limit"}
    state = state_of([*scans(0, (100, 200, 300))[:2], window(0, "scan", 1, 4, 300, **over)], candidates=1, slo=None)
    assert LADDER[state.entries[0].step] == 2
    for number in (1, 2):
        state.add(window(0, "race", number, 2, 200, **over))
    assert LADDER[state.entries[0].step] == 1
    for number in (3, 4):
        state.add(window(0, "race", number, 1, 100, **over))
    assert state.entries[0].state == "unmet"
    assert state.entries[0].reason == over["over"]


def test_a_configuration_that_is_over_a_limit_at_every_load_is_out_with_the_reason():
    windows = [window(0, "scan", 1, 1, 100, over="9 GB of GPU memory were used, and 8GiB are the limit")] * 2
    assert state_of(windows, candidates=1, slo=None).entries[0].reason == windows[0].over


def test_pairs_that_leave_it_open_take_further_rounds_of_the_race():
    state = state_of(
        [*scans(0, (100, 200, 300)), *scans(1, (100, 200, 300)), *scans(2, (100, 200, 300)), *raced((300, 301, 301), 4)], candidates=3
    )
    state.close_round()
    best = state.leader
    share = state.bound(best) - 1
    state.entries[0].state = "worse"  # so that the leader is the one that is decided
    assert not state.needs_rounds(share), "there are no pairs yet"
    for number in range(1, 6):
        state.add(window(best, "confirmation", number, 4, 300 * (1 + 0.0001 * number)))
        state.add(window(0, "confirmation", number, 4, 300 * (1 + 0.0001 * (6 - number))))
    assert state.ratio(best).low < 1 < state.ratio(best).high < 1 + share / 2
    assert state.needs_rounds(share)
    assert not state.needs_rounds(3 * share), "the present one is to be kept"


def test_every_second_round_measures_the_better_half_and_the_present_one_by_the_rounds_before():
    rates = (300, 310, 320, 330, 340, 350)
    state = state_of([one for candidate, rate in enumerate(rates) for one in scans(candidate, (100, 200, rate))], candidates=6)
    assert state.in_round(1) == list(range(6))
    for one in raced(rates, 1):
        state.add(one)
    state.close_round(1)
    assert state.in_round(2) == state.better_half() == [0, 3, 4, 5]
    state.add(window(1, "race", 2, 4, 900))  # of the round under way
    assert state.in_round(2) == [0, 3, 4, 5]
    assert state.in_round(3) == list(range(6))
    state.open([8])
    assert state.in_round(4) == [0, 2, 3, 4, 5, 8], "one that joined is measured until it is compared"


def test_a_few_are_measured_in_every_round():
    state = state_of([one for candidate in range(4) for one in scans(candidate, (100, 200, 300 + candidate))], candidates=4)
    for one in raced((300, 301, 302, 303), 1):
        state.add(one)
    state.close_round(1)
    assert state.in_round(2) == [0, 1, 2, 3]


def test_a_configuration_whose_figure_is_not_known_is_out_with_that_reason():
    state = TuneState(range(1), (1,), None, objective=objective_of("cost", None))
    for one in (window(0, "scan", 1, 1, 100), *(window(0, "race", number, 1, 100) for number in (1, 2, 3))):
        state.add(one)
    assert (state.entries[0].state, state.entries[0].reason) == (
        "invalid", "the throughput per CPU in use is not known of its windows",
    )  # fmt: skip


def test_only_configurations_that_can_be_measured_are_compared_in_pairs():
    state = state_of([*scans(0, (100, 200, 300)), *scans(1, (100, 200, 400)), *raced((300, 400), 6)])
    state.close_round()
    assert state.entries[0].state == "worse"
    assert state.is_confirmable(1)
    assert not state.is_confirmable(0)
    for number in range(1, 30):
        state.add(Window(candidate=0, phase="confirmation", round=number, has_failed=True, reason="lost"))
    assert state.entries[0].state == "failed"
    assert not state.is_confirmable(1)
