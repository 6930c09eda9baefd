"""`perfkit run`: measures a scenario and writes its result folder."""

import argparse
import contextlib
import json
import os
import pathlib
from typing import TYPE_CHECKING

from perfkit import digits
from perfkit.cli.exit_code import ExitCode, exit_code_of
from perfkit.cli.options import (
    add_budget,
    add_otlp,
    add_resume,
    check_resume,
    command_that_continues,
    complete_result,
    default_place,
    whole_number,
    whole_points,
)
from perfkit.cli.output import reader_may_leave
from perfkit.cli.run_session import RunSession, print_nothing
from perfkit.cli.url_scenario import add_scenario_or_url_options, scenario_source
from perfkit.process.start_module import DRAWING, SAMPLER, WORKER, end_started_ahead, start_ahead

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from perfkit.errors import PerfkitError
    from perfkit.result.model import Result
    from perfkit.result.sweep import SweepFolder
    from perfkit.scenario.file import Case


_EXIT_CODE_OF_SEARCH = {"never_met": ExitCode.VIOLATED, "generator": ExitCode.INVALID, "cold": ExitCode.INVALID}
_EXIT_CODE_OF_SEARCH |= dict.fromkeys(("precision", "cliff", "never_missed"), ExitCode.DONE)
_EXIT_CODE_OF_STATUS = {
    "invalid": ExitCode.INVALID, "incomplete": ExitCode.TARGET, "unsuccessful": ExitCode.TARGET, "interrupted": ExitCode.INTERRUPTED,
}  # fmt: skip
# the exit code of a sweep is the first of these that one of its cases has
_NAMES_BY_SEVERITY = ("HUNG_UP", "TERMINATED", "INTERRUPTED", "TARGET", "INVALID", "USAGE", "VIOLATED", "INCONCLUSIVE", "DONE")
_BY_SEVERITY = tuple(ExitCode[name] for name in _NAMES_BY_SEVERITY)


def configure(parser: argparse.ArgumentParser) -> None:
    """Adds the command's options."""
    add_scenario_or_url_options(parser)
    parser.add_argument("--out", type=pathlib.Path, metavar="DIR", help=f"result folder; {default_place('<name>')}")
    add_resume(parser)
    add_budget(parser)
    parser.add_argument("--format", choices=("text", "json"), default="text", help="what is printed to stdout: a table, or result.json")
    parser.add_argument("--no-report", action="store_true", help="write no report; `perfkit report DIR` writes it later")
    parser.add_argument("--quiet", action="store_true", help="print no progress and no warnings to stderr")
    inconclusive = (
        "exit code if there are too few samples to judge the SLO: 3 (fail) or 0 (pass, unless a measured figure is beyond its limit)"
    )
    parser.add_argument("--on-inconclusive", choices=("fail", "pass"), default="fail", help=inconclusive)
    live = "serve live metrics for Prometheus at http://HOST:PORT/metrics; HOST defaults to 127.0.0.1, PORT 0 picks a free port"
    parser.add_argument("--prometheus", type=_host_and_port, metavar="[HOST:]PORT", help=live)
    add_otlp(parser, "push the same metrics at the start, every 5 s and at the end")
    fleet = (
        "send the load from several machines: listen://HOST:PORT is where they join by `perfkit worker`, tcp://HOST:PORT the scheduler of a "
        "Dask cluster that starts them"
    )
    parser.add_argument("--fleet", metavar="URL", help=fleet)
    machines = "the number of machines of the fleet; with Dask, one on each of its hosts by default"
    parser.add_argument("--machines", type=whole_number(1, 10_000), metavar="N", help=machines)
    parser.set_defaults(execute=_execute)


def _execute(options: argparse.Namespace) -> ExitCode:
    if not (options.print_scenario or options.fleet):
        start_ahead(WORKER)  # it imports its libraries while this process imports its own
    try:
        return _run(options)
    finally:
        end_started_ahead()


