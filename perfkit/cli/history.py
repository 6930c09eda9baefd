"""`perfkit history`: collects results in a file and finds changes of their figures over time."""

import argparse
import pathlib
import sys
from typing import TYPE_CHECKING

from perfkit.cli.exit_code import ExitCode
from perfkit.cli.options import add_accepted, add_results, find_accepted_file, read_accepted_changes, whole_number
from perfkit.cli.output import note_unverified, write_output
from perfkit.text import write_styled

if TYPE_CHECKING:
    from collections.abc import Sequence

    from perfkit.history.check import Gap
    from perfkit.history.file import Choice
    from perfkit.history.series import HistoryEntry, HistoryRecord, Series
    from perfkit.history.trend import Step, Trend

_FILE = pathlib.Path("perfkit-history.sqlite")
_MOST_TRENDS = 500  # each takes a panel, and up to seconds of simulations
_METRICS = ("throughput", "p50", "p90", "p95", "p99", "p99_9", "cpu_time")
_SERIES = {
    "scenario": ("NAME", "only this scenario"),
    "branch": ("NAME", "only this branch; '' for results whose branch is unknown"),
    "machine": ("NAME", "only this machine"),
    "model": ("NAME", "only this model, with its version if it has one, such as 'simple 1'"),
    "payload": ("DIGEST", "only this payload"),
}


def configure(parser: argparse.ArgumentParser) -> None:
    """Adds the subcommands and their options."""
    parts = parser.add_subparsers(dest="part", metavar="PART", required=True)
    add = parts.add_parser(
        "add", help="add results, or verdicts of a server against itself; those that the history has already are skipped"
    )
    add_results(
        add,
        "a result folder or its result.json; or the folder or verdict.json of a gate whose baseline is its candidate, or with --control",
    )
    add.add_argument("--branch", metavar="NAME", help="the branch; default: the results' own, or that of the CI job")
    start = "the branch that this one was made from: its first results are compared with the newest level there; default: the target branch of the CI job"
    add.add_argument("--start-from", metavar="BRANCH", help=start)
    add.add_argument("--machine", metavar="NAME", help="a name for machines of one kind; default: the results' host id")
    listed = parts.add_parser("list", help="list the results")
    plot = parts.add_parser("plot", help="plot trends with their steps, as SVG or as a page")
    plot.add_argument(
        "--out",
        type=pathlib.Path,
        default=pathlib.Path("history.svg"),
        metavar="FILE",
        help="a page if it ends in .html; default: history.svg",
    )
    steps = parts.add_parser("steps", help="find changes of level, and their commits")
    steps.add_argument("--format", choices=("text", "json"), default="text")
    check = parts.add_parser("check", help="exit with 1 if a series got worse and nobody accepted it, or has no new results")
    age = "alarm if a series has no result with valid figures since this time, such as 2d or 36h; default: silence is no alarm"
    check.add_argument("--max-age", type=_period_s, metavar="TIME", help=age)
    recent = "tell steps among so many last results of a series, or since a time such as 14d; default: 30 results"
    check.add_argument("--recent", type=_recent, default=30, metavar="N|TIME", help=recent)
    check.add_argument("--format", choices=("text", "json"), default="text")
    for part in (add, listed, plot, steps, check):
        part.add_argument("--file", type=pathlib.Path, default=_FILE, metavar="FILE", help=f"the history file; default: {_FILE}")
        for name, (metavar, text) in _SERIES.items() if part is not add else ():
            part.add_argument(f"--{name}", metavar=metavar, help=text)
    for part in (plot, steps, check):
        add_accepted(part)
        part.add_argument("--load-point", metavar="WORDS", help="only this load point, such as 'http, concurrency 4'")
        part.add_argument("--metric", action="append", metavar="NAME", help=f"only this metric ({', '.join(_METRICS)}, …); may be repeated")
        part.add_argument("--seed", type=whole_number(0, 2**32 - 1), default=0, help="seed of the simulations; default 0")
    for part, execute in ((add, _add), (listed, _list), (plot, _plot), (steps, _steps), (check, _check)):
        part.set_defaults(execute=execute)


