"""The summary as GitHub Markdown, and the headline table's cells, which the HTML page shows too."""

import dataclasses
import re
from collections.abc import Callable, Collection, Mapping, Sequence

from perfkit.report.calibration import ceilings, read_kept
from perfkit.report.search import search_headings, search_rows
from perfkit.result.distribution import QUANTILES
from perfkit.result.model import Point, Result
from perfkit.stats.sample_size import is_withheld
from perfkit.units import format_duration_ns, format_rate_per_s

WITHHELD = "–"
# what the times of a table are, for the sentence under it
TIMES = {"service time": "service times, finished − started", "response time": "response times, finished − intended start"}
_SPECIAL = re.compile(r"([\\`*_\[\]<>|&])")


@dataclasses.dataclass(frozen=True, slots=True)
class Cell:
    """A figure as it is shown, and what there is to say about it."""

    text: str
    note: str = ""


@dataclasses.dataclass(frozen=True, slots=True)
class Column:
    """A column of a table of points; figures stand on the right."""

    heading: str
    cell: Callable[[Point], Cell]
    is_figure: bool = True


@dataclasses.dataclass(frozen=True, slots=True)
class GroupedWarning:
    """One warning, once, and the load points it concerns."""

    code: str
    message: str
    where: str


def render_markdown(result: Result) -> str:
    """The headline table and the warnings."""
    lines = [f"# {escaped(scenario_name(result))}", ""]
    lines += [f"> **{escaped(sentence)}**\n" for sentence in [status_sentence(result)] if sentence]
    if result.search is not None:
        lines += ["## Capacity", "", f"**{escaped(result.search.reason)}**", ""]
        lines += markdown_table(search_headings(result.search), search_rows(result), words=(1, len(search_headings(result.search)) - 1))
        lines += ["", "## Load points", ""]
    if result.summary:
        columns = headline(result.summary)
        lines += ["| " + " | ".join(column.heading for column in columns) + " |"]
        lines += ["|" + "|".join("---:" if column.is_figure else "---" for column in columns) + "|"]
        lines += ["| " + " | ".join(escaped(column.cell(point).text) for column in columns) + " |" for point in result.summary]
        lines += ["", f"p50 to max are {TIMES[result.summary[0].times_name]}; – marks percentiles that too few samples carry."]
    else:
        lines += ["No load point was measured."]
    generator = result.environment.get("generator")
    if isinstance(generator, Mapping) and (calibration := read_kept(generator)):
        lines += ["", ceilings(calibration)]
    warnings = grouped_warnings(result.summary)
    if warnings:
        lines += ["", "## Warnings", ""]
        lines += [f"- **{escaped(one.where)}**: {escaped(one.message)} (`{one.code.replace('`', '')}`)" for one in warnings]
    judged = [(point, point.slo) for point in result.summary if point.slo is not None]
    if judged:
        lines += ["", "## SLO", ""]
        lines += [f"- **{point.protocol}, {escaped(point.load.title)}**: {escaped(slo.reason)}" for point, slo in judged]
    return "\n".join(lines) + "\n"


def markdown_table(headings: Sequence[str], rows: Sequence[Sequence[str]], words: Collection[int] = ()) -> list[str]:
    """Lines of a table of texts; the columns `words`, counted from 0, stand on the left."""
    ruler = "|".join("---" if index in words else "---:" for index in range(len(headings)))
    return [f"| {' | '.join(map(escaped, headings))} |", f"|{ruler}|", *(f"| {' | '.join(map(escaped, row))} |" for row in rows)]


def scenario_name(result: Result) -> str:
    """The scenario's name, for titles."""
    return str(result.scenario.get("name") or "result")


def status_sentence(result: Result) -> str:
    """What a reader must know before the figures; empty where the run is complete."""
    sentences = {
        "complete": "",
        "interrupted": "This run was interrupted; the figures hold what was measured until then.",
        "incomplete": "This run is incomplete; the figures hold what was measured until it broke off.",
        "invalid": "This measurement is not valid; do not rely on its figures.",
    }
    reason = f" Reason: {result.status_reason.rstrip('.')}." if result.status_reason and result.status_reason != result.status else ""
    return sentences[result.status] + (reason if result.status != "complete" else "")


