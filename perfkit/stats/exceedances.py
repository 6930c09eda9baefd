"""Requests above a limit at one arrival rate: their number, and the number of independent clusters that they form.

A queue that fills makes many requests slow at once. The precision of a percentile therefore depends on how often the queue filled, not on
the number of slow requests: each such cluster is one piece of evidence.
"""

import math
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from perfkit.stats.autocorrelation import variance_of_share
from perfkit.stats.buckets import BucketCounts, bucket_bounds_ns
from perfkit.units import NS_PER_S

_Numbers = npt.NDArray[np.float64]
_LEAST_IDLE, _LEAST_SHARE = 0.01, 0.05
_FEWEST_BATCHES, _BATCH_CORRECTION, _CHANCE_CORRECTION = 5, 2.0, 2.0


class Window(NamedTuple):
    """One measured window, and the time from the start of the load to its start."""

    length_s: float
    warm_up_s: float


def cluster_length_s(percentile_s: _Numbers, tail: float, idle_share: _Numbers) -> _Numbers:
    """The time above a level, per exceedance cluster: a window of T seconds holds tail·T divided by it clusters.

    `percentile_s` is exceeded by the share `tail` of the requests, and 1 - `idle_share` is the load. It is the index of dispersion
    of the time above the level, σ_f²/p. In heavy traffic the work in the queue is a reflected Brownian motion with drift -β and
    variance σ². It is above x for the share exp(-ηx), η = 2β/σ², with the index 8/(σ²η²) for small shares, from the asymptotic variance
    σ_f² = 4∫G²/(σ²π), G(y) = ∫₀^y (f - E f)π (W. Whitt, "Asymptotic formulas for Markov processes", Operations Research 40, 1992).
    With β = the idle share and the exponential tail q = ln(1/p)/η this is 4·q/(ln(1/p)·(1 - ρ)). Simulated at loads of 0.7 to 0.9 it is
    0.7 to 1.3 times the true index with one server (M/M/1, M/D/1, lognormal with a cv of 2), and 1.3 to 9 times with four servers or
    batches, which errs towards fewer clusters.
    """
    return 4 * percentile_s / (math.log(1 / tail) * np.maximum(idle_share, _LEAST_IDLE))


class RateTimes:
    """The times measured at one rate, all repetitions together.

    `batches` are consecutive parts of the windows. `is_lower_bound` marks a target that fell behind or was not steady: its times would
    have grown further, so they are lower bounds of those of a steady state.
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
        """The number of requests above each time, given as its logarithm; those in the time's own bucket count as above."""
        counts: npt.NDArray[np.int64] = self._above[np.searchsorted(self._ln_highs, ln_times_ns)]
        return counts

    def percentile_s(self, tail: float) -> float:
        """The time that the share `tail` of the requests exceeds."""
        return math.exp(self._ln_highs[self._bucket_at(tail)]) / NS_PER_S

    def cluster_length_s(self, percentile_s: _Numbers, tail: float, idle_share: _Numbers) -> _Numbers:
        """As the function of this name, but at most what the dispersion between the batches shows, and at least one request.

        Batches that are not far longer than a cluster show too little dispersion: it is raised by twice the cluster's length as a share
        of the batch's. The dispersion of n clusters may be low by chance: it is raised by 2/√n.
        """
        modelled = cluster_length_s(percentile_s, tail, idle_share)
        batch_s = self.length_s / max(len(self._batches), 1)
        dispersion = max(self._dispersion_at(tail), 1.0)
        by_chance = 1 + _CHANCE_CORRECTION * math.sqrt(dispersion / max(tail * self.count, 1.0))
        shown = dispersion * by_chance * (1 + _BATCH_CORRECTION * modelled / batch_s) / self.rate_per_s
        return np.maximum(np.minimum(modelled, shown), 1 / self.rate_per_s)

    def reached_share(self, cluster_s: _Numbers, tail: float) -> _Numbers:
        """The expected share above a level as a part of that in steady state, for windows that begin soon after an idle queue.

        From an idle start, ln(1/p)/4 clusters' lengths of time above the level are missing (the solution of Poisson's equation for the
        same Brownian motion, at 0); a warm-up takes at most its own length of that.
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
