"""The incomplete beta function and its inverse, checked against SciPy's, and against closed forms."""

import math

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st
from scipy.special import betainc, betaincinv, fdtrc, stdtr, stdtrit

from perfkit.stats.distributions import binomial_limits, f_tail, student_t_quantile, student_t_tail
from perfkit.stats.incomplete_beta import incomplete_beta, inverse_incomplete_beta

PARAMETERS = st.floats(-1, 7).map(lambda power: 10.0**power)


@given(PARAMETERS, PARAMETERS, st.floats(-6, 6))
def test_the_function_is_that_of_scipy_within_six_deviations_of_the_mean(a, b, deviations):
    mean = a / (a + b)
    x = mean + deviations * math.sqrt(mean * (1 - mean) / (a + b + 1))
    assume(1e-12 < x < 1 - 1e-12)
    assert incomplete_beta(a, b, x) == pytest.approx(float(betainc(a, b, x)), rel=1e-7, abs=1e-12)


@given(PARAMETERS, PARAMETERS, st.floats(1e-6, 1 - 1e-6))
def test_the_inverse_is_that_of_scipy(a, b, probability):
    expected = float(betaincinv(a, b, probability))
    assert inverse_incomplete_beta(a, b, probability) == pytest.approx(expected, rel=1e-8, abs=1e-290)


@given(st.floats(0.001, 0.999), st.floats(0.1, 50))
def test_with_one_parameter_of_one_there_are_closed_forms(x, other):
    assert incomplete_beta(other, 1.0, x) == pytest.approx(x**other, rel=1e-12)
    assert incomplete_beta(1.0, other, x) == pytest.approx(-math.expm1(other * math.log1p(-x)), rel=1e-12)
    assert inverse_incomplete_beta(1.0, other, x) == pytest.approx(-math.expm1(math.log1p(-x) / other), rel=1e-11)


@pytest.mark.parametrize("end", [0.0, 1.0])
def test_the_ends_are_exact(end):
    assert incomplete_beta(3.0, 4.0, end) == end
    assert inverse_incomplete_beta(3.0, 4.0, end) == end


@given(st.integers(1, 10**9), st.floats(1e-5, 1 - 1e-5))
def test_quantiles_and_tails_of_t_are_those_of_scipy(df, probability):
    expected = float(stdtrit(df, probability))
    assert student_t_quantile(probability, df) == pytest.approx(expected, rel=1e-9, abs=1e-9)
    assert student_t_tail(expected, df) == pytest.approx(float(stdtr(df, -expected)), rel=1e-9)


@given(st.integers(1, 1000), st.integers(1, 100_000), st.floats(0.01, 100))
def test_tails_of_f_are_those_of_scipy(numerator, denominator, ratio):
    expected = float(fdtrc(numerator, denominator, ratio))
    assert f_tail(ratio, numerator, denominator) == pytest.approx(expected, rel=1e-8, abs=1e-14)


@given(st.integers(1, 10**7), st.data())
def test_the_limits_of_a_probability_are_where_the_tails_have_half_of_the_rest(trials, data):
    successes = data.draw(st.integers(0, trials))
    low, high = binomial_limits(successes, trials)
    if successes:
        assert betainc(successes, trials - successes + 1, low) == pytest.approx(0.025, rel=1e-6)
    else:
        assert low == 0
    if successes < trials:
        assert betainc(successes + 1, trials - successes, high) == pytest.approx(0.975, rel=1e-6)
    else:
        assert high == 1
