"""The rule that stops an open loop whose backlog grows beyond chance."""

import numpy as np
import pytest

from perfkit.workers.loops import is_overloaded

S = 1_000_000_000


def verdicts(load, *, seconds=60.0, service_s=0.01, limit_s=0.1, seed=0, servers=1):
    """The verdict on a queue with exponential times, every tenth of a second."""
    random = np.random.default_rng(seed)
    count = int(seconds * load * servers / service_s)
    arrivals = np.cumsum(random.exponential(service_s / load / servers, count))
    served = random.exponential(service_s, count)
    if servers == 1:
        walk = np.concatenate(([0.0], np.cumsum(served[:-1] - np.diff(arrivals))))
        ends = arrivals + walk - np.minimum.accumulate(walk) + served
    else:  # enough of them for everyone
        ends = arrivals + served
    ends.sort()
    for now in np.arange(2, seconds, 0.1):
        sent, ended = int(np.searchsorted(arrivals, now)), int(np.searchsorted(ends, now))
        yield is_overloaded(sent, sent - ended, round(now * S), round(limit_s * S))


@pytest.mark.parametrize("load", [1.3, 1.6, 3.0])
def test_an_overload_is_detected_in_the_first_third(load):
    found = list(verdicts(load))
    assert any(found[: len(found) // 3])


def test_a_queue_that_keeps_up_is_never_overloaded():
    assert not any(verdict for seed in range(40) for verdict in verdicts(0.95, seed=seed, seconds=120))


def test_a_slow_target_that_serves_all_requests_at_once_is_not_overloaded():
    # 2 s each, all at a time: as many in flight as two seconds' arrivals, for ever
    assert not any(verdicts(1.0, service_s=2.0, servers=400, limit_s=5.0, seconds=60))


def test_nothing_is_judged_before_three_times_the_limit_has_elapsed():
    assert not is_overloaded(1000, 1000, 3 * S, S)
    assert is_overloaded(1000, 1000, 3 * S + 1, S)
