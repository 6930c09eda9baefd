"""From which request on a start counts as warm: known warm-ups, and how often a warm server is said to need one."""

import numpy as np
import pytest

from perfkit.measurement.cold_start import FEWEST_REQUESTS, steady_after

MS = 1_000_000


def warm(count=200, seed=1):
    return np.random.default_rng(seed).lognormal(np.log(5 * MS), 0.1, count)


@pytest.mark.parametrize("slow", [1, 2, 5, 14, 60])
def test_slow_requests_at_the_start_are_counted(slow):
    times = warm()
    times[:slow] += 40 * MS
    assert steady_after(list(times)) == slow


def test_constant_times_are_warm_from_the_first_request_on():
    assert steady_after([5 * MS] * 100) == 0


def test_a_single_slow_request_later_is_no_warm_up():
    times = warm(seed=3)
    before = steady_after(list(times))
    times[70] *= 30
    assert steady_after(list(times)) == before


def test_a_warm_up_with_quick_requests_in_it_ends_with_its_last_slow_one():
    times = np.full(200, 5.0 * MS)
    times[[0, 3, 6, 9, 12]] = 40 * MS
    # among number 7 and the next 19 only 9 and 12 are slow
    assert steady_after(list(times)) == 7


def test_failed_requests_are_slow():
    assert steady_after([None] * 7 + [5 * MS] * 93) == 7
    assert steady_after([None] * 100) is None


def test_a_warm_up_that_lasts_into_the_second_half_is_not_over():
    assert steady_after(list(np.linspace(100, 1, 200) * MS)) is None


def test_an_exponential_decay_ends_where_it_is_lost_in_the_noise():
    times = warm(400) * (1 + 9 * np.exp(-np.arange(400) / 10))
    # with a spread of 10 %, 97.5 % of warm requests are within 1.22 times the median: the excess is below that after 10 ln(9/0.22) = 37
    found = steady_after(list(times))
    assert found is not None
    assert 25 <= found <= 50


def test_a_warm_server_seldom_seems_to_need_a_warm_up():
    random = np.random.default_rng(7)
    found = [steady_after(list(random.lognormal(0, 0.3, 200))) for _ in range(1000)]
    assert sum(one != 0 for one in found) / 1000 < 0.06
    assert None not in found


def test_too_few_requests_are_refused():
    with pytest.raises(ValueError, match="at least 40 requests"):
        steady_after([MS] * (FEWEST_REQUESTS - 1))