def _run(options: argparse.Namespace) -> ExitCode:
    from perfkit.errors import UsageError
    from perfkit.result.output_folder import default_folder, locked
    from perfkit.scenario.file import document_with_settings, make_cases, scenario_text
    from perfkit.scenario.load import SearchLoadSpec

    source = scenario_source(options)
    if options.machines and options.fleet is None and document_with_settings(source, options.settings).get("fleet") is None:
        raise UsageError(
            f"--machines {options.machines}: the scenario has no fleet: add --fleet listen://HOST:PORT, where they join, or the scheduler of a Dask "
            "cluster, such as --fleet tcp://host:8786"
        )
    options.settings += _fleet_settings(options)
    cases = make_cases(source, options.settings)
    if options.print_scenario:
        print(scenario_text(document_with_settings(source, options.settings)), end="")
        return ExitCode.DONE
    check_resume(options)
    if options.budget is not None and not (
        options.resume and len(cases) == 1 and isinstance(cases[0].loaded.scenario.load, SearchLoadSpec)
    ):
        raise UsageError(
            "--budget gives one search, of a scenario without a sweep, more time, with --resume: the time of a new search is load.search.budget"
        )
    # as above; not sooner, since two CPUs are busy with worker and run until now, and not both at once, for the same reason
    if not options.no_report:
        start_ahead(DRAWING, reads_stderr=True)
    elif cases[0].loaded.scenario.telemetry:
        start_ahead(SAMPLER)
    session = RunSession(options)
    name = cases[0].loaded.scenario.name
    folder = options.out or default_folder(name)
    if cases[0].values:
        with locked(folder, may_lock_inside=True):
            return _sweep(session, cases, folder, options)
    result = complete_result(cases[0].loaded, options)

    def print_figures(measured: "Result") -> None:
        if measured.points:
            _print_figures(measured, options)

    if result is None:
        result = session.measure(cases[0].loaded, folder, print_figures)
    else:
        print_figures(result)
    from perfkit.report.terminal import print_status  # only now: the first request leaves earlier
    from perfkit.result.whole_points import has_points
    from perfkit.units import write_minutes

    if result.points:
        _print_stored(result, folder if session.has_stored else None, options)
    code = _accepted(session.exit_code or _exit_code(result), options, [result])
    session.say_last_notes()
    if session.has_stored and result.status in ("interrupted", "incomplete") and has_points(folder):
        session.live.say(f"to measure the remaining load points: {command_that_continues(options, folder, '--resume')}")
    if session.has_stored and result.search is not None and result.search.can_continue and has_points(folder):
        time = write_minutes(result.search.more_s)
        session.live.say(f"to give the search more time: {command_that_continues(options, folder, '--resume', f'--budget={time}')}")
    print_status(result, code)
    return code


def _fleet_settings(options: argparse.Namespace) -> "list[str]":
    """--fleet and --machines as overrides of the scenario."""
    from perfkit.errors import UsageError
    from perfkit.scenario.measure import DASK_SCHEMES

    machines = [f"fleet.workers={options.machines}"] if options.machines else []
    if options.fleet is None:
        return machines
    scheme, _, address = options.fleet.partition("://")
    if address and scheme == "listen":
        return ["fleet.kind=worker", f"fleet.listen={json.dumps(address)}", *machines]  # quoted: [::1]:8790 would be a list
    if address and scheme in DASK_SCHEMES:
        return ["fleet.kind=dask", f"fleet.scheduler={json.dumps(options.fleet)}", *machines]
    raise UsageError(
        f"--fleet {options.fleet}: expected listen://HOST:PORT, such as listen://10.0.0.5:8790, or the scheduler of a Dask cluster, such as "
        "tcp://host:8786"
    )


