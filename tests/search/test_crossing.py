"""The crossing of the share beyond a limit with the allowed share, and its interval, against closed forms and an independent optimiser."""

import dataclasses
import math

import numpy as np
import pytest
from scipy import optimize, stats

from perfkit.result.search import LimitCount
from perfkit.search.crossing import dispersion_of, fit_crossing
from perfkit.search.share_curve import CountAt

# M/M/1 with a service rate of 100/s: P[time > LIMIT_S] = exp(-(100 - rate)·LIMIT_S), which is 0.01 at 80/s
SATURATION, CAPACITY, ALLOWED = 100.0, 80.0, 0.01
LIMIT_S = math.log(1 / ALLOWED) / (SATURATION - CAPACITY)
NEAR = [75.0, 77.0, 78.5, 80.0, 81.5, 83.0, 85.0]


def form_error(found):
    """How far an end of the interval is moved for a curve of another form: by 0.12 of ln(share), as documented."""
    return 0.12 * found.centre_per_s / (found.slope * found.rate_per_s)


def interval_without_form_error(found):
    return found.low_per_s / (1 - form_error(found)), found.high_per_s / (1 + form_error(found))


def share_at(rate, floor=0.0):
    return floor + (1 - floor / ALLOWED) * math.exp(-(SATURATION - rate) * LIMIT_S)


def exact(rates, count=10**9, floor=0.0, **fields):
    """Counts without noise: their rounding is below 1e-7 of them."""
    return [CountAt(rate, LimitCount(round(count * share_at(rate, floor)), count, ALLOWED, **fields)) for rate in rates]


def noisy(random, rates, count=20_000, dispersion=1):
    """Poisson counts; with a dispersion, clusters of that many requests."""
    return [
        CountAt(rate, LimitCount(dispersion * int(random.poisson(count * share_at(rate) / dispersion)), count, ALLOWED, float(dispersion)))
        for rate in rates
    ]


@pytest.mark.parametrize("centre", [60.0, 80.0, 95.0])
def test_the_exact_shares_of_m_m_1_give_its_capacity_and_slope_from_any_centre(centre):
    found = fit_crossing(exact(NEAR), centre, 0.9)
    assert found.rate_per_s == pytest.approx(CAPACITY, rel=1e-6)
    assert found.slope / found.centre_per_s == pytest.approx(LIMIT_S, rel=1e-6)
    assert interval_without_form_error(found) == pytest.approx((80, 80), rel=1e-3)
    assert form_error(found) == pytest.approx(0.12 / math.log(1 / ALLOWED) * (SATURATION / CAPACITY - 1), rel=1e-3)
    for rate in (75.0, 85.0):
        at = found.intercept + found.slope * (rate / found.centre_per_s - 1)
        assert found.floor + math.exp(at) == pytest.approx(share_at(rate), rel=1e-5)


@pytest.mark.parametrize("allowed", [0.5, 0.1, 0.05])
def test_the_median_and_other_low_percentiles_cross_their_limit_too(allowed):
    limit_s = math.log(1 / allowed) / (SATURATION - CAPACITY)
    counts = [
        CountAt(rate, LimitCount(round(10**9 * math.exp(-(SATURATION - rate) * limit_s)), 10**9, allowed))
        for rate in (72.0, 76.0, 79.0, 81.0, 84.0, 87.0)
    ]
    found = fit_crossing(counts, CAPACITY, 0.9)
    assert found.rate_per_s == pytest.approx(CAPACITY, rel=1e-6)
    assert found.is_bounded
    assert found.points == len(counts)


