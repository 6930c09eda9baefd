"""Results side by side, as text for a terminal, Markdown, JSON and a page of HTML."""

import dataclasses
import html
import json
from collections.abc import Iterator, Sequence

from perfkit.comparison.result_comparison import NOT_COVERED, ResultComparison, Row, Side
from perfkit.report.markdown import WITHHELD, escaped
from perfkit.result.fingerprint import Difference
from perfkit.stats.ratio_interval import Estimate
from perfkit.units import format_duration_ns, format_rate_per_s

SCHEMA = "perfkit.comparison/1"
_LONGEST_VALUE = 60
_STYLE = (
    "body{margin:0 auto;max-width:76rem;padding:1.5rem;font:15px/1.5 system-ui,sans-serif}table{border-collapse:collapse}"
    "th,td{padding:.25rem .6rem;border-bottom:1px solid #d8dee4;text-align:left;vertical-align:top}"
    "td.figure{text-align:right;white-space:nowrap;font-variant-numeric:tabular-nums}"
)


def comparison_text(compared: ResultComparison) -> str:
    """For a terminal: what differs first, then a block of aligned lines for each load point."""
    lines = [f"[{index}] {_side(side)}" for index, side in enumerate(compared.sides, 1)]
    differing = list(_differences(compared))
    lines += ["", *(["What differs from [1]:", *(f"  {line}" for line in differing)] if differing else ["Nothing recorded differs."])]
    lines += ["", *(f"note: {note}" for note in compared.notes)] if compared.notes else []
    for load_point, rows in _by_load_point(compared.rows):
        table = [["", *(f"[{index}]" for index in range(1, len(compared.sides) + 1))], *([row.metric, *_cells(row)] for row in rows)]
        widths = [max(len(row[column]) for row in table) for column in range(len(table[0]))]
        lines += ["", load_point]
        lines += ["  " + "   ".join([row[0].ljust(widths[0]), *map(str.rjust, row[1:], widths[1:])]).rstrip() for row in table]
    return "\n".join([*lines, "", NOT_COVERED, ""])


def comparison_markdown(compared: ResultComparison) -> str:
    """GitHub Markdown with one table."""
    lines = ["# Results side by side", ""]
    lines += [f"{index}. {escaped(_side(side))}" for index, side in enumerate(compared.sides, 1)]
    differing = list(_differences(compared))
    lines += ["", "## What differs from 1", "", *([f"- {escaped(line)}" for line in differing] or ["Nothing recorded differs."])]
    lines += ["", *(f"> {escaped(note)}\n" for note in compared.notes)] if compared.notes else []
    numbers = [str(index) for index in range(1, len(compared.sides) + 1)]
    lines += ["", "## Figures", "", f"| load point | metric | {' | '.join(numbers)} |", f"|---|---|{'---:|' * len(numbers)}"]
    lines += [f"| {escaped(row.load_point)} | {row.metric} | {' | '.join(map(escaped, _cells(row)))} |" for row in compared.rows]
    return "\n".join([*lines, "", NOT_COVERED, ""])


def comparison_json(compared: ResultComparison) -> str:
    """The values as they are: nanoseconds, rates per second, shares; changes are ratios to the first, of shares differences."""
    return json.dumps({"schema": SCHEMA, **dataclasses.asdict(compared), "not_covered": NOT_COVERED}, indent=1) + "\n"


def comparison_html(compared: ResultComparison) -> str:
    """A page that needs nothing else."""
    sides = "".join(f"<li>{html.escape(_side(side))}</li>" for side in compared.sides)
    differing = "".join(f"<li>{html.escape(line)}</li>" for line in _differences(compared)) or "<li>Nothing recorded differs.</li>"
    notes = "".join(f"<p><strong>{html.escape(note)}</strong></p>" for note in compared.notes)
    head = "".join(f'<th scope="col">{index}</th>' for index in range(1, len(compared.sides) + 1))
    rows = "".join(
        f"<tr><td>{html.escape(row.load_point)}</td><td>{row.metric}</td>"
        + "".join(f'<td class="figure">{html.escape(cell)}</td>' for cell in _cells(row))
        + "</tr>\n"
        for row in compared.rows
    )
    return (
        f'<!DOCTYPE html>\n<html lang="en"><head><meta charset="utf-8"><title>Results side by side</title><style>{_STYLE}</style></head>\n'
        f"<body><h1>Results side by side</h1><ol>{sides}</ol><h2>What differs from 1</h2><ul>{differing}</ul>{notes}\n"
        f'<h2>Figures</h2><table><thead><tr><th scope="col">load point</th><th scope="col">metric</th>{head}</tr></thead>\n'
        f"<tbody>{rows}</tbody></table><p>{html.escape(NOT_COVERED)}</p></body></html>\n"
    )


def _side(side: Side) -> str:
    commit = f", commit {side.commit[:12]}" if side.commit else ""
    return f"{side.label}: started {side.started_at}{commit}{'' if side.status == 'complete' else f', {side.status}'}"


def _differences(compared: ResultComparison) -> Iterator[str]:
    """What matters for the figures first; with more than two results each line says whose it is."""
    for index, side in enumerate(compared.sides[1:], 2):
        for one in sorted(side.differences, key=lambda one: one.severity):
            mark = "!" if one.severity == "incomparable" else " "
            yield f"{mark} {f'[{index}] ' if len(compared.sides) > 2 else ''}{one.key}: {_pair(one)}"


def _pair(one: Difference) -> str:
    return f"{_short(one.baseline)} → {_short(one.candidate)}"


def _short(value: object) -> str:
    text = "–" if value in (None, "") else value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
    return text if len(text) <= _LONGEST_VALUE else text[:_LONGEST_VALUE] + "…"


def _by_load_point(rows: Sequence[Row]) -> list[tuple[str, list[Row]]]:
    return [(name, [row for row in rows if row.load_point == name]) for name in dict.fromkeys(row.load_point for row in rows)]


def _cells(row: Row) -> list[str]:
    """A figure for each result, and how it differs from the first."""
    return [_value(row, value) + _change(row, change) for value, change in zip(row.values, row.changes, strict=True)]


def _value(row: Row, value: Estimate | None) -> str:
    if value is None:
        return WITHHELD
    if row.unit == "share":
        return f"{value.value:.3%}" if value.value else "0"
    return format_rate_per_s(value.value) if row.unit == "per_s" else format_duration_ns(value.value)


def _change(row: Row, change: Estimate | None) -> str:
    """` +12.3 % [+7.9, +16.8]`; of shares in percentage points."""
    if change is None:
        return ""
    origin = 1.0 if row.is_ratio else 0.0
    digits, unit = (1, "%") if row.is_ratio else (3, "pp")
    value, low, high = (None if one is None else (one - origin) * 100 for one in (change.value, change.low, change.high))
    ends = [WITHHELD if one is None else f"{one:+.{digits}f}" for one in (low, high)]
    return f" {value:+.{digits}f} {unit} [{ends[0]}, {ends[1]}]"
