"""The curve of a percentile against the rate: closed forms, and how often its intervals hold what comes after."""

import math

import numpy as np
import pytest

from perfkit.plan.rate_curve import Repetition, fit_rate_curve, minimise

RATES = (0.3, 0.5, 0.65, 0.75, 0.85)


def mm1_p99(rate):
    return math.log(100) / (1 - rate)


def md1_mean(rate):
    return 1 + rate / (2 * (1 - rate))


def repetitions(law, rates=RATES, runs=1):
    return [Repetition(rate, law(rate), run) for run in range(runs) for rate in rates]


@pytest.mark.parametrize("law", [mm1_p99, md1_mean])
def test_fitting_gives_back_queues_of_the_curves_form(law):
    curve = fit_rate_curve(RATES, [law(rate) for rate in RATES], repetitions(law))
    assert [curve.value(rate) for rate in (0.1, 0.6, 0.9)] == pytest.approx([law(rate) for rate in (0.1, 0.6, 0.9)], rel=1e-4)
    assert curve.saturation_per_s == pytest.approx(1.0, rel=1e-4)


def test_constant_values_give_a_constant_curve():
    curve = fit_rate_curve(RATES, [5.0] * 5, repetitions(lambda _: 5.0))
    assert curve.value(0.6) == pytest.approx(5.0, rel=1e-3)


def test_the_curve_of_mm1_has_its_sensitivity_ends_at_saturation_and_is_extrapolated_outside_the_fitted_rates():
    curve = fit_rate_curve(RATES, [mm1_p99(rate) for rate in RATES], repetitions(mm1_p99))
    assert curve.sensitivity(0.8) == pytest.approx(1 / (1 - 0.8), rel=1e-3)
    assert curve.value(1.01) == math.inf
    with pytest.raises(ValueError, match="defined below 1/s"):
        curve.predict(1.01)
    assert [curve.predict(rate).is_extrapolated for rate in (0.29, 0.3, 0.85, 0.86)] == [True, False, False, True]


@pytest.mark.parametrize(("runs", "run_sd", "within_sd"), [(1, 0.02, 0.03), (5, 0.06, 0.02)])
def test_prediction_intervals_have_their_nominal_coverage(runs, run_sd, within_sd):
    """60 fits of runs whose speed differs by a factor, with noise that grows with the queue. With another seed and a true coverage of 90 %,
    fewer than 80 % are covered with a probability of 0.6 %. With one run the spread is assumed, and the interval may be too wide."""  # fmt: skip
    random, inside = np.random.default_rng(runs), 0
    for _ in range(60):
        speeds = np.exp(random.normal(0, run_sd, runs + 1).clip(-0.14, 0.14))
        seen = [Repetition(rate, value_at(random, rate, speeds[run], within_sd), run) for run in range(runs) for rate in RATES]
        pooled = [float(np.exp(np.mean([math.log(one.value) for one in seen if one.rate_per_s == rate]))) for rate in RATES]
        expected = fit_rate_curve(RATES, pooled, seen).predict(0.7)
        inside += expected.low <= value_at(random, 0.7, speeds[runs], within_sd) <= expected.high
    assert inside >= 0.8 * 60


def value_at(random, rate, speed, within_sd):
    return speed * mm1_p99(rate * speed) * math.exp(random.normal(0, within_sd) / (1 - rate))


def test_more_runs_narrow_the_interval_and_its_half_width_is_the_wider_side():
    few = fit_rate_curve(RATES, [mm1_p99(rate) for rate in RATES], repetitions(mm1_p99)).predict(0.7)
    many = fit_rate_curve(RATES, [mm1_p99(rate) for rate in RATES], repetitions(mm1_p99, runs=6)).predict(0.7)
    assert many.half_width < 0.5 * few.half_width
    assert few.half_width == pytest.approx(few.high / few.value - 1)


@pytest.mark.parametrize(
    ("rates", "values", "seen", "message"),
    [
        ((0.1, 0.2, 0.3), (1, 2, 3), [Repetition(0.1, 1.0, 0)], "at least 4 rates, found 3"),
        ((0.1, 0.2, 0.3, 0.4), (1, 2, 3, 0), [Repetition(0.1, 1.0, 0)], "above zero"),
        ((0.1, 0.2, 0.3, 0.4), (1, 2, 3, 4), [], "needs repetitions"),
    ],
)
def test_invalid_points_are_refused(rates, values, seen, message):
    with pytest.raises(ValueError, match=message):
        fit_rate_curve(rates, values, seen)


def test_a_linear_model_has_the_solution_and_covariance_of_linear_least_squares():
    random = np.random.default_rng(1)
    design, values = random.normal(size=(12, 3)), random.normal(size=12)
    found = minimise(lambda parameters: (design @ parameters - values, design), np.zeros(3))
    assert found.parameters == pytest.approx(np.linalg.lstsq(design, values)[0], rel=1e-9)
    assert found.unscaled_covariance == pytest.approx(np.linalg.inv(design.T @ design), rel=1e-9)
    assert found.sum_of_squares == pytest.approx(float(np.square(design @ found.parameters - values).sum()))


def test_steps_to_where_the_model_is_not_finite_are_taken_back():
    def model(parameters):
        with np.errstate(invalid="ignore", divide="ignore"):
            return np.log(parameters) - np.log([1e-3, 2e-3]), np.diag(1 / parameters)

    assert minimise(model, np.array([1.0, 1.0])).parameters == pytest.approx([1e-3, 2e-3])