def independent_fit(counts, confidence):
    """The line ln(share) = a + b·rate of greatest Poisson likelihood: its crossing, b, and the profile interval by Student's t.

    Variances are Pearson's χ² between the probes, each term weighted by the inverse of its variance, 2 + 3/n with n expected requests beyond the
    limit; the variance 1 within windows adds two degrees of freedom. They are at least 1 + 2/√n, n that of all probes.
    """
    rates, beyond, number = (
        np.array(one, float) for one in zip(*((c.rate_per_s, c.counted.beyond, c.counted.count) for c in counts), strict=True)
    )

    def means(root, slope):
        return number * ALLOWED * np.exp(slope * (rates - root))

    def loss(root, slope):
        return -stats.poisson.logpmf(beyond, means(root, slope)).sum()

    def scaled_loss(parameters):
        return loss(parameters[0] * 80, parameters[1])

    first, slope = optimize.fmin(scaled_loss, [1.0, 0.2], xtol=1e-9, ftol=1e-10, disp=False)
    root, least = first * 80, loss(first * 80, slope)
    expected = means(root, slope)
    weights = 1 / (1 + 1.5 / expected)
    pearson = (weights * (beyond - expected) ** 2 / expected).sum()
    degrees = len(rates)  # less two for the line, and two for the variance within windows
    scale = max((pearson + 2) / (weights.mean() * (degrees - 2) + 2), 1 + 2 / math.sqrt(expected.sum()))
    rise = scale * stats.t.ppf((1 + confidence) / 2, degrees) ** 2

    def excess(other):
        return 2 * (optimize.minimize_scalar(lambda b: loss(other, b), bracket=(slope / 2, slope)).fun - least) - rise

    return root, slope, optimize.brentq(excess, root - 20, root), optimize.brentq(excess, root, root + 20), scale


@pytest.mark.parametrize("seed", range(6))
def test_the_fit_agrees_with_an_independent_optimiser_of_the_poisson_likelihood(seed):
    random = np.random.default_rng(seed)
    rates = random.uniform(77, 83, 8)
    counts = noisy(random, rates)
    if seed >= 3:  # scatter between the probes: some counts a third larger
        counts = [
            dataclasses.replace(one, counted=dataclasses.replace(one.counted, beyond=round(one.counted.beyond * factor)))
            for one, factor in zip(counts, random.choice([1.0, 1.35], 8), strict=True)
        ]
    found = fit_crossing(counts, 78.0, 0.9)
    root, slope, low, high, scale = independent_fit(counts, 0.9)
    assert found.points == 8
    assert (scale > 1.5) == (seed >= 3)
    assert found.rate_per_s == pytest.approx(root, rel=1e-5)
    assert found.slope / found.centre_per_s == pytest.approx(slope, rel=1e-4)
    assert interval_without_form_error(found) == pytest.approx((low, high), rel=1e-4)
    assert found.dispersion == pytest.approx(scale, rel=1e-3)


@pytest.mark.parametrize("dispersion", [1, 8])
def test_the_interval_covers_the_capacity_at_its_confidence_without_being_much_too_wide(dispersion):
    random, number, count = np.random.default_rng(7), 200, 2_000 * dispersion
    found = [fit_crossing(noisy(random, NEAR, count, dispersion), CAPACITY, 0.9) for _ in range(number)]
    intervals = [interval_without_form_error(one) for one in found]
    # 166 would be missed by one run in 650 if the coverage were exactly 90 %, P[Bin(200, 0.9) <= 166]; the seed is fixed, so never by chance
    assert sum(low <= CAPACITY <= high for low, high in intervals) > 166
    # Fisher's information of the true curve gives the least standard error of the crossing; Student's t and a dispersion of at least 1 add some
    rates, weights = np.array(NEAR), np.array([count * share_at(rate) / dispersion for rate in NEAR])
    mean = np.average(rates, weights=weights)
    error = math.sqrt(1 / weights.sum() + (CAPACITY - mean) ** 2 / (weights * (rates - mean) ** 2).sum()) / LIMIT_S
    half_widths = [(high - low) / 2 for low, high in intervals]
    assert 1.645 < np.median(half_widths) / error < 1.5 * 1.645


def test_requests_that_exceed_the_limit_together_widen_the_interval_by_the_root_of_their_number():
    single, clustered = (fit_crossing(exact(NEAR, 10_000_000, dispersion=dispersion), CAPACITY, 0.9) for dispersion in (1.0, 25.0))
    assert clustered.rate_per_s == pytest.approx(single.rate_per_s, rel=1e-9)
    (low, high), (lower, higher) = (interval_without_form_error(one) for one in (single, clustered))
    assert (higher - lower) / (high - low) == pytest.approx(5, rel=0.05)
    assert clustered.effective_beyond == pytest.approx(single.effective_beyond / 25, rel=0.02)
    assert clustered.dispersion == pytest.approx(25, rel=0.02)


