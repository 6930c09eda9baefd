"""The tail of Student's t, against printed tables and its own quantiles."""

import pytest

from perfkit.stats.student_t import student_t_quantile, student_t_tail


@pytest.mark.parametrize(
    ("t", "df", "tail"), [(0.0, 7, 0.5), (6.3138, 1, 0.05), (2.9200, 2, 0.05), (3.3649, 5, 0.01), (2.7638, 10, 0.01), (2.3263, 10**7, 0.01)]
)
def test_printed_tables(t, df, tail):
    assert student_t_tail(t, df) == pytest.approx(tail, rel=2e-4)
    assert student_t_tail(-t, df) == pytest.approx(1 - tail, rel=2e-4)


@pytest.mark.parametrize("df", [1, 2, 3, 8, 31, 200, 201, 1000])
@pytest.mark.parametrize("probability", [0.6, 0.95, 0.999])
def test_it_is_the_quantiles_inverse(df, probability):
    assert student_t_tail(student_t_quantile(probability, df), df) == pytest.approx(1 - probability, rel=1e-4)


def test_no_degrees_of_freedom_have_no_tail():
    with pytest.raises(ValueError, match="0 degrees of freedom"):
        student_t_tail(1.0, 0)
