"""The figures of a load point or a capacity search with 95 % intervals, by their names in constraints, and their comparison over repetitions as randomised blocks. Pure."""

import dataclasses
import math
import statistics
from collections.abc import Sequence
from typing import Self

import numpy as np

from perfkit.result.model import Point, Result
from perfkit.stats.autocorrelation import first_order_time
from perfkit.stats.probability import student_t_quantile
from perfkit.stats.ranking import PERCENTILE_NAMES
from perfkit.stats.ratio_interval import CONFIDENCE, Estimate, geometric_mean, on_logarithms, share_interval

FIGURES = ("throughput", "goodput", "capacity", "error_rate", "gpu_memory", "energy", *PERCENTILE_NAMES)
_FEWEST_SECONDS = 8


def figures_of_point(pooled: Point, repetitions: Sequence[Point]) -> dict[str, Estimate]:
    """The load point's figures by name: rates in inferences per second, times in ns, energy in joules per inference, memory in bytes.

    Intervals: Student's t on the logarithms of the repetitions for throughput, goodput and energy; the series of seconds for the
    throughput of a single repetition; those of the result for percentiles; Wilson's for the error rate. `gpu_memory` is the largest
    sample of any GPU that the server used, and taken as exact.
    """
    figures = {"throughput": _repeated(pooled.inferences_per_s, repeated_values("throughput", repetitions))}
    if len(repetitions) == 1:
        figures["throughput"] = _with_seconds(figures["throughput"], repetitions[0].throughput_series_per_s or ())
    if pooled.goodput_per_s is not None:
        figures["goodput"] = _repeated(pooled.goodput_per_s * _batch(pooled), repeated_values("goodput", repetitions))
    if pooled.energy_per_inference_j:
        figures["energy"] = _repeated(pooled.energy_per_inference_j, repeated_values("energy", repetitions))
    for name in PERCENTILE_NAMES:
        if (value_ns := getattr(pooled.times, name)) is not None:
            figures[name] = Estimate(value_ns, *pooled.intervals.get(name, (None, None)))
    if pooled.requests.judged:
        figures["error_rate"] = error_rate(pooled)
    return figures | _gpu_memory([pooled])


def error_rate(point: Point, confidence: float = CONFIDENCE) -> Estimate:
    """The share of the scheduled requests that failed, also by the sample of the answers, with Wilson's interval; needs at least one request."""
    return share_interval(*point.failed_share.independent(point.requests.judged), confidence)


def figures_of_search(result: Result) -> dict[str, Estimate]:
    """The capacity in inferences per second, and `gpu_memory` in bytes; empty if the search found no capacity."""
    search = result.search
    if search is None or search.capacity_per_s is None or search.capacity_per_s <= 0:
        return {}
    batch = _batch(result.points[0]) if result.points else 1.0
    quantile = statistics.NormalDist().inv_cdf
    # the interval of the search is widened to 95 %, on logarithms
    wider = quantile((1 + CONFIDENCE) / 2) / quantile((1 + search.confidence) / 2) if 0 < search.confidence < 1 else 1.0
    ends = (None if end is None else end * batch for end in (search.low_per_s, search.high_per_s))
    return {"capacity": Estimate(search.capacity_per_s * batch, *ends).scaled(wider), **_gpu_memory(result.points)}


def repeated_values(figure: str, repetitions: Sequence[Point]) -> list[float]:
    """A figure of each repetition; empty if a repetition lacks it, and for figures that are computed from the pooled repetitions only."""
    match figure:
        case "throughput":
            values: list[float | None] = [point.inferences_per_s for point in repetitions]
        case "goodput":
            values = [None if point.goodput_per_s is None else point.goodput_per_s * _batch(point) for point in repetitions]
        case "energy":
            values = [point.energy_per_inference_j for point in repetitions]
        case _:
            return []
    known = [value for value in values if value is not None]
    return known if len(known) == len(values) else []


def _batch(point: Point) -> float:
    """Inferences per request."""
    return point.inferences_per_s / point.throughput_per_s if point.throughput_per_s else 1.0