def _accepted(code: ExitCode, options: argparse.Namespace, results: "Iterable[Result]") -> ExitCode:
    """The exit code with `--on-inconclusive pass`, which passes nothing that was measured beyond its limit."""
    if code is not ExitCode.INCONCLUSIVE or options.on_inconclusive != "pass":
        return code
    is_beyond = any(point.slo is not None and point.slo.is_beyond for result in results for point in result.summary)
    return code if is_beyond else ExitCode.DONE


def _sweep(session: RunSession, cases: "Sequence[Case]", folder: pathlib.Path, options: argparse.Namespace) -> ExitCode:
    """Measures the cases that are not complete yet, and shows all."""
    from perfkit.errors import PerfkitError
    from perfkit.result.sweep import SweepFolder, SweepRank
    from perfkit.scenario.file import scenario_document
    from perfkit.scenario.sweep import interleaved_groups

    rank = SweepRank() if cases[0].rank is None else SweepRank(by=cases[0].rank.by, where=cases[0].rank.where)
    documents = [(case.values, scenario_document(case.loaded.scenario)) for case in cases]
    sweep = SweepFolder(folder, cases[0].loaded.scenario.name, documents, rank)
    pending, codes = sweep.pending(), list[ExitCode]()
    taken = whole_points(folder, sweep.document, cases, pending) if options.resume else dict.fromkeys(pending, 0)
    for sentence in sweep.refused:
        session.live.note(f"note: {sentence}")
    if complete := len(cases) - len(pending):
        session.live.note(f"{complete} of {len(cases)} cases are measured already and are not measured again")
    for group in interleaved_groups([(index, cases[index].loaded.scenario) for index in pending]):
        for index, result in zip(group, _measure_group(session, cases, group, sweep, [taken[index] for index in group]), strict=True):
            if isinstance(result, PerfkitError):  # the other cases may still be measured
                session.live.say(f"perfkit: {result}")
                sweep.record(index, "failed", str(result))
                codes.append(exit_code_of(result))
                continue
            sweep.record(index, result.status if result.points or session.exit_code else "failed", result.status_reason)
            codes.append(session.exit_code or _exit_code(result))
        if session.exit_code:
            break
    return _end_sweep(session, sweep, codes, folder, options)


def _measure_group(
    session: RunSession, cases: "Sequence[Case]", group: "Sequence[int]", sweep: "SweepFolder", taken: "Sequence[int]"
) -> "list[Result | PerfkitError]":
    """Measures one case, or several that can share a server, interleaved; `taken` load points of each are measured already."""
    from perfkit.errors import PerfkitError
    from perfkit.measurement.lifecycle import InterleavedCase
    from perfkit.result.sweep import shown_value

    def title(index: int) -> str:
        return ", ".join(f"{key} {shown_value(value)}" for key, value in cases[index].values.items())

    folders = {index: sweep.folder / sweep.document.cases[index].folder for index in group}
    if len(group) > 1:
        session.live.note(f"{len(group)} of {len(cases)} cases on one server, interleaved load point by load point")
        until_decided = any(cases[index].loaded.scenario.measure.until_decided for index in group)
        if (
            max(taken) - min(taken) <= 1 and not until_decided
        ):  # otherwise repetitions of one case were measured long before those of another
            sweep.record_group(group)
        return session.measure_interleaved([InterleavedCase(title(index), cases[index].loaded, folders[index]) for index in group])
    (index,) = group
    session.live.note(f"case {index + 1} of {len(cases)}: {title(index)}")
    try:
        return [session.measure(cases[index].loaded, folders[index], print_nothing)]
    except PerfkitError as error:
        return [error]


