"""The decisions of the capacity search: the rates that it probes, and how it ends."""

import dataclasses
import functools
import math

import numpy as np
import pytest

from benchmarks.slo_search_simulation import Queue, figures, measure, search, simulate_noise
from perfkit.search.decision import NextProbe, Probe, SearchSettings, decide

QUIET = 0.02


def run(curve, *, start=10.0, seed=0, outcome=lambda *_: {}, probe_length_s=None, **given):
    """Searches a curve that maps a rate to margins, or to None for an overload; `outcome` gives other fields of a probe."""
    settings, probes = SearchSettings(start_per_s=start, **given), list[Probe]()
    random = np.random.default_rng(seed)
    while isinstance(step := decide(probes, settings, probe_length_s), NextProbe):
        found = curve(step.rate_per_s, random)
        fields = {"is_overloaded": found is None, "has_enough_samples": True, "took_s": 10.0, **outcome(step, len(probes))}
        probes.append(Probe(step.rate_per_s, step.stage, found or {}, **fields))
        assert len(probes) <= 100
    return step, probes


def queue(rate, random, *, capacity=80.0, saturation=100.0, noise=QUIET, name="p99"):
    if rate >= saturation:
        return None
    return {name: math.log((saturation - capacity) / (saturation - rate)) + random.normal() * noise}


def test_the_search_keeps_its_error_bounds_over_500_curves_with_ten_per_cent_noise():
    found = figures([simulate_noise(0.1, seed) for seed in range(500)])
    assert found.probes <= 12
    assert found.errors <= 0.02
    assert found.coverage >= 0.88
    assert found.above <= 0.07


@pytest.mark.parametrize(("kind", "p99_s"), [("M/M/1", math.log(100) / 0.2), ("M/D/1", 11.356)])
def test_the_interval_covers_the_true_capacity_of_simulated_queues(kind, p99_s):
    # the long form is benchmarks/slo_search_simulation.py; these seeds are fixed, so that chance has no part in it
    probe = functools.partial(measure, Queue(kind, kind, 0.8, p99_s), requests=12_000)
    found = figures([search(probe, 0.8, seed) for seed in range(20)])
    assert found.coverage >= 0.75
    assert found.probes <= 14
    assert found.errors <= 0.1


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
    assert stop.estimate.capacity_per_s == pytest.approx(80, rel=0.05)


def test_the_limit_that_is_missed_first_decides():
    def both(rate, random):
        first, second = queue(rate, random, capacity=90.0), queue(rate, random, capacity=70.0, name="p50")
        return first and second and {**first, **second}

    stop, _ = run(both)
    assert stop.estimate.capacity_per_s == pytest.approx(70, rel=0.05)
    assert stop.estimate.limit == "p50"


def test_a_cliff_is_bisected_between_rates_that_meet_and_miss_the_slo():
    stop, _ = run(lambda rate, random: {"p99": -1.5 + 0.02 * random.normal()} if rate < 73 else None)
    assert stop.reason == "cliff"
    assert stop.estimate.low_per_s < 73 <= stop.estimate.high_per_s
    assert stop.estimate.high_per_s / stop.estimate.low_per_s <= 1.05 / 0.95 + 1e-9
    assert stop.estimate.capacity_per_s == stop.estimate.low_per_s
    assert stop.confirmation == "passed"


def test_times_that_do_not_rise_with_the_rate_give_no_capacity():
    def moody(rate, random):
        return {"p99": -1.0 if rate <= 40 else 1.0 if rate >= 160 else float(random.normal())}

    stop, probes = run(moody, seed=0, max_probes=60)
    assert stop.reason == "non_monotone"
    missed = [probe.rate_per_s for probe in probes if not probe.is_met]
    assert stop.estimate.low_per_s == max(probe.rate_per_s for probe in probes if probe.rate_per_s < min(missed))
    assert stop.estimate.high_per_s == min(rate for rate in missed if rate > max(probe.rate_per_s for probe in probes if probe.is_met))


def test_an_slo_that_every_rate_misses_is_never_met():
    stop, probes = run(lambda rate, _: {"p99": 0.4} if rate < 100 else None)
    assert stop.reason == "never_met"
    assert stop.estimate.capacity_per_s is None
    assert len(probes) < 12
    stop, probes = run(lambda rate, _: {"p99": 0.4 + rate / 50}, start=40.0, min_rate_per_s=10.0, max_rate_per_s=50.0)
    assert stop.reason == "never_met"
    assert min(probe.rate_per_s for probe in probes) == 10


def test_an_slo_that_the_highest_rate_meets_is_never_missed():
    stop, probes = run(queue, max_rate_per_s=50.0)
    assert (stop.reason, stop.estimate.capacity_per_s, stop.estimate.high_per_s) == ("never_missed", 50.0, None)
    assert [probe.rate_per_s for probe in probes] == [10, 20, 40, 50]


