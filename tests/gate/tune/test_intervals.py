"""How exactly the figures of a configuration are known."""

import math

import numpy as np
import pytest
import scipy.stats

from perfkit.gate.tune.folder import Window
from perfkit.gate.tune.intervals import p99_interval_ns, throughput_interval_per_s
from perfkit.stats.buckets import BucketCounts


def window(rate, length_s=1.0, times_ns=()):
    counts = BucketCounts.of(times_ns)
    pairs = tuple(zip(counts.indices.tolist(), counts.counts.tolist(), strict=True))
    return Window(
        candidate=0, phase="race", round=1, length_s=length_s, is_valid=True, throughput_per_s=rate, times=(pairs,) if counts.count else ()
    )


def test_the_interval_of_equal_windows_is_students_t():
    rates = [100.0, 110.0, 90.0, 104.0]
    interval = throughput_interval_per_s([window(rate) for rate in rates])
    assert interval == pytest.approx(scipy.stats.t.interval(0.95, 3, np.mean(rates), scipy.stats.sem(rates)))


def test_longer_windows_count_more():
    interval = throughput_interval_per_s([window(100.0, 8.0), window(130.0), window(100.0, 8.0)])
    assert interval is not None
    assert sum(interval) / 2 == pytest.approx((2 * 800 + 130) / 17)


def test_two_windows_have_no_interval():
    assert throughput_interval_per_s([window(100.0), window(110.0)]) is None
    assert p99_interval_ns([window(100.0)]) is None


def test_the_interval_of_the_p99_holds_the_percentile_of_the_law():
    draw = np.random.default_rng(5)
    held = 0
    for _ in range(100):
        windows = [window(1000.0, times_ns=np.round(draw.exponential(1e7, 1000)).astype(int).tolist()) for _ in range(30)]
        found = p99_interval_ns(windows)
        held += found is not None and found[0] <= 1e7 * math.log(100) <= (found[1] or math.inf)
    assert held >= 90
