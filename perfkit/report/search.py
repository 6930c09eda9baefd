"""A capacity search as a table of its probes, for the terminal, Markdown and HTML alike."""

import math
from collections.abc import Sequence

from perfkit.result.model import Point, Result, Search, SearchProbe
from perfkit.units import format_duration_ns, format_rate_per_s


def search_headings(search: Search) -> list[str]:
    """The columns; all but the second and the last hold figures."""
    return ["probe", "stage", "rate", "throughput", *(name.replace("_", ".") for name in search.slo), "samples", "SLO"]


def search_rows(result: Result) -> list[list[str]]:
    """A row a probe, in their order."""
    assert result.search is not None
    pairs = list(zip(result.search.probes, result.points, strict=False))  # one that was interrupted is no probe
    return [_row(number, result.search, probe, point) for number, (probe, point) in enumerate(pairs, 1)]


def _row(number: int, search: Search, probe: SearchProbe, point: Point) -> list[str]:
    rates = [format_rate_per_s(probe.rate_per_s), format_rate_per_s(point.throughput_per_s)]
    limited = [_limited(name, probe, point) for name in search.slo]
    return [str(number), probe.stage, *rates, *limited, f"{point.times.count:,}", _verdict(probe)]


def _limited(name: str, probe: SearchProbe, point: Point) -> str:
    """The measured value of a limit, and what multiple of the limit it is."""
    if name == "error_rate":
        return f"{point.error_rate:.2%}"
    value = getattr(point.times, name)
    if value is None or not point.times.count:
        return "–"
    return f"{format_duration_ns(value)}{f' ({math.exp(probe.margins[name]):.2f}×)' if name in probe.margins else ''}"


def _verdict(probe: SearchProbe) -> str:
    if not probe.valid:
        return "not valid"
    if probe.overloaded:
        return "overloaded"
    return "kept" if probe.met else "missed"


def is_marked(row: Sequence[str]) -> bool:
    """Whether a row's figures are the generator's."""
    return row[-1] == "not valid"
