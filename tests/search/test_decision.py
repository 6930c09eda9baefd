"""The decisions of the capacity search: the rates that it probes and for how long, and how it ends."""

import dataclasses
import functools
import math

import numpy as np
import pytest

from perfkit.result.search import LimitCount
from perfkit.search.decision import decide
from perfkit.search.estimate import estimate
from perfkit.search.probes import NextProbe, Probe, SearchEnd, SearchSettings

ALLOWED = 0.01
USUAL = 50_000  # requests in a probe that the decision does not lengthen
FAST, SLOW = {"p99": 0.002}, {"p99": 0.4}


def run(curve, *, start=10.0, seed=0, requests=USUAL, dispersion=1, outcome=lambda *_: {}, probe_length_s=None, **given):
    """Searches a curve that maps a rate to the shares beyond each limit, or to None for an overload.

    Requests exceed a limit in independent groups of `dispersion`; `outcome` gives other fields of a probe.
    """
    settings, probes = SearchSettings(start_per_s=start, **given), list[Probe]()
    random = np.random.default_rng(seed)
    while isinstance(step := decide(probes, settings, probe_length_s), NextProbe):
        probes.append(measured(step, curve(step.rate_per_s), random, requests, dispersion, **outcome(step, len(probes))))
        assert len(probes) <= 100
    return step, probes