def test_the_dispersion_at_the_crossing_follows_from_one_that_rises_with_the_rate():
    # groups of 10 at the capacity, and of more above: e to the 10 times as many at twice the rate
    counts = [
        dataclasses.replace(one, counted=dataclasses.replace(one.counted, dispersion=10 * math.exp(10 * (one.rate_per_s / CAPACITY - 1))))
        for one in exact([*NEAR, 84.0, 84.5], 1_000_000)
    ]
    assert fit_crossing(counts, CAPACITY, 0.9).window_dispersion == pytest.approx(10, rel=1e-3)


def test_scatter_between_the_probes_counts_where_their_windows_show_none():
    counts = exact(NEAR, 100_000)
    scattered = [
        dataclasses.replace(one, counted=dataclasses.replace(one.counted, beyond=round(one.counted.beyond * factor)))
        for one, factor in zip(counts, (1.2, 0.8, 0.8, 1.2, 1.2, 0.8, 1.0), strict=True)
    ]
    found, alone = (fit_crossing(one, CAPACITY, 0.9) for one in (scattered, counts))
    assert found.half_width - form_error(found) > 2 * (alone.half_width - form_error(alone))


def lower_bound(rate, share, count=10_000):
    return CountAt(rate, LimitCount(round(share * count), count, ALLOWED), is_lower_bound=True)


def test_a_lower_bound_below_the_curve_has_no_influence_and_one_above_has():
    counts = exact(NEAR, 10_000)
    alone = fit_crossing(counts, CAPACITY, 0.9)
    below = fit_crossing([*counts, lower_bound(84.0, 0.3 * share_at(84.0))], CAPACITY, 0.9)
    for field in ("rate_per_s", "slope", "low_per_s", "points", "effective_beyond"):
        assert getattr(below, field) == pytest.approx(getattr(alone, field), rel=1e-6), field
    above = fit_crossing([*counts, lower_bound(84.0, 2 * share_at(84.0))], CAPACITY, 0.9)
    assert above.rate_per_s < alone.rate_per_s
    assert above.points == alone.points + 1


def test_a_lower_bound_just_below_the_curve_lowers_the_upper_end_alone():
    # the best curve satisfies it, but the curves of higher capacities, which lie below it, do not
    counts = exact([76.0, 78.0, 80.0, 82.0], 2_000)
    alone = fit_crossing(counts, CAPACITY, 0.9)
    bounded = fit_crossing([*counts, lower_bound(82.0, 0.99 * share_at(82.0), 20_000)], CAPACITY, 0.9)
    assert bounded.rate_per_s == pytest.approx(alone.rate_per_s, rel=1e-6)
    assert bounded.low_per_s == pytest.approx(alone.low_per_s, rel=1e-6)
    assert bounded.high_per_s < alone.high_per_s - 0.1


def test_slow_requests_at_low_rates_are_a_floor_under_the_curve():
    floor, rates = 0.004, [10.0, 20.0, 40.0, *NEAR]
    found = fit_crossing(exact(rates, floor=floor), CAPACITY, 0.9)
    # the curve crosses where share_at does: floor + (1 - floor ÷ 0.01)·0.01 = 0.01
    assert found.floor == pytest.approx(floor, rel=1e-3)
    assert found.rate_per_s == pytest.approx(CAPACITY, rel=1e-4)
    assert found.slope / found.centre_per_s == pytest.approx(LIMIT_S, rel=1e-3)
    assert fit_crossing(exact(NEAR, floor=floor), CAPACITY, 0.9).floor == 0  # unknown without probes far below


