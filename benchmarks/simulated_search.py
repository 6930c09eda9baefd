"""One capacity search on a simulated queue: the queue, its true p99 at the capacity, the probes, and the search itself."""

import dataclasses
import functools
import math
from collections.abc import Callable
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from benchmarks.interval_coverage import parts_of
from benchmarks.simulated_queues import (
    Floats,
    batched_response_times,
    gamma_arrivals,
    mg1_quantile,
    mmc_tail,
    response_times,
    service_survival,
    service_times,
)
from perfkit.result.search import LimitCount
from perfkit.search.decision import decide
from perfkit.search.drift import median_of
from perfkit.search.probes import NextProbe, Probe, SearchEnd, SearchSettings
from perfkit.stats.buckets import BucketCounts
from perfkit.stats.overload import judge_overload
from perfkit.stats.percentiles import SHOWN_ERROR, dispersion_above, is_limit_shown_met, precision_above
from perfkit.stats.slo import time_of_one
from perfkit.units import NS_PER_S

CAPACITY_PER_S, BUDGET_S, MAX_PROBES = 500.0, 3600.0, 30
WARM_UP, INTERVALS = 0.1, 200
LARGEST_BATCH, BATCH_TIME, ROW_TIME = 8, 1.0, 0.125
"""The batching server: a batch of n takes 1 + n/8."""
_LEFT_OUT = 20_000  # requests at the start of a long run
_P99, _KEPT = 0.99, 0.05  # the share of its times that a part of a long run returns: the p99 lies well within


@dataclasses.dataclass(frozen=True)
class Queue:
    """A queue whose capacity is known by declaration: the SLO is the percentile that it has at this load. The unit of time is the mean service time."""

    service_cv: float
    arrivals_cv: float
    servers: int
    load: float
    """The capacity, as a share of the rate at which the servers are always busy."""
    is_batching: bool = False
    quantile: float = 0.99
    """The percentile of the SLO."""

    @property
    def capacity(self) -> float:
        """The capacity in requests per mean service time."""
        return self.load * (LARGEST_BATCH / (BATCH_TIME + ROW_TIME * LARGEST_BATCH) if self.is_batching else self.servers)

    @property
    def key(self) -> str:
        """The queue in words, of which the seeds of its simulations are made."""
        kind = "batching" if self.is_batching else f"servers {self.servers}"
        of = "" if self.quantile == 0.99 else f", p{100 * self.quantile:g}"
        return f"service cv {self.service_cv:g}, arrivals cv {self.arrivals_cv:g}, {kind}, load {self.load:g}{of}"

    def times(self, arrivals: Floats, rng: np.random.Generator) -> Floats:
        """The response time of each arrival."""
        if self.is_batching:
            return batched_response_times(arrivals, LARGEST_BATCH, BATCH_TIME, ROW_TIME)
        return response_times(arrivals, service_times(self.service_cv, arrivals.size, rng), self.servers)

    def exact_time(self) -> float | None:
        """The SLO's percentile at the capacity by a closed form; None if there is none."""
        if self.is_batching:
            return None
        if self.service_cv == 1 and self.arrivals_cv == 1:
            return _root(lambda time: 1 - self.quantile - mmc_tail(self.servers, self.load, time), 0.0, 1e4)
        if self.service_cv == 1 and self.servers == 1:
            # GI/M/1: response times are exponential with the rate 1 - σ, where σ is the root of σ = A*(1 - σ), the transform of the gaps
            # (D. Gross et al., *Fundamentals of Queueing Theory*, section 5.3.1)
            shape = self.arrivals_cv**-2
            sigma = _root(lambda share: share - (1 + (1 - share) / (shape * self.load)) ** -shape, 1e-9, 1 - 1e-9)
            return -math.log(1 - self.quantile) / (1 - sigma)
        if self.arrivals_cv == 1 and self.servers == 1:
            return mg1_quantile(self.quantile, self.load, functools.partial(service_survival, self.service_cv))
        return None


def _root(rising: Callable[[float], float], low: float, high: float) -> float:
    for _ in range(100):
        middle = (low + high) / 2
        low, high = (low, middle) if rising(middle) > 0 else (middle, high)
    return low


def longest_times(queue: Queue, requests: int, seed: int) -> tuple[Floats, int]:
    """One part of a long run at the capacity: its longest times, ascending, and the number of all its times."""
    rng = np.random.default_rng([seed, 77])
    arrivals = gamma_arrivals(queue.capacity, requests / queue.capacity, queue.arrivals_cv, rng)
    times = queue.times(arrivals, rng)[_LEFT_OUT:]
    return np.sort(np.partition(times, times.size - int(_KEPT * times.size))[-int(_KEPT * times.size) :]), times.size


def pooled_p99(parts: list[tuple[Floats, int]]) -> tuple[float, float]:
    """The p99 of a long run's parts, and the standard error of the share above it, as a share of 1 %."""
    longest, count = np.sort(np.concatenate([times for times, _ in parts])), sum(size for _, size in parts)
    p99 = float(longest[-int((1 - _P99) * count)])
    shares = [(times > p99).sum() / size for times, size in parts]
    return p99, float(np.std(shares, ddof=1) / math.sqrt(len(parts)) / (1 - _P99))


