"""Ranking of configurations: constraints on their figures, judged by intervals, and ties where the data cannot tell them apart."""

import dataclasses
import math
import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Literal

import numpy as np

from perfkit.stats.probability import normal_quantile
from perfkit.stats.ratio_interval import Estimate
from perfkit.units import (
    format_bytes,
    format_exact_duration,
    format_rate_per_s,
    parse_duration_ns,
    parse_rate_per_s,
    parse_share,
    parse_size_bytes,
)

CERTAIN = 0.95
"""The lowest probability with which all differences of a ranking are right."""
POWER = 0.8
"""The statistical power of the advised amount of data: the probability that it tells two configurations apart."""
Z_POWER = normal_quantile(POWER)


def pair_confidence(number: int) -> float:
    """The confidence at which each pair of `number` configurations is compared, so that all differences are right with 95 %.

    1 - 5 % ÷ the number of pairs: 95 % for two configurations, 99.89 % for ten. Source: C. E. Bonferroni's inequality, which needs no
    assumption about the dependence of the comparisons.
    """
    return 1 - (1 - CERTAIN) / max(math.comb(number, 2), 1)


def shared_ranks(number: int, is_better: Callable[[int, int], bool]) -> list[int]:
    """The rank of each of `number` configurations: one plus the number of better ones; `is_better(a, b)`: a is better than b.

    Rank 1 is always taken, and the ranks do not depend on the order of the configurations. "Cannot be told apart" is not transitive: where
    a is better than c and b is tied with both, the ranks of a, b and c are 1, 1 and 2.
    """
    return [1 + sum(is_better(other, one) for other in range(number) if other != one) for one in range(number)]


def probability_below(draws: Sequence[float], others: Sequence[float]) -> float:
    """P(X < Y) + P(X = Y)/2 of independent X and Y, estimated from draws; raises ValueError without draws.

    Source: the statistic of H. B. Mann & D. R. Whitney, Ann. Math. Statist. 18 (1947), divided by the number of pairs.
    """
    if not draws or not others:
        raise ValueError("a probability needs draws of both")
    ordered = np.sort(np.asarray(others, dtype=np.float64))
    below = np.searchsorted(ordered, draws, side="left")
    not_above = np.searchsorted(ordered, draws, side="right")
    return float(1 - (below.mean() + not_above.mean()) / 2 / ordered.size)


def sample_size_factor(gap: float, standard_error: float, z: float) -> float:
    """The factor on the amount of data with which a test tells a gap from zero with a power of 80 %; at least 1, infinite without a gap.

    ((z + z₀.₈)·SE/gap)², where z is the critical value of the test. Assumptions: the true gap is the estimated one, and the standard
    error falls with 1/√n. Source: the sample size of a z test, as in J. M. Bland, *An Introduction to Medical Statistics*, chapter 18.
    """
    return max(((z + Z_POWER) * standard_error / gap) ** 2, 1.0) if gap else math.inf


Judgement = Literal["holds", "cannot be told", "violated"]
PERCENTILE_NAMES = ("p50", "p90", "p95", "p99", "p99_9", "p99_99")
_CONSTRAINT = re.compile(r"\s*(?P<metric>[A-Za-z][\w.]*)\s*(?P<sign><=?|>=?)\s*(?P<limit>[^<>=]+?)\s*")
_ENERGY = re.compile(r"(?P<amount>\d+(?:\.\d+)?|\.\d+)\s*(?P<unit>mJ|J|kJ)")
_PRICE = re.compile(r"(?P<amount>\d+(?:\.\d+)?|\.\d+)\s*/\s*(?:h|hour)")
_COUNT = re.compile(r"\d{1,9}")
_JOULES = {"mJ": 1e-3, "J": 1.0, "kJ": 1e3}


