"""Student's t beside the printed tables."""

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from perfkit.stats.student_t import student_t_quantile

# NIST/SEMATECH e-Handbook of Statistical Methods, table 1.3.6.7.2, upper critical values
TABLE = {
    1: (3.078, 6.314, 12.706, 31.821, 63.657, 318.309),
    2: (1.886, 2.920, 4.303, 6.965, 9.925, 22.327),
    3: (1.638, 2.353, 3.182, 4.541, 5.841, 10.215),
    4: (1.533, 2.132, 2.776, 3.747, 4.604, 7.173),
    5: (1.476, 2.015, 2.571, 3.365, 4.032, 5.893),
    9: (1.383, 1.833, 2.262, 2.821, 3.250, 4.297),
    10: (1.372, 1.812, 2.228, 2.764, 3.169, 4.144),
    19: (1.328, 1.729, 2.093, 2.539, 2.861, 3.579),
    24: (1.318, 1.711, 2.064, 2.492, 2.797, 3.467),
    29: (1.311, 1.699, 2.045, 2.462, 2.756, 3.396),
    30: (1.310, 1.697, 2.042, 2.457, 2.750, 3.385),
    60: (1.296, 1.671, 2.000, 2.390, 2.660, 3.232),
    100: (1.290, 1.660, 1.984, 2.364, 2.626, 3.174),
}
PROBABILITIES = (0.90, 0.95, 0.975, 0.99, 0.995, 0.999)


@pytest.mark.parametrize("freedom", TABLE)
def test_the_quantiles_are_those_of_the_table(freedom):
    found = [student_t_quantile(probability, freedom) for probability in PROBABILITIES]
    assert found == pytest.approx(TABLE[freedom], abs=0.00051)


@given(st.floats(0.001, 0.999))
def test_one_and_two_degrees_of_freedom_have_closed_forms(probability):
    assert student_t_quantile(probability, 1) == pytest.approx(math.tan(math.pi * (probability - 0.5)), rel=1e-9, abs=1e-9)
    spread = 2 * probability - 1
    assert student_t_quantile(probability, 2) == pytest.approx(spread * math.sqrt(2 / (1 - spread**2)), rel=1e-9, abs=1e-9)


@pytest.mark.parametrize("probability", [0.6, 0.9, 0.975, 0.999])
def test_series_and_expansion_meet(probability):
    by_series, by_expansion = student_t_quantile(probability, 200), student_t_quantile(probability, 201)
    step = student_t_quantile(probability, 199) - by_series
    assert by_series - by_expansion == pytest.approx(step, rel=0.02)


def test_many_degrees_of_freedom_are_the_normal_distribution():
    assert student_t_quantile(0.975, 10**9) == pytest.approx(1.959963985, abs=1e-8)


@pytest.mark.parametrize(("probability", "freedom"), [(0.0, 5), (1.0, 5), (-0.1, 5), (0.9, 0)])
def test_what_has_no_quantile_is_refused(probability, freedom):
    with pytest.raises(ValueError, match="no t quantile"):
        student_t_quantile(probability, freedom)
