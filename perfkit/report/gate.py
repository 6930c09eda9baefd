"""A gate's verdict on stdout: what it covers, a table of the metrics, and why."""

import sys

from perfkit.gate.verdict import MAXIMUM_EFFECT, Comparison, Verdict, format_change
from perfkit.report.text import drawn
from perfkit.report.verdict import counts
from perfkit.units import format_duration_ns, format_rate_per_s

_COLUMNS = ("metric", "load point", "baseline", "candidate", "format_change", "adj. p", "margin", "finds", "verdict")
_LEFT = {"metric", "load point", "verdict"}
_STYLES = {"pass": "green", "regressed": "bold red", "inconclusive": "yellow"}


def print_verdict(verdict: Verdict) -> None:
    """Prints the verdict on stdout: what it covers, the metrics, and why."""
    lines = [f"note: {note}" for note in verdict.notes]
    if verdict.comparisons:
        lines.append(_table(verdict.comparisons, f"baseline {verdict.baseline}, candidate {verdict.candidate}; {counts(verdict)}"))
    if verdict.control:
        lines.append(_table(verdict.control, f"control: baseline {verdict.baseline} with itself; {verdict.control_pairs} pairs"))
    lines += [f"{verdict.kind.upper()}: {verdict.reasons[0] if verdict.reasons else ''}", *verdict.reasons[1:]]
    sys.stdout.write("\n".join(lines) + "\n")
    sys.stdout.flush()


def _table(comparisons: tuple[Comparison, ...], caption: str) -> str:
    rows = []
    for one in comparisons:
        adjusted = "" if one.adjusted_p is None else f"{one.adjusted_p:.2g}"
        cells = [one.metric, one.load_point, figure(one, one.baseline), figure(one, one.candidate), format_change(one), adjusted]
        cells += [share(one, one.margin), share(one, one.minimum_detectable_effect), one.verdict] if one.gated else ["", "", "–"]
        rows.append((cells, _STYLES[one.verdict] if one.gated else "dim"))
    legend = f"{comparisons[0].confidence:.1%} intervals; finds: so much worse is found in 9 of 10 gates as noisy as this one"
    return f"{drawn(_COLUMNS, rows, _LEFT)}\n{caption}\n{legend}\n"


def figure(one: Comparison, value: float | None) -> str:
    """A metric's figure in its unit, as people read it."""
    if value is None:
        return "–"
    if one.unit == "share":
        return f"{value:.3%}"
    return format_duration_ns(value) if one.unit == "ns" else format_rate_per_s(value)


def share(one: Comparison, value: float | None) -> str:
    """A margin or an effect on the metric's scale."""
    if value is None:
        return "–"
    if one.scale == "difference":
        return f"{100 * value:.2g} points"
    return f">{MAXIMUM_EFFECT:.0%}" if value >= MAXIMUM_EFFECT else f"{value:.1%}"
