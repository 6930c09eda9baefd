"""Queueing formulas against simulations of the queues themselves."""

import heapq
import math

import numpy as np
import pytest

from perfkit.plan.queueing import (
    MEAN_AT_MOST,
    P99_AT_MOST,
    BatchFamily,
    BatchQueue,
    HeldOut,
    MgcFamily,
    MgcQueue,
    erlang_c,
    judge_model,
    split_points,
)

NUMBER, WARM_UP = 200_000, 5_000


def simulate_many_servers(random, servers, rate, service):
    """Response times, first come first served: each arrival takes the server that is free first (J. Kiefer & J. Wolfowitz)."""
    between = random.exponential(1 / rate, NUMBER + WARM_UP)
    free, now, responses = [0.0] * servers, 0.0, []
    for gap, time in zip(between.tolist(), service.tolist(), strict=True):
        now += gap
        done = max(now, free[0]) + time
        heapq.heapreplace(free, done)
        responses.append(done - now)
    return np.array(responses[WARM_UP:])


def simulate_batches(random, per_request, fixed, rate):
    """Response times of a server that takes all who wait."""
    arrivals = np.cumsum(random.exponential(1 / rate, NUMBER)).tolist()
    place, now, responses = 0, 0.0, []
    while place < NUMBER:
        now = max(now, arrivals[place])
        end = place
        while end < NUMBER and arrivals[end] <= now:
            end += 1
        now += per_request * (end - place) + fixed
        responses += [now - arrival for arrival in arrivals[place:end]]
        place = end
    return np.array(responses[WARM_UP:])


def service_times(random, scv, number):
    """Mean 1: constant, exponential, or hyperexponential with balanced means of that squared variation."""
    if scv == 0:
        return np.ones(number)
    if scv == 1:
        return random.exponential(1.0, number)
    chance = (1 + math.sqrt((scv - 1) / (scv + 1))) / 2
    rates = np.where(random.random(number) < chance, 2 * chance, 2 * (1 - chance))
    return random.exponential(1.0, number) / rates


def equally_likely(random, scv):
    return tuple(np.quantile(service_times(random, scv, 200_000), (np.arange(400) + 0.5) / 400).tolist()) if scv else (1.0,)


@pytest.mark.parametrize("servers", [1, 3, 20])
@pytest.mark.parametrize("load", [0.3, 0.9])
def test_erlang_c_equals_its_closed_form_and_is_stable_for_hundreds_of_servers(servers, load):
    offered = servers * load
    last = offered**servers / math.factorial(servers) / (1 - load)
    assert erlang_c(servers, offered) == pytest.approx(last / (sum(offered**k / math.factorial(k) for k in range(servers)) + last))
    assert 0 < erlang_c(500, 480.0) < 1
    assert erlang_c(1, 0.0) == 0


@pytest.mark.parametrize(("servers", "offered"), [(1, 1.0), (0, 0.5), (2, -0.1)])
def test_an_unstable_load_is_refused(servers, offered):
    with pytest.raises(ValueError, match="needs an offered load from 0 to below"):
        erlang_c(servers, offered)


def test_one_exponential_server_is_mm1():
    """Response times are exponential with mean 1/(μ-λ); a service time of 1,000 equally likely values stands for the exponential."""
    service = tuple(-math.log1p(-(k + 0.5) / 1000) for k in range(1000))
    queue = MgcQueue(1, service)
    assert queue.mean_response_time(0.8) == pytest.approx(5.0, rel=0.01)
    assert queue.response_time(0.99, 0.8) == pytest.approx(5 * math.log(100), rel=0.02)
    assert queue.capacity(0.99, 5 * math.log(100)) == pytest.approx(0.8, rel=0.005)


@pytest.mark.parametrize(("load", "truth", "above"), [(0.5, 4.336, 0.13), (0.8, 11.356, 0.05)])
def test_the_p99_of_md1_is_above_its_closed_form_by_the_documented_share(load, truth, above):
    assert MgcQueue(1, (1.0,)).response_time(0.99, load) / truth - 1 == pytest.approx(above, abs=0.005)


