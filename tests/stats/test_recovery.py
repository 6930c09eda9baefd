"""Recovery times against the closed form of a draining queue, and against a simulated M/D/1 queue."""

import numpy as np
import numpy.typing as npt
import pytest

from perfkit.stats.recovery import mean_over_repetitions, recovery_s

BASE, SURGE, CAPACITY, FOR_S, AFTER_S, LIMIT_S, SLOT_S = 100.0, 300.0, 200.0, 5.0, 20.0, 0.05, 0.1
# the wait at the surge's end is (surge - capacity) * length / capacity, and shrinks by 1 - base / capacity a second
WAIT_S = (SURGE - CAPACITY) * FOR_S / CAPACITY
DRAINED_S = (WAIT_S - (LIMIT_S - 1 / CAPACITY)) / (1 - BASE / CAPACITY)


def _recovery_s(starts_s: npt.NDArray[np.float64], after_s: float = AFTER_S) -> float | None:
    """The recovery of a queue of one server with constant service times; the surge ends at 0."""
    number = np.arange(starts_s.size) / CAPACITY
    ends_s = np.maximum.accumulate(starts_s - number) + number + 1 / CAPACITY
    inside = (starts_s >= 0) & (starts_s < after_s)
    slots, count = (starts_s[inside] / SLOT_S).astype(int), round(after_s / SLOT_S)
    beyond = np.bincount(slots[(ends_s - starts_s)[inside] > LIMIT_S], minlength=count)
    return recovery_s(np.bincount(slots, minlength=count).tolist(), beyond.tolist(), SLOT_S, 0.01)


def _poisson(random: np.random.Generator) -> npt.NDArray[np.float64]:
    surge = np.sort(random.uniform(-FOR_S, 0, random.poisson(SURGE * FOR_S)))
    return np.concatenate([surge, np.sort(random.uniform(0, AFTER_S, random.poisson(BASE * AFTER_S)))])


def test_a_queue_with_constant_gaps_recovers_when_the_closed_form_says() -> None:
    starts_s = np.concatenate([np.arange(-FOR_S, 0, 1 / SURGE), np.arange(0, AFTER_S, 1 / BASE)])
    assert _recovery_s(starts_s) == pytest.approx(DRAINED_S, abs=SLOT_S / 2)


def test_the_interval_over_repetitions_holds_the_closed_form_of_a_queue_with_poisson_arrivals() -> None:
    random, held = np.random.default_rng(47), 0
    for _ in range(200):
        times_s = [one for _ in range(5) if (one := _recovery_s(_poisson(random))) is not None]
        interval = mean_over_repetitions(times_s)
        assert interval is not None
        assert interval.low is not None
        assert interval.high is not None
        held += interval.low <= DRAINED_S <= interval.high
    assert held >= 180  # 190 are expected; fewer than 180 have a chance of about 0.1 %


def test_a_queue_that_still_drains_at_the_end_has_not_recovered() -> None:
    starts_s = np.concatenate([np.arange(-FOR_S, 0, 1 / SURGE), np.arange(0, 2.0, 1 / BASE)])
    assert _recovery_s(starts_s, after_s=2.0) is None


def test_single_slow_requests_are_chance_and_a_relapse_is_not() -> None:
    beyond = [0] * 100
    beyond[50] = 1
    assert recovery_s([10] * 100, beyond, SLOT_S, 0.01) == 0
    beyond[50] = 10
    assert recovery_s([10] * 100, beyond, SLOT_S, 0.01) == pytest.approx(5.1)


def test_the_end_lies_after_the_last_request_beyond_the_limit_where_fewer_and_fewer_are() -> None:
    """Of queues with random service times: the last of three of ten that are anywhere in the slot is expected at three quarters of it."""
    beyond = [10, 10, 7, 3, 0, 0, 0, 0, 0, 0, 0, 0]
    assert recovery_s([10] * 12, beyond, SLOT_S, 0.01) == pytest.approx(0.375)
    abrupt = [10, 10, 10, 3, 0, 0, 0, 0, 0, 0, 0, 0]
    assert recovery_s([10] * 12, abrupt, SLOT_S, 0.01) == pytest.approx(0.33)


def test_two_repetitions_have_a_mean_without_an_interval() -> None:
    found = mean_over_repetitions([1.0, 3.0])
    assert found is not None
    assert (found.value, found.low, found.high) == (2.0, None, None)
    assert mean_over_repetitions([]) is None