class SearchResult(NamedTuple):
    """The result of one search; rates are shares of the true capacity."""

    capacity: float
    low: float
    """0 if there is no lower end."""
    high: float
    """Infinite if there is no upper end."""
    probes: int
    reason: str
    confirmation: str
    took_s: float
    """At 500 requests per second."""
    needed_s: float
    """If it was too short: the time that the search said it needs; otherwise 0."""
    slower: float = math.nan
    """The drift that the search noticed, as a share of the times; not a number if it noticed none."""


def measure(queue: Queue, limit: float, step: NextProbe, length_s: float, rng: np.random.Generator, slower: float = 1.0) -> Probe:
    """One probe: a window after a warm-up of 10 % of it, judged by perfkit's own code as `CapacitySearch` does.

    `slower` is the factor by which all service times are longer than those of the queue with the declared capacity.
    """
    scale = queue.capacity / CAPACITY_PER_S * slower  # the mean service time in seconds of the search
    rate, window = step.rate_per_s * scale, length_s / (1 + WARM_UP) / scale
    warm_up = WARM_UP * window
    arrivals = gamma_arrivals(rate, warm_up + window, queue.arrivals_cv, rng)
    times = queue.times(arrivals, rng)
    first = int(np.searchsorted(arrivals, warm_up))
    instants, limit_ns = arrivals[first:] - warm_up, round(limit * scale / slower * NS_PER_S)
    if not instants.size:
        return Probe(step.rate_per_s, step.stage, {}, took_s=length_s)
    parts = parts_of(instants * scale, times[first:] * scale, window * scale)
    counted = BucketCounts.merged(parts)
    beyond, quantile = counted.count_above(limit_ns), queue.quantile
    scheduled = _per_interval(instants, window)
    answered = _per_interval(arrivals + times - warm_up, window)
    overload = judge_overload(scheduled, answered, 1 + queue.arrivals_cv**2)
    ceiling_per_s = step.rate_per_s * min((overload.answered + overload.allowed) / max(overload.scheduled, 1), 1.0)
    return Probe(
        rate_per_s=step.rate_per_s,
        stage=step.stage,
        limits={"time": LimitCount(beyond, counted.count, 1 - quantile, dispersion_above(parts, limit_ns))},
        is_overloaded=overload.is_overloaded,
        ceiling_per_s=ceiling_per_s if overload.is_overloaded else math.inf,
        median=median_of(parts),
        has_enough_samples=is_limit_shown_met(
            quantile,
            counted.count,
            beyond,
            time_of_one(quantile, limit_ns, counted, precision_above(parts, limit_ns, quantile), SHOWN_ERROR),
        ),
        took_s=length_s,
    )


def _per_interval(instants: Floats, window: float) -> npt.NDArray[np.int64]:
    inside = instants[(instants >= 0) & (instants < window)]
    return np.bincount((inside * (INTERVALS / window)).astype(np.int64), minlength=INTERVALS + 1)[:INTERVALS]


def search(
    queue: Queue,
    limit: float,
    requests: int,
    seed: int,
    on_probe: Callable[[list[Probe], SearchSettings], None] | None = None,
    slower_at: Callable[[float], float] = lambda _: 1.0,
) -> SearchResult:
    """One search from a first rate between 1/16 of the capacity and all of it, with `requests` in a probe of the usual length.

    `on_probe` sees the probes after each one; `slower_at` gives the factor of the service times, by the seconds of the search so far.
    """
    rng = np.random.default_rng([seed, requests, *queue.key.encode()])
    settings = SearchSettings(start_per_s=CAPACITY_PER_S * 2 ** -rng.uniform(0, 4), max_probes=MAX_PROBES, budget_s=BUDGET_S)

    def length_s(step: NextProbe) -> float:
        needed = max(step.requests, 2 / (1 - queue.quantile)) / step.rate_per_s
        return (1 + WARM_UP) * max(requests / CAPACITY_PER_S, needed)

    probes: list[Probe] = []
    step: NextProbe | SearchEnd = decide(probes, settings, length_s)
    while isinstance(step, NextProbe):
        middle_s = sum(probe.took_s for probe in probes) + length_s(step) / 2
        probes.append(measure(queue, limit, step, length_s(step), rng, slower_at(middle_s)))
        if on_probe:
            on_probe(probes, settings)
        step = decide(probes, settings, length_s)
    found = step.estimate
    capacity, low, high = (
        rate / CAPACITY_PER_S for rate in (found.capacity_per_s or 0.0, found.low_per_s or 0.0, found.high_per_s or math.inf)
    )
    took_s = sum(probe.took_s for probe in probes)
    return SearchResult(
        capacity, low, high, len(probes), step.reason, step.confirmation or "none", took_s, step.needed_s or 0.0,
        math.nan if step.drift is None else step.drift.slower,
    )  # fmt: skip