def _end_sweep(
    session: RunSession, sweep: "SweepFolder", codes: "list[ExitCode]", folder: pathlib.Path, options: argparse.Namespace
) -> ExitCode:
    """Prints the table over all cases, their warnings, the command that measures the remaining ones, and the status."""
    from perfkit.errors import ResultError
    from perfkit.report.sweep import print_sweep
    from perfkit.report.terminal import print_sweep_status, print_sweep_warnings
    from perfkit.result.file import read_result
    from perfkit.result.whole_points import has_points

    results = {}
    measured = [case for case in sweep.document.cases if case.status not in ("pending", "failed")]
    for case_folder in (case.folder for case in measured):
        with contextlib.suppress(ResultError):  # the table says why it cannot be read
            results[case_folder] = read_result(folder / case_folder)[0]
    codes += [_exit_code(results[case.folder]) for case in measured if case.status == "complete" and case.folder in results]

    def print_table() -> None:
        with reader_may_leave():
            if options.format == "text":
                print_sweep(folder, sweep.document)
        if not options.quiet:
            print_sweep_warnings(list(results.items()))

    if options.no_report:
        print_table()
    elif reason := session.draw_report(folder, "--table-only", meanwhile=print_table):
        session.last_notes.append(f"the report of the sweep was not drawn: {reason}; `perfkit report --table-only {folder}` draws it")
    with reader_may_leave():
        if options.format == "json":
            print(json.dumps(sweep.document.document(), indent=1))
        else:
            files = _written_files(folder, "sweep.json", "sweep.csv", "report.html")
            print(f"{folder}{os.sep}: {files}, and a result folder for each case")
    session.say_last_notes()
    if sweep.pending():
        can_resume = any(has_points(folder / sweep.document.cases[index].folder) for index in sweep.pending())
        again = command_that_continues(options, folder, *(["--resume"] if can_resume else []))
        has_ended = all(sweep.document.cases[index].status in ("unsuccessful", "invalid", "failed") for index in sweep.pending())
        session.live.say(f"to measure {'again the cases that are not complete' if has_ended else 'the remaining cases'}: {again}")
    code = _accepted(min(codes, key=_BY_SEVERITY.index), options, results.values())
    print_sweep_status(sweep.document, list(results.values()), code)
    return code


def _host_and_port(text: str) -> tuple[str, int]:
    """Parses `9400`, `0.0.0.0:9400` or `[::]:9400`."""
    host, _, text_of_port = text.rpartition(":")
    port = digits.whole_number(text_of_port, 65_535)
    if port is None:
        raise argparse.ArgumentTypeError(f"expected a port or host:port, found {text[:100]!r}")
    return host.removeprefix("[").removesuffix("]") or "127.0.0.1", port


def _print_figures(result: "Result", options: argparse.Namespace) -> None:
    """Prints the summary, unless the result is printed as JSON, and the warnings, unless quiet."""
    from perfkit.report.terminal import print_warnings
    from perfkit.report.terminal_summary import print_summary

    with reader_may_leave():
        if options.format == "text":
            print_summary(result)
    if not options.quiet:
        print_warnings(result)


def _print_stored(result: "Result", folder: pathlib.Path | None, options: argparse.Namespace) -> None:
    """Prints the whole result as JSON, or names the files that were written."""
    from perfkit.result.model import result_document

    with reader_may_leave():
        if options.format == "json":
            print(json.dumps(result_document(result), indent=1))
        elif folder is not None:
            print(f"{folder}{os.sep}: {_written_files(folder, 'result.json', 'latency.hlog', 'report.html')}")


def _written_files(folder: pathlib.Path, *names: str) -> str:
    return ", ".join(name for name in names if (folder / name).exists())


def _exit_code(result: "Result") -> ExitCode:
    """The exit code of a run that was not interrupted by a signal."""
    if result.status != "complete":
        return _EXIT_CODE_OF_STATUS[result.status]
    if result.search is not None:
        return _EXIT_CODE_OF_SEARCH.get(result.search.stopped_because, ExitCode.INCONCLUSIVE)
    verdicts = {point.slo.verdict for point in result.summary if point.slo is not None}
    if "violated" in verdicts:
        return ExitCode.VIOLATED
    return ExitCode.INCONCLUSIVE if "inconclusive" in verdicts else ExitCode.DONE
