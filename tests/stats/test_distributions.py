"""Student's t and the binomial distribution, against printed tables and exact sums."""

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from perfkit.stats.distributions import binomial_cdf, f_tail, student_t_quantile, student_t_tail

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


@given(st.floats(0.001, 0.999))
def test_one_two_and_many_degrees_of_freedom_have_closed_forms(probability):
    assert student_t_quantile(probability, 1) == pytest.approx(math.tan(math.pi * (probability - 0.5)), rel=1e-9, abs=1e-9)
    spread = 2 * probability - 1
    assert student_t_quantile(probability, 2) == pytest.approx(spread * math.sqrt(2 / (1 - spread**2)), rel=1e-9, abs=1e-9)
    assert student_t_quantile(0.975, 10**9) == pytest.approx(1.959963985, abs=1e-8)


@pytest.mark.parametrize(("probability", "freedom"), [(0.0, 5), (1.0, 5), (-0.1, 5), (0.9, 0)])
def test_a_quantile_that_does_not_exist_and_a_tail_without_degrees_of_freedom_are_refused(probability, freedom):
    with pytest.raises(ValueError, match="has no quantile"):
        student_t_quantile(probability, freedom)
    with pytest.raises(ValueError, match="found 0"):
        student_t_tail(1.0, 0)


@pytest.mark.parametrize(
    ("t", "df", "tail"), [(0.0, 7, 0.5), (6.3138, 1, 0.05), (2.9200, 2, 0.05), (3.3649, 5, 0.01), (2.7638, 10, 0.01), (2.3263, 10**7, 0.01)]
)
def test_tails_are_those_of_the_table(t, df, tail):
    assert student_t_tail(t, df) == pytest.approx(tail, rel=2e-4)
    assert student_t_tail(-t, df) == pytest.approx(1 - tail, rel=2e-4)


@pytest.mark.parametrize("df", [1, 2, 3, 8, 31, 200, 201, 1000])
@pytest.mark.parametrize("probability", [0.6, 0.95, 0.999])
def test_the_tail_is_the_inverse_of_the_quantile(df, probability):
    assert student_t_tail(student_t_quantile(probability, df), df) == pytest.approx(1 - probability, rel=1e-9)


@given(st.integers(1, 60), st.fractions(0, 1, max_denominator=50), st.data())
def test_the_binomial_is_the_exact_sum(trials, probability, data):
    successes = data.draw(st.integers(0, trials))
    exact = sum(math.comb(trials, number) * probability**number * (1 - probability) ** (trials - number) for number in range(successes + 1))
    assert binomial_cdf(successes, trials, float(probability)) == pytest.approx(float(exact), rel=1e-9, abs=1e-14)


@pytest.mark.parametrize(("ratio", "degrees", "tail"), [(4.9646, (1, 10), 0.05), (3.3258, (5, 10), 0.05), (5.6363, (5, 10), 0.01)])
def test_the_tails_of_f_are_those_of_the_table(ratio, degrees, tail):
    assert f_tail(ratio, *degrees) == pytest.approx(tail, rel=1e-3)
    with pytest.raises(ValueError, match="at least one degree of freedom"):
        f_tail(ratio, 0, 1)