def test_a_server_that_waits_for_batches_also_misses_the_slo_at_low_rates():
    def waiting(rate, random):
        found = queue(rate, random)
        return found and {"p99": max(found["p99"], math.log(30 / rate))}

    stop, _ = run(waiting, start=16.0)
    assert stop.reason == "precision"
    assert stop.estimate.capacity_per_s == pytest.approx(80, rel=0.05)
    assert stop.missed_below_per_s == 16


def test_rates_that_the_generator_cannot_reach_bound_the_search():
    stop, _ = run(lambda *_: {"p99": -1.0}, outcome=lambda step, _: {"is_valid": step.rate_per_s < 100})
    assert stop.reason == "generator"
    assert 80 < (stop.estimate.low_per_s or 0) < 100
    for max_probes, count in ((16, 5), (3, 3)):
        stop, probes = run(lambda *_: {"p99": 3.0}, outcome=lambda *_: {"is_valid": False}, max_probes=max_probes)
        assert (stop.reason, stop.estimate.capacity_per_s, len(probes)) == ("generator", None, count)


def test_an_invalid_probe_is_repeated_and_bounds_nothing_if_the_second_is_valid():
    stop, probes = run(queue, seed=1, max_probes=20, outcome=lambda _, number: {"is_valid": number not in (0, 3, 7)})
    assert [probe.rate_per_s for probe in probes[:5]] == [10, 10, 20, 40, 40]
    assert stop.reason == "precision"
    assert stop.estimate.capacity_per_s == pytest.approx(80, rel=0.05)


def test_the_search_ends_at_max_probes_and_at_its_budget():
    stop, probes = run(functools.partial(queue, noise=0.4), max_probes=9)
    assert (stop.reason, len(probes)) == ("max_probes", 9)
    assert stop.estimate.low_per_s < 80 < stop.estimate.high_per_s
    stop, probes = run(functools.partial(queue, noise=0.4), budget_s=75.0)
    assert (stop.reason, len(probes)) == ("budget", 7)
    stop, probes = run(queue, max_probes=3)
    assert (stop.estimate.capacity_per_s, stop.estimate.high_per_s) == (40, None)


def test_no_probe_starts_that_would_exceed_the_budget():
    stop, probes = run(queue, budget_s=200.0, probe_length_s=lambda step: 190.0 if step.stage == "confirm" else 10.0)
    next_step = decide(probes, SearchSettings(start_per_s=10.0, budget_s=200.0))
    assert isinstance(next_step, NextProbe)  # as long as the others it would have had room
    assert (stop.reason, stop.confirmation, probes[-1].stage) == ("precision", None, "refine")


def search_with_missed_confirmations(limited_by=None):
    """Searches a noisy queue whose confirming probes all miss the SLO; a limit leaves room for the first of them."""
    settings, probes, random = SearchSettings(start_per_s=10.0, max_probes=40), list[Probe](), np.random.default_rng(3)
    while isinstance(step := decide(probes, settings), NextProbe):
        if step.stage == "confirm" and limited_by == "max_probes":
            settings = dataclasses.replace(settings, max_probes=min(settings.max_probes, len(probes) + 1))
        elif step.stage == "confirm" and limited_by == "budget":
            settings = dataclasses.replace(settings, budget_s=min(settings.budget_s, 10.0 * (len(probes) + 1)))
        margins = {"p99": 0.001} if step.stage == "confirm" else queue(step.rate_per_s, random, noise=0.05)
        probes.append(Probe(step.rate_per_s, step.stage, margins or {}, is_overloaded=margins is None, took_s=10.0))
    return step, probes


@pytest.mark.parametrize("limit", ["max_probes", "budget"])
def test_a_precise_estimate_that_the_last_confirming_probe_missed_is_not_the_result(limit):
    stop, probes = search_with_missed_confirmations(limit)
    assert probes[-1].stage == "confirm"
    assert stop.estimate.fit.is_within(0.05)
    assert (stop.reason, stop.confirmation) == (limit, "missed")


def test_a_lower_end_that_three_confirming_probes_miss_is_not_confirmed():
    stop, _ = search_with_missed_confirmations()
    assert (stop.reason, stop.confirmation) == ("not_confirmed", "missed")


@pytest.mark.parametrize(
    ("is_steady", "has_enough_samples", "confirmation"),
    [(True, True, "passed"), (True, False, "too_few_samples"), (False, True, "not_steady"), (False, False, "not_steady")],
)
def test_the_confirmation_names_what_the_confirming_probe_lacks(is_steady, has_enough_samples, confirmation):
    stop, _ = run(queue, seed=3, outcome=lambda *_: {"is_steady": is_steady, "has_enough_samples": has_enough_samples})
    assert (stop.reason, stop.confirmation) == ("precision", confirmation)
