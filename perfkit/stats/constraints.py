"""Constraints on the figures of a configuration, such as `gpu_memory<40GiB`: parsing, and judgement by an interval."""

import dataclasses
import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Literal

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
    """`violated` if one is, otherwise `cannot be told` if one is, otherwise `holds`."""
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