@pytest.mark.parametrize(("load", "noise"), [(0.6, 0.04), (0.8, 0.09)])
@pytest.mark.parametrize("scv", [0, 1, 2])
def test_mgc_is_close_to_a_simulation(load, noise, scv):
    """Within -8 … +10 % in the mean and -3 … +4 % at the p99, with three standard errors of the simulation's p99 more."""
    random = np.random.default_rng(10 * scv + round(10 * load))
    truth = simulate_many_servers(random, 4, 4 * load, service_times(random, scv, NUMBER + WARM_UP))
    queue = MgcQueue(4, equally_likely(random, scv))
    assert -0.08 - noise < queue.mean_response_time(4 * load) / truth.mean() - 1 < 0.10 + noise
    assert -0.03 - noise < queue.response_time(0.99, 4 * load) / np.quantile(truth, 0.99) - 1 < 0.04 + noise


@pytest.mark.parametrize(("rate", "mean"), [(0.3, 5.09), (0.8, 18.7)])
def test_the_bound_of_batch_service_is_tight(rate, mean):
    """α = 1, τ₀ = 2: known means, a simulation of 195,000 requests, and the bound 0 to 6 % above."""
    simulated = simulate_batches(np.random.default_rng(2), 1.0, 2.0, rate).mean()
    bound = BatchQueue(1.0, 2.0).mean_response_time(rate)
    assert simulated == pytest.approx(mean, rel=0.03)
    assert 0.99 * mean <= bound <= 1.06 * mean


def test_rates_that_saturate_batch_service_are_refused():
    with pytest.raises(ValueError, match=r"saturates at 0\.5"):
        BatchQueue(2.0, 1.0).mean_response_time(0.5)


def test_fitting_gives_back_the_queue_of_the_means():
    truth = MgcQueue(3, tuple(0.01 * -math.log1p(-(k + 0.5) / 40) for k in range(40)))
    rates = [60.0, 120.0, 180.0, 240.0]
    found = MgcFamily(rates, [2 * time for time in truth.service_times], 8).best([truth.mean_response_time(rate) for rate in rates])
    assert found.servers == 3
    assert found.mean_service_time == pytest.approx(truth.mean_service_time, rel=0.02)


def test_a_measured_saturation_tells_the_number_of_servers_that_low_rates_do_not():
    """Means at loads up to 0.3, of which the highest is 5 % too long, fit three servers; the saturation of 400/s fits four."""
    truth = MgcQueue(4, tuple(0.01 * -math.log1p(-(k + 0.5) / 40) for k in range(40)))
    rates = [40.0, 80.0, 120.0]
    varied = [truth.mean_response_time(rate) * factor for rate, factor in zip(rates, (1.0, 1.01, 1.05), strict=True)]
    saturation = truth.saturation
    assert MgcFamily(rates, truth.service_times, 8).best(varied).servers == 3
    assert MgcFamily(rates, truth.service_times, 8, (0.95 * saturation, 1.05 * saturation)).best(varied).servers == 4
    with pytest.raises(ValueError, match=r"no queue of up to 1 servers saturates between 383.3/s and 423.7/s"):
        MgcFamily(rates, truth.service_times, 1, (0.95 * saturation, 1.05 * saturation))


def test_fitting_gives_back_the_batch_queue_of_the_means():
    truth, rates = BatchQueue(0.004, 0.03), [20.0, 80.0, 150.0, 200.0]
    means = [truth.mean_response_time(rate) for rate in rates]
    found = BatchFamily(rates, min(means)).best(means)
    assert (found.per_request, found.fixed) == pytest.approx((0.004, 0.03), rel=0.1)


@pytest.mark.parametrize("fit", [lambda: MgcFamily([], [1.0], 1), lambda: BatchFamily([], 1.0)])
def test_fitting_needs_rates(fit):
    with pytest.raises(ValueError, match="at least one rate"):
        fit()


def test_higher_points_and_one_inside_are_held_out_in_whatever_order():
    split = split_points([10, 20, 30, 40, 80, 90, 95], 100.0)
    assert (split.fitted, split.held_out, split.sentence) == ((0, 1, 3), (2, 4, 5, 6), "")

    split = split_points([95, 10, 80, 20, 90, 30], 100.0)
    assert (split.fitted, split.held_out) == ((1, 5), (0, 2, 3, 4))


def test_too_few_points_are_named():
    assert split_points([10, 20, 80, 90], 100.0).sentence == (
        "Validation needs rates at which the target kept up: at least 3 above 70 % of the capacity (found 2) and at least 3 up to 70 % of the "
        "capacity (found 2)."
    )


def held(figure, *errors):
    return [HeldOut(float(place), figure, 100.0, 100.0 * (1 + error)) for place, error in enumerate(errors)]


def chance(errors, sd, seed=1):
    return np.random.default_rng(seed).normal(0.0, sd, (4000, len(errors)))


