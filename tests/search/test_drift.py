"""A drift of the target during a search, on medians of queues by their closed form."""

import dataclasses
import math

import numpy as np
import pytest

from perfkit.result.search import LimitCount
from perfkit.search.decision import decide
from perfkit.search.drift import find_drift, median_of
from perfkit.search.probes import Median, Probe, SearchEnd, SearchSettings
from perfkit.stats.buckets import BucketCounts

PLACES = (0.06, -0.06, 0.03, -0.03)


def median_ns(rate_per_s, slower=0.0):
    """M/M/1 with 100 services a second: response times are exponential with the rate of services less that of arrivals."""
    return 1e9 * math.log(2) / (100 / (1 + slower) - rate_per_s)


def probed(number=12, *, slower_at=lambda _: 0.0, error=0.02, seed=0, noise=0.0, **fields):
    """Probes around 80 a second, each of a minute; the medians have a relative standard error, and vary as much besides."""
    random, probes = np.random.default_rng(seed), []
    for index in range(number):
        rate = 80 * (1 + PLACES[index % 4])
        value = median_ns(rate, slower_at(index / (number - 1))) * math.exp((error + noise) * random.standard_normal())
        known = {"median": Median(value, error), "took_s": 60.0, "stage": "refine"}
        probes.append(Probe(rate, limits={}, **{**known, **fields}))
    return probes


def test_of_targets_that_stay_the_same_one_in_a_hundred_drifts():
    found = sum(find_drift(probed(seed=seed), 80.0) is not None for seed in range(400))
    assert found <= 11  # P[Bin(400, 1 %) > 11] is 0.05 %; the seeds are fixed


def test_more_noise_between_probes_than_within_is_no_drift():
    found = sum(find_drift(probed(seed=seed, noise=0.06), 80.0) is not None for seed in range(400))
    assert found <= 11


@pytest.mark.parametrize("share", [0.05, -0.05, 0.1])
def test_a_drift_is_found_with_its_size(share):
    drifts = [find_drift(probed(seed=seed, slower_at=lambda elapsed: share * elapsed), 80.0) for seed in range(20)]
    assert all(drift is not None and drift.probes == 12 for drift in drifts)
    held = sum(drift.low <= share <= drift.high for drift in drifts)
    assert held >= 16  # of 20 intervals of 95 %; fewer by chance in 0.3 %
    assert np.median([drift.slower for drift in drifts]) == pytest.approx(share, abs=0.01)


def test_a_step_in_the_middle_is_found():
    drift = find_drift(probed(slower_at=lambda elapsed: 0.08 * (elapsed > 0.5)), 80.0)
    assert drift.low < 0.08 < drift.high * 1.3
    assert drift.slower > 0.05


@pytest.mark.parametrize(
    "change", [{"median": None}, {"is_valid": False}, {"is_overloaded": True}, {"rate_per_s": 40.0}], ids=lambda change: next(iter(change))
)
def test_probes_that_tell_nothing_are_left_out(change):
    probes = probed(slower_at=lambda elapsed: 0.1 * elapsed)
    others = [dataclasses.replace(probe, **change) if index > 4 else probe for index, probe in enumerate(probes)]
    assert find_drift(others, 80.0) is None


def test_probes_of_one_rate_tell_no_slope():
    assert find_drift([dataclasses.replace(probe, rate_per_s=80.0) for probe in probed()], 80.0) is None


def test_the_error_of_a_median_is_that_of_independent_times():
    # a median of n exponential times has the standard error 1/√n of the mean, which is 1/(ln 2 √n) of the median
    random = np.random.default_rng(4)
    medians = [median_of([BucketCounts.of(random.exponential(1e7, 100)) for _ in range(40)]) for _ in range(100)]
    values = np.array([one.value_ns for one in medians])
    assert np.median([one.error for one in medians]) == pytest.approx(1 / (math.log(2) * math.sqrt(4_000)), rel=0.1)
    assert values.std() / values.mean() == pytest.approx(1 / (math.log(2) * math.sqrt(4_000)), rel=0.3)


def test_a_median_of_few_or_equal_times_is_unknown():
    assert median_of([]) is None
    assert median_of([BucketCounts.of(np.array([5e6]))] * 10) is None
    assert median_of([BucketCounts.of(np.full(100, 5e6))] * 10) is None


def search(slower_at, precision=0.05):
    """A search whose probes have exact shares beyond the limit, and medians of a target that changes over twelve of them."""
    settings, probes, random = SearchSettings(start_per_s=40.0, precision=precision), list[Probe](), np.random.default_rng(3)
    while not isinstance(step := decide(probes, settings), SearchEnd):
        count, rate = max(50_000, step.requests), step.rate_per_s
        slower = slower_at(min(len(probes) / 12, 1.0))
        speed = 100 / (1 + slower)
        share = 0.01 ** ((speed - rate) / 20)
        value = median_ns(rate, slower) if rate < 0.98 * speed else None
        limits = {"p99": LimitCount(int(random.binomial(count, min(share, 1.0))), count, 0.01)}
        median = None if value is None else Median(value, 0.005)
        probes.append(Probe(rate, step.stage, limits, is_overloaded=rate >= speed, median=median, has_enough_samples=True, took_s=60.0))
        assert len(probes) < 60
    return step


def test_a_search_on_a_target_that_stays_the_same_is_precise():
    end = search(lambda _: 0.0)
    assert (end.reason, end.drift) == ("precision", None)


def test_a_search_on_a_target_that_changes_by_more_than_half_its_precision_is_undecided():
    end = search(lambda share: 0.04 * share)
    assert end.reason == "drifted"
    assert end.drift.slower > 0.02
    assert end.estimate.capacity_per_s is not None


def test_a_smaller_change_is_told_beside_the_answer():
    end = search(lambda share: 0.05 * share, precision=0.12)
    assert end.reason == "precision"
    assert 0.01 < end.drift.slower < 0.06