def test_probes_far_from_the_crossing_do_not_bend_the_curve():
    far = [CountAt(rate, LimitCount(beyond, 10**6, ALLOWED)) for rate, beyond in ((30.0, 0), (97.0, 900_000), (300.0, 999_999))]
    found = fit_crossing([*exact(NEAR), *far], CAPACITY, 0.9)
    assert (found.rate_per_s, found.points) == (pytest.approx(CAPACITY, rel=1e-6), len(NEAR))


def counts_of(*rates_and_beyond, count=1_000):
    return [CountAt(rate, LimitCount(beyond, count, ALLOWED)) for rate, beyond in rates_and_beyond]


def test_without_a_rising_curve_there_is_no_fit():
    assert fit_crossing(counts_of((76.0, 30), (80.0, 20), (84.0, 10)), CAPACITY, 0.9) is None  # falling
    assert fit_crossing(counts_of((80.0, 10), (80.0, 12), (80.0, 14), (80.0, 16)), CAPACITY, 0.9) is None  # one rate
    assert fit_crossing(counts_of((78.0, 8), (82.0, 16)), CAPACITY, 0.9) is None  # two probes
    assert fit_crossing(counts_of((76.0, 0), (80.0, 0), (84.0, 0)), CAPACITY, 0.9) is None  # nothing beyond the limit
    assert fit_crossing([lower_bound(rate, 0.02) for rate in (78.0, 80.0, 82.0, 84.0)], CAPACITY, 0.9) is None
    assert fit_crossing([], CAPACITY, 0.9) is None


def test_counts_that_a_level_line_could_explain_leave_the_interval_open():
    found = fit_crossing(counts_of((76.0, 8), (78.0, 11), (80.0, 9), (82.0, 12), (84.0, 11)), CAPACITY, 0.9)
    assert (found.low_per_s, found.high_per_s, found.is_bounded) == (0, math.inf, False)


def test_probes_far_below_the_crossing_leave_the_interval_open_above_alone():
    found = fit_crossing(counts_of((66.0, 0), (70.0, 1), (74.0, 1), (77.0, 3)), 70.0, 0.9)
    assert found.low_per_s > 74
    assert found.high_per_s == math.inf


@pytest.mark.parametrize(("beyond", "count", "ratio"), [(10, 1_000, 1.0), (0, 1_000, 0.5 / 10.5), (20, 1_000, 20.5 / 10.5), (0, 0, 1.0)])
def test_the_margin_is_the_logarithm_of_the_share_over_the_allowed_share(beyond, count, ratio):
    assert LimitCount(beyond, count, ALLOWED).margin == pytest.approx(math.log(ratio), abs=1e-12)


def counts(*rates_and_beyond, dispersion=1.0):
    return [CountAt(rate, LimitCount(beyond, 1_000, 0.01, dispersion)) for rate, beyond in rates_and_beyond]


def test_counts_that_rise_with_the_rate_are_not_dispersed():
    assert dispersion_of(counts((10, 0), (20, 5), (40, 30), (30, 12))) == 1
    assert dispersion_of(counts((10, 0), (20, 0))) == dispersion_of([]) == 1


def test_the_dispersion_within_the_windows_is_their_mean_weighted_by_the_counts():
    assert dispersion_of([*counts((10, 10), dispersion=2.0), *counts((20, 30), dispersion=6.0)]) == pytest.approx((10 * 2 + 30 * 6) / 40)


def test_counts_that_fall_with_the_rate_are_dispersed():
    # pooled, each expects 20: ((40 - 20)² + (0 - 20)²) ÷ 20 = 40, of one degree of freedom
    assert dispersion_of(counts((10, 40), (20, 0))) == pytest.approx(40)
    assert dispersion_of(counts((10, 1), (20, 40), (30, 0), (40, 90))) == pytest.approx(40)
    assert dispersion_of(counts((10, 40), (10, 0))) == pytest.approx(40)  # nor does a rate explain a difference from itself


def test_groups_of_requests_at_one_rate_are_found_between_windows_that_hold_one_or_none():
    random = np.random.default_rng(1)
    found = dispersion_of(counts(*((50, 25 * int(random.poisson(0.4))) for _ in range(400))))
    assert found == pytest.approx(25, rel=0.2)  # the standard error of this Pearson's χ² is 7 %
