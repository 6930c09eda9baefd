"""When an open loop need not be measured to its end: a backlog beyond chance that goes on growing."""

import numpy as np
import pytest

from perfkit.workers.early_stop import is_overloaded

S = 1_000_000_000


def looks(load, *, seconds=60.0, service_s=0.01, limit_s=0.1, seed=0, servers=1):
    """What a queue with exponential times looks like every tenth of a second: each look's verdict."""
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
def test_too_much_is_found_long_before_the_end(load):
    verdicts = list(looks(load))
    assert any(verdicts[: len(verdicts) // 3])


def test_a_queue_that_keeps_up_is_never_given_up():
    assert not any(verdict for seed in range(40) for verdict in looks(0.95, seed=seed, seconds=120))


def test_a_slow_target_that_serves_all_at_once_is_none():
    # 2 s each, all at a time: as many in flight as two seconds' arrivals, for ever
    assert not any(looks(1.0, service_s=2.0, servers=400, limit_s=5.0, seconds=60))


def test_nothing_is_said_before_three_times_the_limit():
    assert not is_overloaded(1000, 1000, 3 * S, S)
    assert is_overloaded(1000, 1000, 3 * S + 1, S)