def _period_s(text: str) -> float:
    """Seconds of a time such as `2d`, `36h` or `90m`."""
    from perfkit.units import NS_PER_S, parse_duration_ns

    try:
        seconds = 24 * parse_duration_ns(f"{text[:-1]}h") / NS_PER_S if text.endswith("d") else parse_duration_ns(text) / NS_PER_S
    except ValueError:
        seconds = 0.0
    if seconds <= 0:
        raise argparse.ArgumentTypeError(f"expected a time such as 2d or 36h, found {text!r}")
    return seconds


def _recent(text: str) -> int | float:
    """A whole number of results, or seconds of a time."""
    return whole_number(1, 1_000_000)(text) if text.isdecimal() else _period_s(text)


def _add(options: argparse.Namespace) -> ExitCode:
    from perfkit.errors import UsageError
    from perfkit.history.file import open_history
    from perfkit.result.provenance import target_branch_of_job

    records = [_record(path, options) for path in options.results]  # all or none
    branches = {record.series.branch for record in records}
    start_from = options.start_from or target_branch_of_job() or None
    if options.start_from in branches:
        raise UsageError(f"--start-from {options.start_from}: a branch cannot start from itself; name the branch that it was made from")
    note_unverified(path for path, record in zip(options.results, records, strict=True) if record.series.kind == "result")
    with open_history(options.file, create=True) as history:
        if options.start_from is not None:
            known = {series.branch for series, _, _ in history.entries()}
            if options.start_from not in known:
                listed = ", ".join(sorted(filter(None, known))) or "none"
                raise UsageError(
                    f"--start-from {options.start_from}: {options.file} has no results of this branch; it has those of {listed}"
                )
        added = history.add(records, None if start_from in branches else start_from)
    known_already = "" if all(added) else f", {added.count(False)} already present"
    print(f"{options.file}: {sum(added)} added{known_already}")
    return ExitCode.DONE


def _record(path: pathlib.Path, options: argparse.Namespace) -> "HistoryRecord":
    """What the history stores of a result, or of a verdict of a server against itself; raises UsageError."""
    from perfkit.errors import UsageError
    from perfkit.gate.accepted import record_of_canary
    from perfkit.gate.folder import VERDICT_FILE, read_verdict
    from perfkit.history.series import record_of_result
    from perfkit.result.file import read_result
    from perfkit.result.provenance import branch_of_job
    from perfkit.result.scan import NOT_COMPARED

    branch, machine = options.branch or "", options.machine or ""
    if path.name == VERDICT_FILE or (path / VERDICT_FILE).is_file():
        verdict = read_verdict(path)
        record = record_of_canary(verdict, str(path), branch=branch, machine=machine)
        return record if record.series.branch else record_of_canary(verdict, str(path), branch=branch_of_job(), machine=machine)
    result = read_result(path)[0]
    if result.is_mix:
        raise UsageError(f"{path}: a history follows one workload, and this result is of a mix; give each workload a scenario of its own")
    if result.is_scan:
        raise UsageError(f"{path}: {NOT_COMPARED}")
    record = record_of_result(result, str(path), branch=branch, machine=machine)
    return record if record.series.branch else record_of_result(result, str(path), branch=branch_of_job(), machine=machine)


def _choice(options: argparse.Namespace) -> "Choice":
    from perfkit.history.file import Choice

    return Choice(
        **{name: getattr(options, name) for name in _SERIES},
        load_point=getattr(options, "load_point", None),
        metrics=tuple(getattr(options, "metric", None) or ()),
    )


def _list(options: argparse.Namespace) -> ExitCode:
    from perfkit.history.file import open_history
    from perfkit.report.history import history_table
    from perfkit.report.terminal import fitted_text, terminal_width

    with open_history(options.file) as history:
        table = history_table(history.entries(_choice(options)))
    write_styled(sys.stdout, fitted_text(table, terminal_width(), ()))
    return ExitCode.DONE


