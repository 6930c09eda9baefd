"""Schedules: exact instants, declared laws, and rates that move as they should.

Statistical tests have fixed seeds; the false-alarm rate of each was chosen as 1 in 1,000 before a seed was.
"""

import itertools
import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from perfkit.load import arrivals
from perfkit.load.arrivals import Schedule, Segment, Trace

S = 1_000_000_000
LAWS = {"constant": Schedule("constant", arrivals.constant_rate(100)), "poisson": Schedule("poisson", arrivals.constant_rate(100), (7,))}


def take(schedule, count):
    """The first instants of a schedule, in nanoseconds."""
    found: list[int] = []
    for chunk in schedule.chunks():
        found.extend(chunk.tolist())
        if len(found) >= count:
            break
    return np.array(found[:count])


def until(schedule, end_s):
    """The instants below an end, in seconds."""
    found: list[float] = []
    for chunk in schedule.chunks():
        found.extend((chunk / S).tolist())
        if chunk[-1] >= end_s * S:
            break
    return np.array([one for one in found if one < end_s])


def kolmogorov_smirnov(values, cdf):
    """The largest distance between the values' distribution and a law's."""
    ordered = np.sort(values)
    law, count = cdf(ordered), len(ordered)
    return max(np.max(np.arange(1, count + 1) / count - law), np.max(law - np.arange(count) / count))


def test_constant_arrivals_come_at_equal_gaps():
    assert take(LAWS["constant"], 10_000).tolist() == [round((index + 1) * S / 100) for index in range(10_000)]


@pytest.mark.parametrize(
    ("schedule", "cdf"),
    [
        (LAWS["poisson"], lambda gap: 1 - np.exp(-100 * gap)),
        # a gamma law of shape 1/4 (burstiness 2) has no cdf of elementary functions; of shape 1 it is the exponential one
        (Schedule("gamma", arrivals.constant_rate(100), (3,), 1.0), lambda gap: 1 - np.exp(-100 * gap)),
        # of shape 4 (burstiness 1/2) it is Erlang's
        (
            Schedule("gamma", arrivals.constant_rate(100), (5,), 0.5),
            lambda gap: 1 - np.exp(-400 * gap) * sum((400 * gap) ** k / math.factorial(k) for k in range(4)),
        ),
    ],
)
def test_gaps_follow_the_declared_law(schedule, cdf):
    """Kolmogorov-Smirnov at a level of 0.1 %: the critical distance is 1.95/sqrt(n)."""
    gaps = np.diff(take(schedule, 50_000)) / S
    assert kolmogorov_smirnov(gaps, cdf) < 1.95 / math.sqrt(len(gaps))


@pytest.mark.parametrize("burstiness", [0.25, 2.0, 5.0])
def test_a_gamma_law_has_the_declared_burstiness(burstiness):
    gaps = np.diff(take(Schedule("gamma", arrivals.constant_rate(100), (11,), burstiness), 200_000)) / S
    assert gaps.mean() == pytest.approx(0.01, rel=4 * burstiness / math.sqrt(len(gaps)))
    # the standard error of a coefficient of variation of a gamma law of shape k = 1/b**2, from its fourth moment
    error = math.sqrt((1 + 2 * burstiness**2 + 1.5 * burstiness**2) / (2 * len(gaps))) + 1e-3
    assert gaps.std() / gaps.mean() == pytest.approx(burstiness, rel=5 * error)


def test_the_same_seed_gives_the_same_instants_and_another_one_others():
    first, again, other = (Schedule("poisson", arrivals.constant_rate(10), seed) for seed in ((1, 2), (1, 2), (1, 3)))
    assert take(first, 9000).tolist() == take(again, 9000).tolist()
    assert not set(take(first, 9000)) & set(take(other, 9000))


@given(st.integers(1, 9), st.sampled_from(list(LAWS)))
def test_workers_offer_together_what_one_would_alone(workers, law):
    shares = [itertools.islice(arrivals.worker_arrivals(LAWS[law].chunks(), worker, workers), 3) for worker in range(workers)]
    together = np.sort(np.concatenate([chunk for share in shares for chunk in share]))
    assert together.tolist() == take(LAWS[law], len(together)).tolist()
    assert len(together) == 3 * 4096