def measured(step, shares, random, requests=USUAL, dispersion=1, **fields):
    count = max(requests, step.requests)
    limits = {
        name: LimitCount(dispersion * int(random.binomial(count // dispersion, share)), count, ALLOWED, float(dispersion))
        for name, share in (shares or {}).items()
    }
    known = {"is_overloaded": shares is None, "has_enough_samples": True, "took_s": 10.0}
    return Probe(step.rate_per_s, step.stage, limits, **{**known, **fields})


def queue(rate, *, capacity=80.0, saturation=100.0, name="p99"):
    """The share of M/M/1's response times beyond the limit that is the p99 at the capacity."""
    return None if rate >= saturation else {name: ALLOWED ** ((saturation - rate) / (saturation - capacity))}


def with_unknown(curve, share, **given):
    """Searches a curve of the known times of requests of which a share have none; the unknown times are counted as beyond the limit."""
    settings, probes, random = SearchSettings(start_per_s=10.0, **given), list[Probe](), np.random.default_rng(0)
    while isinstance(step := decide(probes, settings), NextProbe):
        one = measured(step, curve(step.rate_per_s), random)
        limits = {}
        for name, known in one.limits.items():
            unknown = int(random.binomial(known.count, share))
            beyond = round(known.beyond * (1 - unknown / known.count)) + unknown
            limits[name] = dataclasses.replace(known, beyond=beyond, unknown=unknown)
        probes.append(dataclasses.replace(one, limits=limits))
    return step, probes


def test_the_interval_holds_the_capacity_with_unknown_times_within_the_limit_and_beyond_it():
    share = 0.0008
    found, _ = with_unknown(queue, share)
    known_share = (ALLOWED - share) / (1 - share)
    with_all_beyond = 100 - 20 * math.log(known_share) / math.log(ALLOWED)
    assert found.reason == "precision"
    assert found.estimate.low_per_s <= with_all_beyond <= found.estimate.capacity_per_s * 1.02
    assert found.estimate.high_per_s >= 80


@pytest.mark.parametrize(
    ("curve", "share", "reason"),
    [
        (queue, 0.006, "unknown_times"),  # 76 with all beyond, 80 with all within
        (queue, 0.02, "unknown_times"),  # no rate with all beyond
        (lambda rate: FAST if rate < 80 else SLOW, 0.02, "unknown_times"),
        (lambda rate: FAST if rate < 80 else SLOW, 0.002, "cliff"),
        (lambda _: {"p99": 1.0}, 0.02, "never_met"),
    ],
)
def test_an_answer_that_unknown_times_decide_is_undecided(curve, share, reason):
    assert with_unknown(curve, share)[0].reason == reason


def takes(per_s):
    """A probe takes the time of its requests, at a usual length of ten seconds."""
    return lambda step: max(10.0, step.requests / per_s)


def test_the_interval_covers_the_capacity_in_nine_of_ten_searches():
    random = np.random.default_rng(5)
    found = [run(queue, start=80 * 2 ** -random.uniform(0, 4), seed=seed, requests=3_000)[0] for seed in range(8)]
    precise = [stop for stop in found if stop.reason == "precision"]
    assert len(precise) >= 7
    missed = sum(not stop.estimate.low_per_s <= 80 <= stop.estimate.high_per_s for stop in precise)
    # at 90 % coverage P[Bin(8, 0.1) > 3] is 0.5 %; the seeds are fixed, so that chance has no part in it
    assert missed <= 3


def test_the_decision_is_a_function_of_the_probes():
    _, probes = run(queue)
    settings = SearchSettings(start_per_s=10.0)
    for count in range(len(probes)):
        step = decide(probes[:count], settings)
        assert (step.rate_per_s, step.stage) == (probes[count].rate_per_s, probes[count].stage)


def test_the_search_doubles_then_bisects_twice_and_then_stays_near_the_estimate():
    stop, probes = run(queue)
    assert [probe.rate_per_s for probe in probes[:4]] == [10, 20, 40, 80]
    stages = [probe.stage for probe in probes]
    assert stages == sorted(stages, key=["bracket", "bisect", "refine", "confirm"].index)
    assert stages.count("bisect") == 2
    assert all(70 < probe.rate_per_s < 90 for probe in probes if probe.stage in ("refine", "confirm"))
    assert (stop.reason, stop.confirmation) == ("precision", "passed")
    assert stop.estimate.low_per_s == pytest.approx(probes[-1].rate_per_s)
    assert stop.estimate.low_per_s < 80 < stop.estimate.high_per_s
    assert stop.estimate.limit == "p99"


def test_a_first_rate_above_the_capacity_is_halved():
    stop, probes = run(queue, start=900.0)
    assert [probe.rate_per_s for probe in probes[:4]] == [900, 450, 225, 112.5]
    assert stop.estimate.capacity_per_s == pytest.approx(80, rel=0.02)


def test_the_limit_that_is_missed_first_decides():
    def both(rate):
        first, second = queue(rate, capacity=90.0), queue(rate, capacity=70.0, name="p50")
        return first and second and {**first, **second}

    stop, _ = run(both)
    assert stop.estimate.capacity_per_s == pytest.approx(70, rel=0.02)
    assert stop.estimate.limit == "p50"


# probes that grow


def test_probes_near_the_capacity_grow_by_the_dispersion_and_at_most_eightfold():
    stop, probes = run(queue, requests=1_000, dispersion=40)
    assert (stop.reason, stop.confirmation) == ("precision", "passed")
    assert stop.estimate.low_per_s < 80 < stop.estimate.high_per_s
    assert {probe.count for probe in probes if probe.stage == "bracket"} <= {0, 1_000}
    assert {probe.count for probe in probes if probe.stage == "bisect"} <= {0, 4 * 662}
    longest = 1_000
    for probe in probes:
        assert probe.count <= 8 * longest
        longest = max(longest, probe.count)
    # a p99 needs 662 independent requests, and the search 16 independent ones beyond the limit
    refining = [probe for probe in probes if probe.stage == "refine"]
    assert max(probe.count for probe in refining) > 10 * 1_000
    assert stop.estimate.fit.effective_beyond >= 16
    assert sum(probe.count for probe in refining) >= 16 * 40 / ALLOWED


def test_probes_that_are_long_enough_do_not_grow():
    _, probes = run(queue, requests=USUAL)
    assert {probe.count for probe in probes if probe.stage != "confirm"} <= {0, USUAL}


@pytest.mark.parametrize("seed", [1, 4, 5])
def test_a_growing_search_ends_as_too_short_with_the_time_that_it_would_take(seed):
    length = takes(100.0)
    grouped = functools.partial(
        run, queue, requests=1_000, dispersion=200, seed=seed, max_probes=60,
        probe_length_s=length, outcome=lambda step, _: {"took_s": length(step)},
    )  # fmt: skip
    whole, probes = grouped()
    took_s = sum(probe.took_s for probe in probes)
    assert whole.reason == "precision"
    stop, probes = grouped(budget_s=took_s / 3)
    assert (stop.reason, stop.confirmation) == ("too_short", None)
    assert sum(probe.took_s for probe in probes) <= took_s / 3
    # the first fits have few requests beyond the limit to tell it from
    assert took_s / 3 < stop.needed_s < 3 * took_s


def test_a_search_that_can_no_longer_succeed_does_not_use_up_its_budget():
    # groups of 100 leave about half of the independent requests beyond the limit that are needed, after seven probes of 200 s
    counted = {rate: LimitCount(round(20_000 * queue(rate)["p99"]), 20_000, ALLOWED, 100.0) for rate in (75, 77, 79, 81, 83, 85, 80)}
    probes = [Probe(40.0, "bracket", {"p99": LimitCount(0, 1_000, ALLOWED)}), Probe(160.0, "bracket", {}, is_overloaded=True)]
    probes += [Probe(rate, "refine", {"p99": one}, took_s=200.0) for rate, one in counted.items()]
    enough = decide(probes, SearchSettings(start_per_s=10.0, budget_s=4_200.0))
    assert isinstance(enough, NextProbe)
    stop = decide(probes, SearchSettings(start_per_s=10.0, budget_s=2_000.0))
    assert isinstance(stop, SearchEnd)
    assert (stop.reason, fitted_points(probes)) == ("too_short", 7)
    assert (stop.needed_s or 0) > 2_000  # though one more probe would have had room


def test_a_wider_precision_is_only_advised_where_it_needs_less_time():
    def stop_of(dispersion, precision):
        counted = {
            rate: LimitCount(round(20_000 * queue(rate)["p99"]), 20_000, ALLOWED, dispersion) for rate in (75, 77, 79, 81, 83, 85, 80)
        }
        probes = [Probe(40.0, "bracket", {"p99": LimitCount(0, 1_000, ALLOWED)}), Probe(160.0, "bracket", {}, is_overloaded=True)]
        probes += [Probe(rate, "refine", {"p99": one}, took_s=200.0) for rate, one in counted.items()]
        return decide(probes, SearchSettings(start_per_s=10.0, budget_s=1_500.0, precision=precision))

    wide, narrow = stop_of(100.0, 0.05), stop_of(100.0, 0.005)
    # at 5 % the 16 independent requests beyond the limit take most of the time, and every precision needs these
    assert (wide.reason, wide.needed_if_wider_s) == ("too_short", None)
    assert narrow.needed_if_wider_s < 0.5 * narrow.needed_s


# overloads and drift


def overloaded_probes(ceiling_per_s):
    """Exact counts of the queue up to its capacity, and an overload at 90/s."""
    rates, probes = [40.0, 80.0, 160.0, 74.0, 76.0, 78.0, 79.0], list[Probe]()
    for rate in rates:
        shares = queue(rate)
        limits = {"p99": LimitCount(round(5_000 * shares["p99"]), 5_000, ALLOWED)} if shares else {}
        probes.append(Probe(rate, "bracket" if len(probes) < 3 else "refine", limits, is_overloaded=shares is None))
    return [*probes, Probe(90.0, "refine", {}, is_overloaded=True, ceiling_per_s=ceiling_per_s)]


def fit_of(probes):
    return estimate(probes, SearchSettings(start_per_s=10.0)).fit


def fitted_points(probes):
    return fit_of(probes).points


def bounds(found):
    return found.low_per_s, found.capacity_per_s, found.high_per_s


def test_the_capacity_is_at_most_what_an_overloaded_target_answered():
    settings = SearchSettings(start_per_s=10.0)
    low, capacity, high = bounds(estimate(overloaded_probes(math.inf), settings))
    assert low < 79 < capacity < 81 < high
    above, below = (capacity + high) / 2, (low + capacity) / 2
    assert bounds(estimate(overloaded_probes(above), settings)) == (low, capacity, above)
    assert bounds(estimate(overloaded_probes(below), settings)) == (low, below, below)


@pytest.mark.parametrize(("is_steady", "is_used"), [(True, True), (False, False)])
def test_a_missed_probe_whose_times_drifted_is_a_lower_bound(is_steady, is_used):
    settings, probes = SearchSettings(start_per_s=10.0), overloaded_probes(math.inf)
    # fewer requests beyond the limit than the others suggest at 84/s: a window that drifted shows too few, and no more than that
    drifted = Probe(84.0, "refine", {"p99": LimitCount(60, 5_000, ALLOWED)}, is_steady=is_steady)
    assert drifted.margin > 0
    (_, without, _), (_, found, _) = bounds(estimate(probes, settings)), bounds(estimate([*probes, drifted], settings))
    assert (found > 1.002 * without) == is_used
    assert (fitted_points([*probes, drifted]) == fitted_points(probes) + 1) == is_used


def test_a_drifted_probe_that_met_the_slo_counts_in_full():
    probes = overloaded_probes(math.inf)
    drifted = Probe(77.0, "refine", {"p99": LimitCount(20, 5_000, ALLOWED)}, is_steady=False)
    assert fitted_points([*probes, drifted]) == fitted_points(probes) + 1


# cliffs and contradictions


def test_a_cliff_is_bisected_between_rates_that_meet_and_miss_the_slo():
    stop, _ = run(lambda rate: FAST if rate < 73 else None)
    assert stop.reason == "cliff"
    assert stop.estimate.low_per_s < 73 <= stop.estimate.high_per_s
    assert stop.estimate.high_per_s / stop.estimate.low_per_s <= 1.05 / 0.95 + 1e-9
    assert stop.estimate.capacity_per_s == stop.estimate.low_per_s
    assert stop.confirmation == "passed"


def test_a_cliff_between_times_without_an_overload_is_shown_by_long_probes_on_both_sides():
    stop, probes = run(lambda rate: FAST if rate < 73 else SLOW, requests=300)
    assert stop.reason == "cliff"
    low, high = stop.estimate.low_per_s, stop.estimate.high_per_s
    assert low < 73 <= high
    for rate in (low, high):
        assert sum(probe.count for probe in probes if probe.rate_per_s == rate and probe.stage != "confirm") >= 662


def test_long_probes_override_short_ones_that_met_the_slo_above_the_capacity():
    # a queue that starts empty: windows of 300 requests meet the SLO up to 160/s, twice the capacity
    settings, probes, random = SearchSettings(start_per_s=80.0, max_probes=30), list[Probe](), np.random.default_rng(1)
    while isinstance(step := decide(probes, settings), NextProbe):
        is_short = max(step.requests, 300) < 2_000 and step.rate_per_s <= 160
        share = 0.0001 if is_short else min(ALLOWED ** ((100 - step.rate_per_s) / 20), 1.0)
        probes.append(measured(step, {"p99": share}, random, requests=300))
    assert [(probe.rate_per_s, probe.is_met) for probe in probes[:3]] == [(80, True), (160, True), (320, False)]
    assert step.reason == "precision"
    assert step.estimate.capacity_per_s == pytest.approx(80, rel=0.05)


def test_a_group_of_slow_requests_in_a_short_window_does_not_pass_as_a_cliff():
    # hardly any request is slow up to 60/s, but in one short window at 40/s half of them were, together
    settings, probes, random = SearchSettings(start_per_s=10.0, max_rate_per_s=60.0, max_probes=60), list[Probe](), np.random.default_rng(0)
    while isinstance(step := decide(probes, settings), NextProbe):
        group = {"limits": {"p99": LimitCount(150, 300, ALLOWED, 150.0)}} if step.rate_per_s == 40 and len(probes) == 2 else {}
        probes.append(dataclasses.replace(measured(step, {"p99": 0.0001}, random, requests=300, took_s=10.0), **group))
    assert [probe.rate_per_s for probe in probes[:3]] == [10, 20, 40]
    assert not probes[2].is_met
    assert step.reason == "non_monotone"


def test_times_that_do_not_rise_with_the_rate_give_no_capacity():
    random = np.random.default_rng(0)

    def moody(rate):
        return FAST if rate <= 40 or (rate < 160 and random.random() < 0.5) else {"p99": 0.03}

    stop, probes = run(moody, max_probes=60)
    assert stop.reason == "non_monotone"
    missed = [probe.rate_per_s for probe in probes if not probe.is_met]
    assert stop.estimate.low_per_s == max(probe.rate_per_s for probe in probes if probe.rate_per_s < min(missed))
    assert stop.estimate.high_per_s == min(rate for rate in missed if rate > max(probe.rate_per_s for probe in probes if probe.is_met))


# no capacity within the range


def test_an_slo_that_even_the_fastest_requests_miss_is_never_met_after_a_second_probe_at_twice_the_rate():
    stop, probes = run(lambda _: {"p99": 1.0})
    assert (stop.reason, stop.estimate.capacity_per_s) == ("never_met", None)
    assert [probe.rate_per_s for probe in probes] == [10, 20]
    stop, probes = run(lambda _: {"p99": 1.0}, max_rate_per_s=10.0)
    assert (stop.reason, [probe.rate_per_s for probe in probes]) == ("never_met", [10, 5])


def test_batches_that_fill_faster_at_twice_the_rate_can_meet_an_slo_that_every_request_missed():
    stop, probes = run(lambda rate: {"p99": 1.0} if rate < 15 else queue(rate))
    assert [probe.rate_per_s for probe in probes[:3]] == [10, 20, 40]
    assert stop.reason == "precision"
    assert stop.estimate.low_per_s < 80 < stop.estimate.high_per_s
    assert stop.missed_below_per_s == 10


def test_a_queue_that_never_empties_is_not_taken_for_a_slow_server():
    # just below saturation every request of a window can be slow; at half the rate none is
    stop, probes = run(lambda rate: {"p99": 1.0} if 95 < rate < 100 else queue(rate), start=99.0)
    assert [probe.rate_per_s for probe in probes[:3]] == [99, 198, 49.5]
    assert stop.reason == "precision"
    assert stop.estimate.low_per_s < 80 < stop.estimate.high_per_s


def test_a_slow_server_between_saturation_and_half_of_it_is_found_by_one_probe_more():
    stop, probes = run(lambda rate: {"p99": 1.0} if rate < 100 else None, start=60.0)
    assert (stop.reason, stop.estimate.capacity_per_s) == ("never_met", None)
    assert [probe.rate_per_s for probe in probes] == [60, 120, 30]


def test_an_slo_that_every_rate_misses_is_never_met():
    stop, probes = run(lambda rate: {"p99": 0.02} if rate < 100 else None)
    assert stop.reason == "never_met"
    assert stop.estimate.capacity_per_s is None
    assert len(probes) < 12
    stop, probes = run(lambda rate: {"p99": 0.02 + rate / 100}, start=40.0, min_rate_per_s=10.0, max_rate_per_s=50.0)
    assert stop.reason == "never_met"
    assert min(probe.rate_per_s for probe in probes) == 10


def test_an_slo_that_the_highest_rate_meets_is_never_missed():
    stop, probes = run(queue, max_rate_per_s=50.0)
    assert (stop.reason, stop.estimate.capacity_per_s, stop.estimate.high_per_s) == ("never_missed", 50.0, None)
    assert [probe.rate_per_s for probe in probes] == [10, 20, 40, 50]


def test_an_answer_that_rests_on_one_rate_needs_many_samples_there():
    at_top = Probe(50.0, "bracket", {"p99": LimitCount(0, 1_000, ALLOWED)}, has_enough_samples=True)
    step = decide([at_top], SearchSettings(start_per_s=50.0, max_rate_per_s=50.0))
    assert step == NextProbe(50.0, "bracket", 20 * 662)
    unclear = Probe(50.0, "bracket", {"p99": LimitCount(90, 13_240, ALLOWED, 30.0)}, has_enough_samples=False)
    step = decide([at_top, unclear], SearchSettings(start_per_s=50.0, max_rate_per_s=50.0))
    assert step == NextProbe(50.0, "bracket", 4 * 13_240)
    missed = Probe(10.0, "bracket", {"p99": LimitCount(50, 2_000, ALLOWED)})
    step = decide([missed], SearchSettings(start_per_s=10.0, min_rate_per_s=10.0, max_rate_per_s=10.0))
    assert step == NextProbe(10.0, "bracket", 20 * 662)


def test_a_short_probe_that_misses_by_a_few_requests_is_repeated_and_overruled():
    probes = [Probe(10.0, "bracket", {"p99": LimitCount(3, 200, ALLOWED)})]
    settings = SearchSettings(start_per_s=10.0)
    step = decide(probes, settings)
    assert step == NextProbe(10.0, "bracket", 4 * 662)
    probes.append(Probe(10.0, "bracket", {"p99": LimitCount(5, 2_648, ALLOWED)}))
    assert decide(probes, settings) == NextProbe(20.0, "bracket")


def test_a_search_that_began_near_the_capacity_measures_the_share_at_a_low_rate():
    _, probes = run(queue, start=70.0)
    assert min(probe.rate_per_s for probe in probes) < 0.72 * 80


def test_a_highest_rate_that_the_generator_did_not_reach_is_not_called_met():
    stop, _ = run(queue, max_rate_per_s=50.0, outcome=lambda step, _: {"is_valid": step.rate_per_s < 50})
    assert (stop.reason, stop.estimate.high_per_s) == ("generator", 50)
    assert 40 <= stop.estimate.capacity_per_s < 50


def test_a_server_that_waits_for_batches_also_misses_the_slo_at_low_rates():
    def waiting(rate):
        found = queue(rate)
        return found and {"p99": max(found["p99"], min(ALLOWED * 30 / rate, 1.0) if rate < 30 else 0.0)}

    stop, _ = run(waiting, start=16.0)
    assert stop.reason == "precision"
    assert stop.estimate.capacity_per_s == pytest.approx(80, rel=0.02)
    assert stop.missed_below_per_s == 16


# invalid probes


def test_rates_that_the_generator_cannot_reach_bound_the_search():
    stop, _ = run(lambda _: FAST, outcome=lambda step, _: {"is_valid": step.rate_per_s < 100})
    assert stop.reason == "generator"
    assert 80 < stop.estimate.low_per_s < 100
    for max_probes, count in ((16, 5), (3, 3)):
        stop, probes = run(lambda _: SLOW, outcome=lambda *_: {"is_valid": False}, max_probes=max_probes)
        assert (stop.reason, stop.estimate.capacity_per_s, len(probes)) == ("generator", None, count)


def test_an_invalid_probe_is_repeated_and_bounds_nothing_if_the_second_is_valid():
    stop, probes = run(queue, seed=1, max_probes=20, outcome=lambda _, number: {"is_valid": number not in (0, 3, 7)})
    assert [probe.rate_per_s for probe in probes[:5]] == [10, 10, 20, 40, 40]
    assert stop.reason == "precision"
    assert stop.estimate.capacity_per_s == pytest.approx(80, rel=0.02)


def test_an_invalid_probe_that_had_grown_is_repeated_at_its_length():
    _, probes = run(queue, requests=1_000, dispersion=40)
    index, grown = max(enumerate(probes), key=lambda item: item[1].count if item[1].stage == "refine" else 0)
    assert grown.count > 10_000
    step = decide([*probes[:index], dataclasses.replace(grown, is_valid=False)], SearchSettings(start_per_s=10.0))
    assert step == NextProbe(grown.rate_per_s, "refine", grown.count)


def test_a_rate_at_which_the_target_was_cold_is_probed_again_and_bounds_nothing():
    cold = {"is_valid": False, "is_cold": True}
    stop, probes = run(queue, seed=1, max_probes=20, outcome=lambda _, number: cold if number in (0, 1, 2, 5) else {})
    assert [probe.rate_per_s for probe in probes[:7]] == [10, 10, 10, 10, 20, 40, 40]
    assert stop.reason == "precision"
    assert stop.estimate.capacity_per_s == pytest.approx(80, rel=0.02)


@pytest.mark.parametrize(("is_cold", "reason", "high_per_s"), [(True, "cold", None), (False, "generator", 100)])
def test_a_target_that_stays_cold_ends_a_search_without_an_upper_bound(is_cold, reason, high_per_s):
    def outcome(step, _):
        return {} if step.rate_per_s < 100 else {"is_valid": False, "is_cold": is_cold}

    stop, _ = run(lambda _: FAST, start=50.0, max_rate_per_s=100.0, outcome=outcome)
    assert (stop.reason, stop.estimate.high_per_s) == (reason, high_per_s)
    assert stop.estimate.capacity_per_s == 50 if is_cold else stop.estimate.capacity_per_s > 80


@pytest.mark.parametrize(("max_probes", "count"), [(16, 5), (3, 3)])
def test_a_search_whose_target_was_never_warm_ends_as_cold(max_probes, count):
    stop, probes = run(lambda _: FAST, outcome=lambda *_: {"is_valid": False, "is_cold": True}, max_probes=max_probes)
    assert (stop.reason, stop.estimate.capacity_per_s) == ("cold", None)
    assert [probe.rate_per_s for probe in probes] == [10] * count


# budgets and confirmations


def test_the_search_ends_at_max_probes_and_at_its_budget():
    stop, probes = run(queue, requests=700, dispersion=7, max_probes=9)
    assert (stop.reason, len(probes)) == ("max_probes", 9)
    assert stop.estimate.low_per_s < 80
    stop, probes = run(queue, budget_s=55.0)
    assert (stop.reason, len(probes), stop.needed_s) == ("budget", 5, None)  # while it still looks for the range
    stop, probes = run(queue, max_probes=3)
    assert (stop.estimate.capacity_per_s, stop.estimate.high_per_s) == (40, None)


def test_no_probe_starts_that_would_exceed_the_budget():
    stop, probes = run(queue, budget_s=200.0, probe_length_s=lambda step: 190.0 if step.stage == "confirm" else 10.0)
    next_step = decide(probes, SearchSettings(start_per_s=10.0, budget_s=200.0))
    assert isinstance(next_step, NextProbe)  # as long as the others it would have had room
    assert (stop.reason, stop.confirmation, probes[-1].stage) == ("too_short", None, "refine")  # precise, but not confirmed
    assert stop.needed_s == sum(probe.took_s for probe in probes) + 190.0


def search_with_missed_confirmations(limited_by=None):
    """Searches a queue whose confirming probes all miss the SLO; a limit leaves room for the first of them."""
    settings, probes, random = SearchSettings(start_per_s=10.0, max_probes=40), list[Probe](), np.random.default_rng(3)
    while isinstance(step := decide(probes, settings), NextProbe):
        if step.stage == "confirm" and limited_by == "max_probes":
            settings = dataclasses.replace(settings, max_probes=min(settings.max_probes, len(probes) + 1))
        elif step.stage == "confirm" and limited_by == "budget":
            settings = dataclasses.replace(settings, budget_s=min(settings.budget_s, 10.0 * (len(probes) + 1)))
        shares = queue(step.rate_per_s)
        if step.stage == "confirm":  # missed by a little
            missed = LimitCount(round(ALLOWED * step.requests) + 1, step.requests, ALLOWED)
            probes.append(Probe(step.rate_per_s, step.stage, {"p99": missed}, took_s=10.0))
        else:
            probes.append(measured(step, shares, random))
    return step, probes


@pytest.mark.parametrize(("limit", "reason"), [("max_probes", "max_probes"), ("budget", "too_short")])
def test_a_precise_estimate_that_the_last_confirming_probe_missed_is_not_the_result(limit, reason):
    stop, probes = search_with_missed_confirmations(limit)
    assert probes[-1].stage == "confirm"
    assert stop.estimate.fit.half_width <= 0.05
    assert (stop.reason, stop.confirmation) == (reason, "missed")


def test_a_lower_end_that_three_confirming_probes_miss_is_not_confirmed():
    stop, probes = search_with_missed_confirmations()
    assert (stop.reason, stop.confirmation) == ("not_confirmed", "missed")
    assert sum(probe.stage == "confirm" for probe in probes) == 3


def test_a_confirming_probe_that_does_not_show_it_by_itself_is_counted_in_the_interval():
    settings, probes, random = SearchSettings(start_per_s=10.0, max_probes=40), list[Probe](), np.random.default_rng(3)
    while (step := decide(probes, settings)).stage != "confirm":
        probes.append(measured(step, queue(step.rate_per_s), random))
    before = estimate(probes, settings)
    near_the_limit = LimitCount(math.floor(0.95 * ALLOWED * step.requests), step.requests, ALLOWED)
    shown, not_shown = (
        Probe(step.rate_per_s, "confirm", {"p99": near_the_limit}, has_enough_samples=has_enough) for has_enough in (True, False)
    )
    assert decide([*probes, shown], settings).estimate == before
    counted = estimate([*probes, not_shown], settings)
    assert counted.low_per_s is not None
    assert before.low_per_s is not None
    assert counted.low_per_s < before.low_per_s


@pytest.mark.parametrize(
    ("is_steady", "has_enough_samples", "confirmation"),
    [(True, True, "passed"), (True, False, "too_few_samples"), (False, True, "not_steady"), (False, False, "not_steady")],
)
def test_the_confirmation_names_what_the_confirming_probe_lacks(is_steady, has_enough_samples, confirmation):
    def lacking(step, _):
        return {"is_steady": is_steady, "has_enough_samples": has_enough_samples} if step.stage == "confirm" else {}

    stop, _ = run(queue, seed=3, outcome=lacking)
    assert (stop.reason, stop.confirmation) == ("precision", confirmation)


@pytest.mark.parametrize("dispersion", [1.0, 10.0])
def test_a_confirming_probe_has_the_requests_that_the_percentile_needs(dispersion):
    _, probes = run(queue, requests=20_000, dispersion=round(dispersion), seed=4)
    first = next(index for index, probe in enumerate(probes) if probe.stage == "confirm")
    step = decide(probes[:first], SearchSettings(start_per_s=10.0))
    assert step.requests == pytest.approx(662 * fit_of(probes[:first]).dispersion, rel=0.01)
