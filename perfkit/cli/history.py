"""`perfkit history`: collects results in a file and finds changes of their figures over time."""

import argparse
import pathlib
import sys
from typing import TYPE_CHECKING

from perfkit.cli.exit_code import ExitCode
from perfkit.cli.options import add_results, whole_number
from perfkit.cli.output import note_unverified, write_output
from perfkit.text.terminal import write_styled

if TYPE_CHECKING:
    from perfkit.history.trend import Step, Trend

_FILE = pathlib.Path("perfkit-history.sqlite")
_MOST_TRENDS = 500  # each takes a panel, and up to seconds of permutations
_METRICS = ("throughput", "p50", "p90", "p95", "p99", "p99_9")


def configure(parser: argparse.ArgumentParser) -> None:
    """Adds the subcommands and their options."""
    parts = parser.add_subparsers(dest="part", metavar="PART", required=True)
    add = parts.add_parser("add", help="add results; those that the history has already are skipped")
    add_results(add, "a result folder or its result.json")
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
    for part in (add, listed, plot, steps):
        part.add_argument("--file", type=pathlib.Path, default=_FILE, metavar="FILE", help=f"the history file; default: {_FILE}")
        if part is not add:
            part.add_argument("--scenario", metavar="NAME", help="only this scenario")
    for part in (plot, steps):
        part.add_argument("--load-point", metavar="WORDS", help="only this load point, such as 'http, concurrency 4'")
        part.add_argument("--metric", action="append", choices=_METRICS, help="only this metric; may be repeated")
        part.add_argument("--seed", type=whole_number(0, 2**32 - 1), default=0, help="seed of the permutations; default 0")
    for part, execute in ((add, _add), (listed, _list), (plot, _plot), (steps, _steps)):
        part.set_defaults(execute=execute)


def _add(options: argparse.Namespace) -> ExitCode:
    from perfkit.errors import UsageError
    from perfkit.history.file import open_history
    from perfkit.result.file import read_result

    results = [(path, read_result(path)[0]) for path in options.results]  # all or none
    for path, result in results:
        if result.is_mix:
            raise UsageError(
                f"{path}: a history follows one workload, and this result is of a mix; give each workload a scenario of its own"
            )
    note_unverified(options.results)
    with open_history(options.file, create=True) as history:
        added = [history.add(result, str(path)) for path, result in results]
    known = "" if all(added) else f", {added.count(False)} already present"
    print(f"{options.file}: {sum(added)} added{known}")
    return ExitCode.DONE


def _list(options: argparse.Namespace) -> ExitCode:
    from perfkit.history.file import open_history
    from perfkit.report.history import history_table
    from perfkit.report.terminal_table import fitted_text, terminal_width

    with open_history(options.file) as history:
        table = history_table(history.entries(options.scenario))
    write_styled(sys.stdout, fitted_text(table, terminal_width(), ()))
    return ExitCode.DONE


def _trends(options: argparse.Namespace) -> "list[tuple[Trend, list[Step]]]":
    from perfkit.errors import UsageError
    from perfkit.history.file import open_history
    from perfkit.history.trend import find_steps

    with open_history(options.file) as history:
        trends = history.trends(options.scenario, options.load_point, tuple(options.metric or ()))
        if not trends:
            known = sorted({f"{trend.scenario}: {trend.load_point}" for trend in history.trends()})
            raise UsageError(f"{options.file}: no figures match; the history has {'; '.join(known) or 'no figures'}")
    if len(trends) > _MOST_TRENDS:
        raise UsageError(
            f"{options.file}: {len(trends):,} time series match, and at most {_MOST_TRENDS} are shown at a time: choose some with --scenario, "
            "--load-point or --metric"
        )
    return [(trend, find_steps(trend, seed=options.seed)) for trend in trends]


def _plot(options: argparse.Namespace) -> ExitCode:
    from perfkit.report.history import render_trends, render_trends_html

    render = render_trends_html if options.out.suffix == ".html" else render_trends
    write_output("--out", options.out, render(_trends(options)))
    print(options.out)
    return ExitCode.DONE


def _steps(options: argparse.Namespace) -> ExitCode:
    from perfkit.history.trend import steps_json
    from perfkit.report.history import render_steps
    from perfkit.report.terminal_table import fill, terminal_width

    trends, width = _trends(options), terminal_width()
    if options.format == "json":
        print(steps_json(trends), end="")
    else:
        print("\n".join(fill(line, width) for line in render_steps(trends).splitlines()))
    return ExitCode.DONE