def test_without_noise_a_model_within_both_limits_is_accepted_and_one_beyond_either_rejected():
    within = [*held("mean", 0.05, -0.09), *held("p99", -0.12, 0.02)]
    assert judge_model("it", within, 0 * chance(within, 1)).is_accepted
    for beyond in ([*held("mean", 0.11)], [*held("mean", 0.0), *held("p99", -0.16)]):
        verdict = judge_model("it", beyond, 0 * chance(beyond, 1))
        assert not verdict.is_accepted
        assert verdict.sentence.startswith("Model rejected: it, mean off by")


def test_a_right_model_is_rejected_in_at_most_five_percent_and_a_wrong_one_nearly_always():
    """500 right models, whose errors are chance of 10 %, and 500 that are off by 80 % at one of five points. More than 38 right ones
    rejected (of 25 at most expected), and fewer than 450 wrong ones, have a chance below 1 %."""  # fmt: skip
    random, right, wrong = np.random.default_rng(5), 0, 0
    for _ in range(500):
        noise = np.exp(random.normal(0, 0.1, 5)) - 1
        right += judge_model("it", held("mean", *noise), chance(noise, 0.1)[:400]).verdict == "rejected"
        noise[2] = 1.8 * (1 + noise[2]) - 1
        wrong += judge_model("it", held("mean", *noise), chance(noise, 0.1)[:400]).verdict == "rejected"
    assert right <= 38
    assert wrong >= 450


def test_what_the_data_could_not_tell_is_said():
    """One error with a noise of 1 %: the largest deviation that chance explains is 1.96 %, and a power of 95 % takes 1.64 % more."""
    errors = held("mean", 0.02)
    sentence = judge_model("it", errors, chance(errors, 0.01)).sentence
    assert sentence == (
        "Model accepted: it, mean off by 2 % at 0/s (allowed 12 %) on points it was not fitted to; the data could not tell errors below 14 % of a mean."
    )


def test_a_model_is_not_validated_where_useless_errors_would_pass():
    """One point with a standard deviation s passes up to a factor of 1.1 · exp(1.96 s): 1.98 for s = 0.3, 1.29 for 0.08, 1.24 for 0.06."""
    errors = held("mean", 0.02)
    verdict = judge_model("it", errors, chance(errors, 0.3))
    assert (verdict.verdict, verdict.is_accepted) == ("not validated", False)
    assert verdict.sentence == (
        "Model not validated, and not used: it, mean off by 2 % at 0/s (allowed 25 %) on points it was not fitted to; the measurements are too noisy to "
        "tell (errors up to 98 % of a mean would pass); measure longer."
    )
    assert [judge_model("it", errors, chance(errors, sd)).verdict for sd in (0.08, 0.06)] == ["not validated", "accepted"]
    p99 = held("p99", 0.02)
    assert [judge_model("it", p99, chance(p99, sd)).verdict for sd in (0.15, 0.12)] == ["not validated", "accepted"]


def test_one_point_that_can_tell_is_enough_and_one_useless_error_too_much():
    noise = np.random.default_rng(1).normal(0.0, 1.0, (4000, 3)) * [0.02, 0.3, 0.3]
    assert judge_model("it", held("mean", 0.02, -0.1, 0.2), noise).verdict == "accepted"
    for error, shown in ((0.3, "30 % at 1/s (allowed 25 %)"), (-0.22, "22 % at 1/s (allowed 20 %)")):
        verdict = judge_model("it", held("mean", 0.02, error, 0.2), noise)
        assert verdict.verdict == "not validated"
        assert f"mean off by {shown}" in verdict.sentence


def test_an_accepted_model_is_within_the_useful_errors_whatever_the_noise():
    random = np.random.default_rng(3)
    for sd in np.geomspace(0.001, 3.0, 60):
        errors = [*held("mean", *np.expm1(random.normal(0, sd, 3))), *held("p99", *np.expm1(random.normal(0, 2 * sd, 3)))]
        noise = random.normal(0, [sd] * 3 + [2 * sd] * 3, (400, 6))
        if judge_model("it", errors, noise).is_accepted:
            assert all(abs(math.log1p(one.error)) <= math.log1p(MEAN_AT_MOST if one.figure == "mean" else P99_AT_MOST) for one in errors)


def test_a_model_without_points_is_rejected():
    assert judge_model("it", [], np.zeros((10, 0))).sentence == "Model rejected: it has no held-out points."