def grouped_warnings(points: Sequence[Point]) -> list[GroupedWarning]:
    """Each warning once, those of a kind together, with the points it concerns."""
    grouped: dict[str, dict[str, list[Point]]] = {}
    for point in points:
        for warning in dict.fromkeys(point.warnings):
            grouped.setdefault(warning.code, {}).setdefault(warning.message, []).append(point)
    return [GroupedWarning(code, message, _where(some, points)) for code, messages in grouped.items() for message, some in messages.items()]


def percentile_cell(point: Point, name: str) -> Cell:
    """A percentile of the point's times, `p99_9` for instance, or why it is withheld."""
    figures, quantile = point.times, QUANTILES[name]
    value = getattr(figures, name)
    if not figures.count:
        return Cell(WITHHELD, "no request of this point was answered")
    if value is None:
        why = f"withheld: needs at least {round(1 / (1 - quantile)):,} samples, this point has {figures.count:,}"
        return Cell(WITHHELD, why if is_withheld(quantile, figures.count) else "withheld")
    low, high = point.intervals.get(name, (None, None))
    interval = "" if low is None else f"95% interval: {format_duration_ns(low)} to {'above' if high is None else format_duration_ns(high)}"
    return Cell(format_duration_ns(value), interval)


def maximum_cell(point: Point) -> Cell:
    """The longest of the point's times."""
    figures = point.times
    return Cell(format_duration_ns(figures.max)) if figures.count else Cell(WITHHELD, "no request of this point was answered")


def share(value: float) -> str:
    """A share as percent; a small one stays apart from none at all."""
    if 0 < value < 0.0001:
        return "<0.01%"
    return f"{value:.2%}" if value else "0"


def _where(some: Sequence[Point], points: Sequence[Point]) -> str:
    """The points by protocol: `http, concurrency 1, 4; grpc, concurrency 8`."""
    if len(some) == len(points) > 1:
        return "all load points"
    by_protocol: dict[str, list[str]] = {}
    for point in some:
        by_protocol.setdefault(point.protocol, []).append(point.load.amount)
    kind = "concurrency " if points[0].load.kind == "closed" else ""
    return "; ".join(f"{protocol}, {kind}{', '.join(amounts)}" for protocol, amounts in by_protocol.items())


def escaped(text: str) -> str:
    """On one line, and without a meaning to Markdown or HTML."""
    return _SPECIAL.sub(r"\\\1", " ".join(text.split()))


def _percentile_column(name: str) -> Column:
    return Column(name.replace("_", "."), lambda point: percentile_cell(point, name))


_PROTOCOL = Column("protocol", lambda point: Cell(point.protocol), is_figure=False)
THROUGHPUT = Column("throughput", lambda point: Cell(format_rate_per_s(point.throughput_per_s)))
PERCENTILES = tuple(_percentile_column(name) for name in ("p50", "p90", "p95", "p99", "p99_9"))
ENDING = (
    Column("max", maximum_cell),
    Column(
        "errors",
        lambda point: Cell(
            share(point.error_rate), f"{point.requests.scheduled - point.requests.ok:,} of {point.requests.scheduled:,} requests"
        ),
    ),
    Column(
        "generator CPU", lambda point: Cell(f"{point.generator.cpu_share:.{0 if point.generator.cpu_share >= 0.1 else 1}%}", "of one core")
    ),
    Column("valid", lambda point: Cell("yes" if point.valid else "no"), is_figure=False),
)
_INFERENCES = Column("inferences", lambda point: Cell(format_rate_per_s(point.inferences_per_s)))
_GOODPUT = Column(
    "goodput", lambda point: Cell(format_rate_per_s(point.goodput_per_s or 0.0), "ok answers a second within the SLO's limit on times")
)


def load_columns(points: Sequence[Point]) -> tuple[Column, ...]:
    """The columns that name a load point."""
    is_closed = not points or points[0].load.kind == "closed"
    return (_PROTOCOL, Column("concurrency" if is_closed else "rate", lambda point: Cell(point.load.amount)))


def headline(points: Sequence[Point]) -> tuple[Column, ...]:
    """The columns of the summary."""
    goodput = (_GOODPUT,) if any(point.goodput_per_s is not None for point in points) else ()
    return (*load_columns(points), THROUGHPUT, _INFERENCES, *goodput, *PERCENTILES, *ENDING)