def _repeated(value: float, repeated: Sequence[float]) -> Estimate:
    """The pooled value with the relative interval of the repetitions' mean."""
    if len(repeated) < 2 or min(repeated) <= 0 or value <= 0:
        return Estimate(value, None, None)
    mean = geometric_mean(repeated)
    assert mean.low is not None
    assert mean.high is not None
    return Estimate(value, value * mean.low / mean.value, value * mean.high / mean.value)


def _with_seconds(estimate: Estimate, series_per_s: Sequence[int]) -> Estimate:
    """The throughput with an interval from its values per second, whose autocorrelation is allowed for; unchanged for a short window."""
    if len(series_per_s) < _FEWEST_SECONDS or not (mean := statistics.fmean(series_per_s)):
        return estimate
    independent = len(series_per_s) / first_order_time(series_per_s)
    degrees = max(math.floor(independent) - 1, 1)
    reach = student_t_quantile((1 + CONFIDENCE) / 2, degrees) * statistics.stdev(series_per_s) / math.sqrt(independent) / mean
    return Estimate(estimate.value, estimate.value * max(1 - reach, 0.0), estimate.value * (1 + reach))


def _gpu_memory(points: Sequence[Point]) -> dict[str, Estimate]:
    used = [float(gpu.memory_used_max_bytes) for point in points for gpu in point.server_gpus if gpu.memory_used_max_bytes is not None]
    return {"gpu_memory": Estimate(max(used), max(used), max(used))} if used else {}


FEWEST_REPETITIONS = 3


@dataclasses.dataclass(frozen=True, slots=True)
class RandomizedBlocks:
    """The randomised block design on logarithms: ln(value) = case + repetition + residual, with the repetitions as blocks.

    Source: R. A. Fisher, *The Design of Experiments* (1935), chapter IV; W. G. Cochran & G. M. Cox, *Experimental Designs* (2nd ed., 1957),
    chapter 4. Assumptions: a repetition's drift affects all cases alike, and the residuals are independent and about normal.
    """

    means: tuple[float, ...]
    """The mean of the logarithms of each case."""
    variances: tuple[float, ...]
    """The variance of the residuals of each case: its own or the common one, whichever is larger."""
    repetitions: int

    @classmethod
    def of(cls, cases: Sequence[Sequence[float]]) -> Self:
        """From the values above zero of two cases or more, each in the order of the same repetitions, of which there are at least three.

        The common variance s² has (C - 1)(R - 1) degrees of freedom. A case's own one, from its mean squared residual q_c = Σe²/(R - 1), is
        (q_c - s²/C)·C/(C - 2), which is unbiased, since E[q_c] = σ_c²(1 - 2/C) + Σσ²/C²; two cases have the common one only. Source: F. E.
        Grubbs, J. Am. Statist. Assoc. 43 (1948). It keeps a case that scatters more than the others from their small variance, as in
        `PooledScatter`. Raises ValueError for other values.
        """
        values = np.asarray(cases, dtype=np.float64)
        if values.ndim != 2 or values.shape[0] < 2 or values.shape[1] < FEWEST_REPETITIONS or not (values > 0).all():
            raise ValueError("blocks need two cases or more, with the same number of repetitions, at least three, and values above zero")
        logarithms = np.log(values)
        number, repetitions = values.shape
        means = logarithms.mean(axis=1)
        residuals = logarithms - means[:, None] - logarithms.mean(axis=0) + logarithms.mean()
        squares = (residuals**2).sum(axis=1) / (repetitions - 1)
        common = float(squares.sum()) / (number - 1)
        own = (squares - common / number) * number / (number - 2) if number > 2 else squares * 0.0
        return cls(tuple(means.tolist()), tuple(np.maximum(own, common).tolist()), repetitions)

    @property
    def degrees(self) -> int:
        """The degrees of freedom of the common variance."""
        return (len(self.means) - 1) * (self.repetitions - 1)

    def ratio(self, base: int, other: int, confidence: float = CONFIDENCE) -> Estimate:
        """The ratio of the geometric means, other ÷ base, of two cases, by their indices, with Student's interval on logarithms."""
        standard_error = math.sqrt((self.variances[base] + self.variances[other]) / self.repetitions)
        return on_logarithms(math.exp(self.means[other] - self.means[base]), standard_error, self.degrees, confidence)
