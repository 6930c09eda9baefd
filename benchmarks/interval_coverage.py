"""Coverage of the 95 % intervals of percentiles, means and throughputs, over simulated series of response times.

    python -m benchmarks.interval_coverage [--runs 400] [--seed 1] [--only M/M/4] [--requests 1000 10000] [--out reports/interval-coverage.md]

The series are those of `benchmarks.correlated_times`, at 1,000 requests a second, and 200 of the shortest, so that no window is shorter than a
second. Each window is cut into the equal parts that perfkit records of such a window. The truth of a percentile is that of four million
requests in windows of 100,000, of the drifting series in windows as long; the mean number of requests is the truth of the throughput.

A cell reads `coverage (of closed intervals alone) closed, none`, in per cent: an interval without an upper end covers whatever lies above its
lower end; `closed` is the share of runs with a closed interval, and `none` that of runs which show no interval. A cell is missed if less than
93 % of the intervals cover, or less than 90 % of the closed ones, where at least 5 % of the runs have one. It is in brackets if the share of *all* runs
with a wrong interval is nevertheless at most 7 %: then the few runs that show one are those in which chance hid the correlation.

With `--verdicts`, the table has the verdicts of SLOs instead, on limits at a true percentile itself, where both "satisfied" and "violated" are
wrong and each should be rare (2.5 %), and at twice the p99 and half of it.

The width is the median of the closed intervals of independent times ÷ the exact one of so many samples. The exit code is 1 if a cell is
missed and not in brackets.
"""

import collections
import functools
import itertools
import math
import sys
from collections.abc import Iterator
from typing import NamedTuple

import numpy as np

from benchmarks.correlated_times import SERIES, TimeSeries
from benchmarks.report import Report, program_options
from benchmarks.simulated_queues import Floats
from perfkit.points.point import throughput_interval
from perfkit.recorder.batches import batch_length_ns
from perfkit.stats.buckets import BucketCounts
from perfkit.stats.percentiles import mean_interval, percentile_intervals
from perfkit.stats.slo import JudgedTimes, SloLimits, judge_slo
from perfkit.units import NS_PER_S

REQUESTS, QUANTILES = (200, 1_000, 3_000, 10_000, 100_000), (0.5, 0.9, 0.95, 0.99, 0.999)
RATE_PER_S, SHORTEST_S, MOST_AT_ONCE = 1000.0, 1.0, 3_000_000
LEAST, LEAST_CLOSED, FEWEST_SHOWN, MOST_WRONG = 0.93, 0.90, 0.05, 0.07
JUDGED = ((0.5, 1.0), (0.95, 1.0), (0.99, 1.0), (0.99, 2.0), (0.99, 0.5))
"""The quantiles and the limits of the SLOs, as multiples of the percentile."""
TRUTH_REQUESTS, ROUNDING = 4_000_000, 1.001
_SPREAD = 25  # enough requests for any of the arrival processes


class Truth(NamedTuple):
    """In nanoseconds."""

    percentiles: Floats
    mean: float


class Found(NamedTuple):
    """The intervals of one figure over all runs: shares of the runs, and the median width of the closed ones."""

    shown: float
    covered: float
    closed: float
    closed_covered: float
    width: float

    @classmethod
    def of(cls, intervals: list[tuple[float, float | None] | None], true_value: float) -> "Found":
        """The intervals compared with the truth, which is known to a bucket."""
        shown = [one for one in intervals if one is not None]
        covers = [low <= true_value * ROUNDING and (high is None or true_value <= high * ROUNDING) for low, high in shown]
        closed = [does for (_, high), does in zip(shown, covers, strict=True) if high is not None]
        widths = [high - low for low, high in shown if high is not None]
        count = len(intervals)
        return cls(
            len(shown) / count,
            sum(covers) / count,
            len(closed) / count,
            sum(closed) / count,
            float(np.median(widths)) if widths else math.nan,
        )

    @property
    def is_missed(self) -> bool:
        """Whether the cell misses its aim."""
        few = self.shown < FEWEST_SHOWN or self.covered >= LEAST * self.shown
        return not few or (self.closed >= FEWEST_SHOWN and self.closed_covered < LEAST_CLOSED * self.closed)

    @property
    def is_wrong(self) -> bool:
        """Whether more of all runs than may be show a wrong interval."""
        return self.is_missed and self.shown - self.covered > MOST_WRONG

    def cell(self) -> str:
        """As in the report."""
        if not self.shown:
            return "none"
        alone = f" ({self.closed_covered / self.closed:.0%})" if self.closed else ""
        text = f"{self.covered / self.shown:.0%}{alone} {self.closed:.0%}, {1 - self.shown:.0%}".replace("%", "")
        return f"**{text}**" if self.is_wrong else f"[{text}]" if self.is_missed else text