@pytest.mark.parametrize(
    ("segments", "integral"),
    [
        (arrivals.ramp(100, 3, 10), lambda t: np.where(t < 10, 100 * t + 10 * t**2, 2000 + 300 * (t - 10))),
        (arrivals.ramp(200, 0.5, 8), lambda t: np.where(t < 8, 200 * t - 6.25 * t**2, 1200 + 100 * (t - 8))),
        (arrivals.steps(50, [1, 4, 2], 5), lambda t: np.select([t < 5, t < 10], [50 * t, 250 + 200 * (t - 5)], 1250 + 100 * (t - 10))),
        (arrivals.spike(10, 20, 4, 2), lambda t: np.select([t < 4, t < 6], [10 * t, 40 + 200 * (t - 4)], 440 + 10 * (t - 6))),
        (arrivals.sine(100, 0.5, 6, 60, 256), lambda t: 100 * t + 0.5 * 100 * 6 / (2 * np.pi) * (1 - np.cos(2 * np.pi * t / 6))),
        (arrivals.lead_in(arrivals.ramp(100, 3, 10), 2), lambda t: np.where(t < 2, 100 * t, 200 + 100 * (t - 2) + 10 * (t - 2) ** 2)),
    ],
)
def test_a_shape_s_arrivals_are_the_constant_ones_at_the_instants_of_its_integral(segments, integral):
    """The n-th arrival of a constant law comes when the rate's integral reaches n."""
    instants = until(Schedule("constant", segments), 11.9)
    np.testing.assert_allclose(integral(instants), np.arange(1, len(instants) + 1), atol=0.02)


def test_a_poisson_law_of_a_changing_rate_is_one_in_the_time_of_its_integral():
    """Kolmogorov-Smirnov at a level of 0.1 % on the gaps between the integral's values."""
    segments = arrivals.ramp(1000, 5, 10)
    instants = until(Schedule("poisson", segments, (2,)), 9.9)
    gaps = np.diff(1000 * instants + 200 * instants**2)
    assert kolmogorov_smirnov(gaps, lambda gap: 1 - np.exp(-gap)) < 1.95 / math.sqrt(len(gaps))


def test_a_rate_that_falls_to_nothing_ends_there():
    (chunk, *_) = itertools.islice(Schedule("constant", (Segment(10, 10, 0), Segment(math.inf, 1, 1))).chunks(), 1)
    assert (np.diff(chunk) >= 0).all()
    assert np.count_nonzero(chunk <= 10 * S) == 50


def test_a_rate_that_falls_to_nearly_nothing_has_instants_that_numbers_hold():
    (chunk, *_) = itertools.islice(Schedule("poisson", arrivals.ramp(300, 1e-12, 1), (1,)).chunks(), 1)
    assert (np.diff(chunk) >= 0).all()
    assert chunk[-1] == 2**60


def test_a_trace_gives_the_recorded_instants():
    assert arrivals.from_timestamps([100.0, 100.5, 100.5, 103.25]).instants_ns.tolist() == [0, S // 2, S // 2, 3_250_000_000]
    assert arrivals.from_intervals([0.5, 0.0, 2.0]).instants_ns.tolist() == [S // 2, S // 2, 2_500_000_000]
    assert [chunk.tolist() for chunk in Trace(np.array([1, 5])).chunks()] == [[1, 5]]
    assert [chunk.tolist() for chunk in itertools.islice(Trace(np.array([1, 5]), repeat_ns=10).chunks(), 3)] == [
        [1, 5],
        [11, 15],
        [21, 25],
    ]
    assert list(Trace(np.array([], dtype=np.int64)).chunks()) == []


def test_decreasing_timestamps_and_negative_gaps_are_refused():
    with pytest.raises(ValueError, match="the timestamps decrease"):
        arrivals.from_timestamps([1.0, 0.5])
    with pytest.raises(ValueError, match="an interval is negative"):
        arrivals.from_intervals([1.0, -0.5])


def test_arrivals_with_their_first_chunk_ready_are_the_same():
    made: list[int] = []

    def chunks():
        for number in range(3):
            made.append(number)
            yield np.array([number])

    ready = arrivals.first_chunk_ready(chunks())
    assert made == [0]
    assert np.concatenate(list(ready)).tolist() == [0, 1, 2]
    assert list(arrivals.first_chunk_ready(Trace(np.array([], dtype=np.int64)).chunks())) == []
