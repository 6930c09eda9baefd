"""A bisection: its gates as a table, what stdout shows, and Markdown."""

import sys

from perfkit.bisection.folder import Bisection, RevisionGate
from perfkit.report.render import render_markdown_table
from perfkit.report.table import Cell, Column, Mark, Table
from perfkit.report.terminal import fill, fitted_text, print_status_line, terminal_width
from perfkit.text import markdown as escape
from perfkit.text import sentence, write_styled
from perfkit.units import format_signed_change

OUTCOMES = {
    "found": "found: the first slower revision",
    "inconclusive": "inconclusive: the first slower revision was not found",
    "incomparable": "incomparable: the revisions get different requests",
    "invalid": "invalid: a measurement cannot be relied on",
}
_SYMBOLS = {"found": "🎯", "inconclusive": "❔", "incomparable": "🚫", "invalid": "⚠️"}
_STYLES = {"found": "green", "inconclusive": "yellow", "incomparable": "bold red", "invalid": "bold red"}
_MARKS: dict[str, Mark] = {"slower": "regressed", "not_slower": "pass", "undecided": "inconclusive", "skipped": "information"}
_GIVES_WAY = ("author_date", "pairs", "subject")


def gates_table(bisection: Bisection) -> Table:
    """One row per revision that was measured or skipped, in the order of the history, the bad one last."""
    columns = (
        Column("position", "revision", "number", lambda gate: Cell(gate.position, f"{gate.position} of {bisection.revisions}")),
        Column("sha", "commit", "code", lambda gate: gate.revision.short),
        Column("author_date", "author date", value=lambda gate: gate.revision.author_date[:10]),
        Column("subject", "subject", value=lambda gate: gate.revision.subject),
        Column("pairs", "pairs", "count", lambda gate: gate.pairs or None),
        Column("change", "change [interval]", "figure", lambda gate: _change(bisection, gate)),
        Column("outcome", "outcome", value=lambda gate: gate.outcome.replace("_", " ")),
    )
    gates = [*bisection.gates]
    if (regression := bisection.regression) is not None:
        gates.append(
            RevisionGate(
                position=bisection.revisions,
                revision=bisection.bad,
                outcome="slower",
                reason="",
                pairs=regression.pairs,
                estimate=regression.estimate,
                interval=regression.interval,
            )
        )
    gates.sort(key=lambda gate: gate.position)
    return Table.of("gates", "Gates", columns, gates, _caption(bisection), [_MARKS[gate.outcome] for gate in gates])


def print_bisection(bisection: Bisection) -> None:
    """Prints the outcome on stdout: its sentences, and the gates."""
    width = terminal_width()
    lines = [
        fill(text, width) for text in (f"{bisection.kind.upper()}: {sentence(_first(bisection))}", *map(sentence, bisection.reasons[1:]))
    ]
    if (first := bisection.first_slower) is not None:
        lines += ["", fill(f"first slower revision: {first.sha}, {sentence(first.subject)}, written on {first.author_date}", width)]
    if bisection.gates or bisection.regression is not None:
        lines += ["", fitted_text(gates_table(bisection), width, _GIVES_WAY, "bisection.json has them")]
    write_styled(sys.stdout, "\n".join(lines) + "\n")
    sys.stdout.flush()


def print_bisection_status(bisection: Bisection, exit_code: int) -> None:
    """Prints the outcome and the exit code on stderr as one line."""
    gates = _gates(bisection)
    print_status_line(bisection.kind, f"{gates} gate{'s' * (gates != 1)}", exit_code, _STYLES[bisection.kind])


def render_bisection_markdown(bisection: Bisection) -> str:
    """GitHub Markdown: the outcome, its sentences, and the gates."""
    lines = [f"## {_SYMBOLS[bisection.kind]} perfkit bisect: {escape(bisection.scenario)}", "", f"**{OUTCOMES[bisection.kind]}**", ""]
    if (first := bisection.first_slower) is not None:
        lines += [f"`{first.sha}` {escape(first.subject)}, written on {escape(first.author_date)}", ""]
    lines += [*(f"- {escape(reason)}" for reason in bisection.reasons), ""]
    if bisection.gates or bisection.regression is not None:
        lines += [render_markdown_table(gates_table(bisection)), "", f"{escape(_caption(bisection))}."]
    return "\n".join(lines).rstrip() + "\n"


def _first(bisection: Bisection) -> str:
    return bisection.reasons[0] if bisection.reasons else OUTCOMES[bisection.kind]


def _gates(bisection: Bisection) -> int:
    return 1 + sum(gate.pairs > 0 for gate in bisection.gates)


def _change(bisection: Bisection, gate: RevisionGate) -> str | None:
    if bisection.regression is None or gate.estimate is None:
        return None
    return format_signed_change(bisection.regression.scale, gate.estimate, gate.interval)


def _caption(bisection: Bisection) -> str:
    good, regression = bisection.good.short, bisection.regression
    if regression is None:
        return f"each revision against {good}"
    limit = format_signed_change(regression.scale, regression.threshold)
    wrong = "" if bisection.error_rate is None else f"; the answer is wrong with a probability of at most {bisection.error_rate:.0%}"
    return (
        f"{regression.metric}, {regression.load_point}, each revision against {good}; {regression.confidence:.1%} intervals; slower is beyond "
        f"{limit}{wrong}"
    )
