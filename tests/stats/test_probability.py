"""Student's t and the binomial distribution, against printed tables and exact sums."""

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.special import betainc, stdtrit

from perfkit.stats.probability import binomial_cdf, binomial_limits, student_t_quantile

# NIST/SEMATECH e-Handbook of Statistical Methods, table 1.3.6.7.2, upper critical values
TABLE = {
    3: (1.638, 2.353, 3.182, 4.541, 5.841, 10.215),
    5: (1.476, 2.015, 2.571, 3.365, 4.032, 5.893),
    10: (1.372, 1.812, 2.228, 2.764, 3.169, 4.144),
    29: (1.311, 1.699, 2.045, 2.462, 2.756, 3.396),
    100: (1.290, 1.660, 1.984, 2.364, 2.626, 3.174),
}
PROBABILITIES = (0.90, 0.95, 0.975, 0.99, 0.995, 0.999)


@pytest.mark.parametrize("freedom", TABLE)
def test_the_quantiles_are_those_of_the_table(freedom):
    found = [student_t_quantile(probability, freedom) for probability in PROBABILITIES]
    assert found == pytest.approx(TABLE[freedom], abs=0.00051)


@pytest.mark.parametrize(("probability", "freedom"), [(0.0, 5), (1.0, 5), (-0.1, 5), (0.9, 0)])
def test_a_quantile_that_does_not_exist_is_refused(probability, freedom):
    with pytest.raises(ValueError, match="has no quantile"):
        student_t_quantile(probability, freedom)


@given(st.integers(1, 60), st.fractions(0, 1, max_denominator=50), st.data())
def test_the_binomial_is_the_exact_sum(trials, probability, data):
    successes = data.draw(st.integers(0, trials))
    exact = sum(math.comb(trials, number) * probability**number * (1 - probability) ** (trials - number) for number in range(successes + 1))
    assert binomial_cdf(successes, trials, float(probability)) == pytest.approx(float(exact), rel=1e-9, abs=1e-14)


@given(st.integers(1, 10**9), st.floats(1e-5, 1 - 1e-5))
def test_quantiles_of_t_are_those_of_scipy(df, probability):
    assert student_t_quantile(probability, df) == pytest.approx(float(stdtrit(df, probability)), rel=1e-9, abs=1e-9)


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