@dataclasses.dataclass(frozen=True, slots=True)
class Constraint:
    """A limit on a figure. Times are in nanoseconds, sizes in bytes, energy in joules, prices per hour, rates per second."""

    metric: str
    limit: float
    """The limit, in the figure's base unit."""
    is_maximum: bool
    """Whether the figure must stay below the limit; otherwise above."""
    text: str
    """The constraint as reports show it: `gpu_memory < 40.0 GiB`."""

    def judge(self, figure: Estimate | None) -> Judgement:
        """`holds` if the whole interval meets the limit, `violated` if no part of it does, otherwise `cannot be told`."""
        if figure is None:
            return "cannot be told"
        best, worst = (figure.low, figure.high) if self.is_maximum else (figure.high, figure.low)
        if worst is not None and self._allows(worst):
            return "holds"
        return "violated" if best is not None and not self._allows(best) else "cannot be told"

    def _allows(self, value: float) -> bool:
        return value <= self.limit if self.is_maximum else value >= self.limit


def judge_all(constraints: tuple[Constraint, ...], figures: Mapping[str, Estimate]) -> tuple[Judgement, ...]:
    """The judgement of each constraint; `cannot be told` where the figure is missing."""
    return tuple(constraint.judge(figures.get(constraint.metric)) for constraint in constraints)


def worst_of(judgements: tuple[Judgement, ...]) -> Judgement:
    """`violated` if any judgement is that, otherwise `cannot be told` if any is that, otherwise `holds`."""
    for judgement in ("violated", "cannot be told"):
        if judgement in judgements:
            return judgement
    return "holds"


def judgements_text(judgements: Sequence[tuple[str, Judgement]]) -> str | None:
    """A summary of named constraints: `all hold`, or those that are violated or cannot be told; None without constraints."""
    if not judgements:
        return None
    named = [(bad, ", ".join(text for text, judgement in judgements if judgement == bad)) for bad in ("violated", "cannot be told")]
    return "; ".join(f"{bad}: {texts}" for bad, texts in named if texts) or "all hold"


def parse_constraint(text: str, metrics: tuple[str, ...]) -> Constraint:
    """Parse `p99<50ms`, `gpu_memory<40GiB`, `price<20/h`, `energy<3J`, `replicas<=16`, `throughput>100/s`.

    `metrics` are the names of the known figures. A figure equal to its limit meets it: `<` means the same as `<=`. Raises ValueError for
    other text and for unknown figures.
    """
    match = _CONSTRAINT.fullmatch(text)
    if not match:
        raise ValueError(f"expected a constraint such as 'gpu_memory<40GiB', found {text!r}")
    metric = match["metric"].lower().replace(".", "_")
    if metric not in metrics:
        raise ValueError(f"{match['metric']!r} is not a known figure; known are {', '.join(metrics)}")
    parse, show = _KINDS[metric]
    limit = parse(match["limit"])
    name = metric.replace("_", ".") if metric in PERCENTILE_NAMES else metric
    return Constraint(metric, limit, match["sign"][0] == "<", f"{name} {match['sign']} {show(limit)}")


def _parse_energy_j(text: str) -> float:
    match = _ENERGY.fullmatch(text)
    if not match:
        raise ValueError(f"expected an energy per inference such as 3J or 500mJ, found {text!r}")
    return float(match["amount"]) * _JOULES[match["unit"]]


def _parse_price(text: str) -> float:
    match = _PRICE.fullmatch(text)
    if not match:
        raise ValueError(f"expected the price of all replicas per hour, such as 20/h, in the currency of --price, found {text!r}")
    return float(match["amount"])


def _parse_count(text: str) -> float:
    if not _COUNT.fullmatch(text):
        raise ValueError(f"expected a whole number, found {text!r}")
    return float(text)


_Kind = tuple[Callable[[Any], float], Callable[[float], str]]
_RATE: _Kind = (parse_rate_per_s, format_rate_per_s)
_KINDS: dict[str, _Kind] = {
    **dict.fromkeys(PERCENTILE_NAMES, (parse_duration_ns, format_exact_duration)),
    **dict.fromkeys(("throughput", "goodput", "capacity"), _RATE),
    "error_rate": (parse_share, lambda share: f"{100 * share:.3g} %"),
    "gpu_memory": (parse_size_bytes, format_bytes),
    "energy": (_parse_energy_j, lambda energy_j: f"{energy_j:.3g} J"),
    "price": (_parse_price, lambda price: f"{price:,.6g}/h"),
    "replicas": (_parse_count, lambda count: f"{count:,.0f}"),
}