def rate_per_s(requests: int) -> float:
    """The rate of a window with so many requests."""
    return min(RATE_PER_S, requests / SHORTEST_S)


def windows(series: TimeSeries, requests: int, rate: float, runs: int, random: np.random.Generator) -> Iterator[tuple[Floats, Floats]]:
    """The arrivals and times of so many windows of one length."""
    enough = requests + round(_SPREAD * math.sqrt(requests))
    at_once = max(MOST_AT_ONCE // (enough + 30_000), 1)
    for first in range(0, runs, at_once):
        for arrivals, times in zip(*series.make(random, min(at_once, runs - first), enough, rate), strict=True):
            inside = arrivals < requests / rate
            yield arrivals[inside], times[inside]


@functools.cache
def truth(series: TimeSeries, requests: int, rate: float, seed: int) -> Truth:
    """From windows with so many requests."""
    random = np.random.default_rng([seed, 0])
    times = np.concatenate([each for _, each in windows(series, requests, rate, TRUTH_REQUESTS // requests, random)])
    return Truth(np.quantile(times, QUANTILES) * NS_PER_S, float(times.mean()) * NS_PER_S)


def parts_of(arrivals: Floats, times: Floats, length_s: float) -> list[BucketCounts]:
    """The equal parts of a window as perfkit records them."""
    batch_s = min(batch_length_ns(round(length_s * NS_PER_S)), NS_PER_S) / NS_PER_S
    cuts = np.searchsorted(arrivals, np.arange(int(length_s / batch_s) + 1) * batch_s)
    values = np.rint(times * NS_PER_S)
    return [BucketCounts.of(values[start:end]) for start, end in itertools.pairwise(cuts)]


def simulate(series: TimeSeries, requests: int, runs: int, seed: int) -> dict[str, Found]:
    """The intervals of all figures, over so many windows."""
    random, rate = np.random.default_rng([seed, requests, len(series.name)]), rate_per_s(requests)
    found: dict[str, list[tuple[float, float | None] | None]] = {str(name): [] for name in (*QUANTILES, "mean", "throughput")}
    for arrivals, times in windows(series, requests, rate, runs, random):
        parts = parts_of(arrivals, times, requests / rate)
        intervals = percentile_intervals(parts, QUANTILES)
        for quantile in QUANTILES:
            one = intervals.get(quantile)
            found[str(quantile)].append(None if one is None or one.low_ns is None else (one.low_ns, one.high_ns))
        found["mean"].append(mean_interval(parts))
        found["throughput"].append(throughput_interval(parts, times.size * rate / requests))
    true_values = truth(series, requests if series.is_drifting else max(REQUESTS), rate, seed)
    of_name = {**dict(zip(map(str, QUANTILES), true_values.percentiles, strict=True)), "mean": true_values.mean, "throughput": rate}
    return {name: Found.of(intervals, of_name[name]) for name, intervals in found.items()}


def judge(series: TimeSeries, requests: int, runs: int, seed: int) -> list[str]:
    """The verdicts on limits at the p50, p95 and p99 themselves, where each is wrong, and at twice and half the p99, in per cent of the runs."""
    random, rate = np.random.default_rng([seed, requests, len(series.name)]), rate_per_s(requests)
    found = truth(series, requests if series.is_drifting else max(REQUESTS), rate, seed).percentiles
    limits = [(quantile, factor * float(found[QUANTILES.index(quantile)])) for quantile, factor in JUDGED]
    verdicts = [collections.Counter[str]() for _ in limits]
    for arrivals, times in windows(series, requests, rate, runs, random):
        parts = parts_of(arrivals, times, requests / rate)
        judged = JudgedTimes(BucketCounts.merged(parts), [parts])
        for (quantile, limit_ns), counted in zip(limits, verdicts, strict=True):
            counted[judge_slo(SloLimits({quantile: round(limit_ns)}), judged, 0.0).verdict] += 1
    return [f"{one['satisfied'] / runs:.1%}, {one['violated'] / runs:.1%}" for one in verdicts]


def width_of_independent(series: TimeSeries, requests: int, quantile: float, seed: int) -> float:
    """The exact width of the interval of so many independent times: between two order statistics."""
    deviation = 1.96 * math.sqrt(quantile * (1 - quantile) / requests)
    random = np.random.default_rng([seed, 1])
    times = series.make(random, 20, 100_000, RATE_PER_S)[1]
    low, high = np.quantile(times, [max(quantile - deviation, 0.0), min(quantile + deviation, 1.0)])
    return float(high - low) * NS_PER_S


def main() -> int:
    """Prints the tables."""
    options = program_options(
        __doc__,
        out="interval-coverage",
        runs=400,
        seed=1,
        only=("", "only the series whose names contain it"),
        requests=[*REQUESTS],
        verdicts=(False, "of SLOs instead"),
    )
    page = Report(options.out, "Coverage of the 95 % intervals within a window")
    page.add(
        "",
        f"{options.runs} runs a cell (a quarter of them with 100,000 requests), seed {options.seed}; made by `python -m benchmarks.interval_coverage`, whose docstring says how.",
    )
    if options.verdicts:
        page.add("")
        page.table(
            "series", ">requests", *(f"limit at {factor:g} × p{quantile * 100:g}: satisfied, violated" for quantile, factor in JUDGED)
        )
        for series in (one for one in SERIES if options.only in one.name):
            for requests in options.requests:
                page.row(series.name, f"{requests:,}", *judge(series, requests, options.runs, options.seed))
        return page.write()
    names = [f"p{quantile * 100:g}" for quantile in QUANTILES]
    page.add("")
    page.table("series", ">requests", *names, "mean", "throughput")
    widths, wrong, missed, cells = list[tuple[float, int, float]](), 0, 0, 0
    for series in (one for one in SERIES if options.only in one.name):
        for requests in options.requests:
            runs = options.runs if requests < max(REQUESTS) else -(-options.runs // 4)
            found = simulate(series, requests, runs, options.seed)
            page.row(series.name, f"{requests:,}", *(one.cell() for one in found.values()))
            wrong += sum(one.is_wrong for one in found.values())
            missed += sum(one.is_missed for one in found.values())
            cells += sum(one.shown > 0 for one in found.values())
            if series.is_independent and series.is_smooth:
                for quantile in QUANTILES:
                    if (one := found[str(quantile)]).closed > 0.5:
                        widths.append((quantile, requests, one.width / width_of_independent(series, requests, quantile, options.seed)))
    page.add(
        "",
        f"{cells - missed} of {cells} cells keep both bounds; {missed - wrong} more, in brackets, are wrong in at most 7 % of all runs; {wrong}, in bold, are not.",
    )
    page.add("", "Median width of the closed intervals of independent times ÷ the exact one: " + ", ".join(
        f"{name} {np.mean(of):.2f}" for name, quantile in zip(names, QUANTILES, strict=True) if (of := [ratio for at, _, ratio in widths if at == quantile])
    ) + ".")  # fmt: skip
    page.write()
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
