"""Validation of models: the choice of the held-out points, and the verdicts."""

import math

import numpy as np

from perfkit.plan.validation import MEAN_AT_MOST, P99_AT_MOST, HeldOut, judge_model, split_points


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