def _trends(options: argparse.Namespace) -> "list[tuple[Trend, list[Step]]]":
    from perfkit.errors import UsageError
    from perfkit.history.file import open_history
    from perfkit.history.trend import with_starts

    choice = _choice(options)
    with open_history(options.file) as history:
        every, starts = history.trends(), history.starts()
    trends = [trend for trend in every if choice.has_trend(trend)]
    if not trends:
        known = sorted({f"{trend.scenario}: {trend.load_point} ({trend.series.place})" for trend in every})
        raise UsageError(f"{options.file}: no figures match; the history has {'; '.join(known) or 'no figures'}")
    if len(trends) > _MOST_TRENDS:
        raise UsageError(
            f"{options.file}: {len(trends):,} time series match, and at most {_MOST_TRENDS} are shown at a time: choose some with --scenario, "
            "--branch, --load-point or --metric"
        )
    return _with_steps(with_starts(trends, every, starts), options)


def _with_steps(trends: "Sequence[Trend]", options: argparse.Namespace, together: int = 1) -> "list[tuple[Trend, list[Step]]]":
    """Trends with their steps, and what has been accepted of those; so many trends share the false steps."""
    from perfkit.history.trend import find_steps, with_acceptances

    accepted = read_accepted_changes(find_accepted_file(options)).changes
    return [(trend, with_acceptances(trend, find_steps(trend, seed=options.seed, trends=together), accepted)) for trend in trends]


def _check(options: argparse.Namespace) -> ExitCode:
    from perfkit.clock import utc_now
    from perfkit.errors import UsageError
    from perfkit.history.check import Recent, check_history, check_json, current_series, is_judged
    from perfkit.history.file import open_history
    from perfkit.history.trend import with_starts
    from perfkit.report.history import render_check
    from perfkit.report.terminal import fill, terminal_width

    choice = _choice(options)
    with open_history(options.file) as history:
        entries, every, starts = history.entries(), history.trends(), history.starts()
    results: dict[Series, list[HistoryEntry]] = {}
    for series, _, entry in entries:
        if choice.has(series):
            results.setdefault(series, []).append(entry)
    current = current_series(results, starts, options.branch)
    if not current:
        known = sorted({f"{series.scenario} ({series.place})" for series, _, _ in entries})
        raise UsageError(f"{options.file}: no series match; the history has {'; '.join(known) or 'no results'}")
    trends = with_starts([trend for trend in every if trend.series in current and choice.has_trend(trend)], every, starts)
    judged = [trend for trend in trends if is_judged(trend, options.metric or ())]
    recent = Recent(results=options.recent) if isinstance(options.recent, int) else Recent(None, options.recent)
    checked = check_history(
        _with_steps(judged, options, max(len(judged), 1)),
        {series: results[series] for series in current},
        every,
        now=utc_now(),
        max_age_s=options.max_age,
        recent=recent,
    )
    if options.format == "json":
        print(check_json(checked), end="")
    else:
        width = terminal_width()
        print("\n".join(fill(line, width) for line in render_check(str(options.file), checked).splitlines()))
    return ExitCode.VIOLATED if checked.alarms else ExitCode.DONE


def _plot(options: argparse.Namespace) -> ExitCode:
    from perfkit.report.history import render_trends, render_trends_html

    trends = _trends(options)
    text = render_trends_html(trends, _gaps(trends, options)) if options.out.suffix == ".html" else render_trends(trends)
    write_output("--out", options.out, text)
    print(options.out)
    return ExitCode.DONE


def _gaps(trends: "Sequence[tuple[Trend, list[Step]]]", options: argparse.Namespace) -> "list[Gap]":
    """The missing results of the series that are shown."""
    from perfkit.clock import utc_now
    from perfkit.history.check import find_gaps
    from perfkit.history.file import open_history

    results: dict[Series, list[HistoryEntry]] = {trend.series: [] for trend, _ in trends}
    with open_history(options.file) as history:
        for series, _, entry in history.entries():
            if series in results:
                results[series].append(entry)
        forked = history.starts()
    return find_gaps(results, [trend for trend, _ in trends], utc_now(), forked)


def _steps(options: argparse.Namespace) -> ExitCode:
    from perfkit.history.trend import steps_json
    from perfkit.report.history import render_steps
    from perfkit.report.terminal import fill, terminal_width

    trends, width = _trends(options), terminal_width()
    if options.format == "json":
        print(steps_json(trends), end="")
    else:
        print("\n".join(fill(line, width) for line in render_steps(trends).splitlines()))
    return ExitCode.DONE
