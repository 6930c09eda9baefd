"""Requests above a limit at one arrival rate: their number, and the number of independent clusters that they form.

A queue that fills makes many requests slow at once. These form one cluster, which counts as one independent observation. The precision of
a percentile depends on the number of clusters, not on the number of slow requests.
"""

import math
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from perfkit.stats.autocorrelation import raised_for_chance, variance_of_share
from perfkit.stats.buckets import BucketCounts, bucket_bounds_ns
from perfkit.units import NS_PER_S

_Numbers = npt.NDArray[np.float64]
_LEAST_IDLE, _LEAST_SHARE = 0.01, 0.05
_FEWEST_BATCHES, _BATCH_CORRECTION = 5, 2.0


class Window(NamedTuple):
    """One measured window."""

    length_s: float
    warm_up_s: float
    """The time from the start of the load to the start of the window."""


def cluster_length_s(percentile_s: _Numbers, tail: float, idle_share: _Numbers) -> _Numbers:
    """The length of an exceedance cluster, in seconds above the level: a window of T seconds holds tail·T/length clusters.

    The level is `percentile_s`, which the share `tail` of the requests exceeds. The load is ρ = 1 - `idle_share`.

    The length is the index of dispersion of the time above the level: σ_f²/p, with p = `tail`. In heavy traffic the work in the queue is
    a reflected Brownian motion with drift -β and variance σ², and exceeds x with probability exp(-ηx), η = 2β/σ². For small p the index
    is 8/(σ²η²), from the asymptotic variance σ_f² = 4∫G²/(σ²π), G(y) = ∫₀^y (f - E f)π (W. Whitt, "Asymptotic formulas for Markov
    processes", Operations Research 40, 1992). With β = 1 - ρ and η = ln(1/p)/q for the percentile q, this is 4·q/(ln(1/p)·(1 - ρ)).

    In simulations at loads of 0.7 to 0.9 it is 0.7 to 1.4 times the true index for one server (M/M/1, M/D/1, lognormal with a cv of
    2). For four servers and for batches it is 1.3 to 9 times the true index, so the number of clusters is underestimated.
    """
    return 4 * percentile_s / (math.log(1 / tail) * np.maximum(idle_share, _LEAST_IDLE))


class RateTimes:
    """The times measured at one rate, over all repetitions.

    `batches` are consecutive parts of the windows. `is_lower_bound` marks a target that fell behind or was not steady. Its times would
    have grown further, so they are lower bounds of the times in steady state.
    """

    def __init__(
        self, rate_per_s: float, batches: Sequence[BucketCounts], windows: Sequence[Window], *, is_lower_bound: bool = False
    ) -> None:
        self.rate_per_s, self.windows, self.is_lower_bound = rate_per_s, tuple(windows), is_lower_bound
        self.length_s = sum(window.length_s for window in windows)
        self._batches = batches
        pooled = BucketCounts.merged(batches)
        self.count = pooled.count
        self._indices = pooled.indices
        self._ln_highs = np.log(bucket_bounds_ns(pooled.indices)[1].astype(np.float64) + 1)
        self._dispersions = dict[float, float]()
        self._above = self.count - np.concatenate(([0], np.cumsum(pooled.counts)))

    def count_above(self, ln_times_ns: npt.ArrayLike) -> npt.NDArray[np.int64]:
        """The number of requests above each time, given as ln ns; the time's own bucket is included."""
        counts: npt.NDArray[np.int64] = self._above[np.searchsorted(self._ln_highs, ln_times_ns)]
        return counts

    def percentile_s(self, tail: float) -> float:
        """The time that the share `tail` of the requests exceeds."""
        return math.exp(self._ln_highs[self._bucket_at(tail)]) / NS_PER_S

    def cluster_length_s(self, percentile_s: _Numbers, tail: float, idle_share: _Numbers) -> _Numbers:
        """The cluster length by the function of this name, limited by the measured dispersion; at least the time of one request.

        The measured dispersion is that of the counts in the batches. It is raised twice. Batches that are not far longer than a cluster
        show too little dispersion, so it is multiplied by 1 + 2·(cluster length ÷ batch length). It may be low by chance
        (`raised_for_chance`).
        """
        modelled = cluster_length_s(percentile_s, tail, idle_share)
        batch_s = self.length_s / max(len(self._batches), 1)
        dispersion = raised_for_chance(max(self._dispersion_at(tail), 1.0), max(tail * self.count, 1.0))
        shown = dispersion * (1 + _BATCH_CORRECTION * modelled / batch_s) / self.rate_per_s
        return np.maximum(np.minimum(modelled, shown), 1 / self.rate_per_s)

    def transient_correction(self, cluster_s: _Numbers, tail: float) -> _Numbers:
        """The expected exceedance probability in these windows ÷ that in steady state; from 0.05 to 1.

        A window that begins soon after an idle queue has fewer slow requests than steady state. It is as if the first ln(1/p)/4 cluster
        lengths since the start of the load had none (the solution of Poisson's equation for the same Brownian motion, at 0). The
        warm-up covers its own length of these.
        """
        missing_s = math.log(1 / tail) / 4 * cluster_s
        kept = [
            window.length_s * np.clip(1 - (missing_s - window.warm_up_s) / window.length_s, _LEAST_SHARE, 1.0) for window in self.windows
        ]
        return np.asarray(sum(kept), dtype=np.float64) / self.length_s

    def _bucket_at(self, tail: float) -> int:
        return min(int(np.searchsorted(-self._above, -tail * self.count)), self._ln_highs.size - 1)

    def _dispersion_at(self, tail: float) -> float:
        if tail not in self._dispersions:
            self._dispersions[tail] = self._dispersion(tail)
        return self._dispersions[tail]

    def _dispersion(self, tail: float) -> float:
        """The index of dispersion of the counts above the percentile between batches; infinite with too few batches to tell."""
        if len(self._batches) < _FEWEST_BATCHES:
            return math.inf
        first = self._indices[self._bucket_at(tail)]
        sizes = np.array([batch.count for batch in self._batches])
        above = np.array([int(batch.counts[np.searchsorted(batch.indices, first) :].sum()) for batch in self._batches])
        share = above.sum() / sizes.sum()
        return variance_of_share(above, sizes) * float(sizes.sum()) / (share * (1 - share)) if 0 < share < 1 else math.inf
