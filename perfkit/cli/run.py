"""`perfkit run`: measures a scenario and writes its result folder."""

import argparse
import asyncio
import json
import os
import pathlib
import signal
import subprocess
import sys
from typing import TYPE_CHECKING

from perfkit.cli.exit_code import ExitCode, exit_code_of
from perfkit.cli.scenario_options import add_scenario_options

if TYPE_CHECKING:
    from collections.abc import Sequence

    from perfkit.result.model import Result
    from perfkit.scenario.file import Case, LoadedScenario


_SIGNALS = (signal.SIGINT, signal.SIGTERM)
_SEARCHED = {
    "precision": ExitCode.DONE,
    "cliff": ExitCode.DONE,
    "never_missed": ExitCode.DONE,
    "never_met": ExitCode.VIOLATED,
    "generator": ExitCode.INVALID,
}
# of several cases the first of these counts
_SEVERITY = (
    ExitCode.TERMINATED,
    ExitCode.INTERRUPTED,
    ExitCode.TARGET,
    ExitCode.INVALID,
    ExitCode.USAGE,
    ExitCode.VIOLATED,
    ExitCode.INCONCLUSIVE,
    ExitCode.DONE,
)


def configure(parser: argparse.ArgumentParser) -> None:
    """Adds the command's options."""
    add_scenario_options(parser)
    parser.add_argument("--out", type=pathlib.Path, metavar="DIR", help="the result folder; default reports/<name>-<UTC time>")
    parser.add_argument("--format", choices=("text", "json"), default="text", help="what stdout gets: a table, or result.json")
    parser.add_argument("--quiet", action="store_true", help="no progress and no warnings on stderr")
    parser.add_argument(
        "--on-inconclusive",
        choices=("fail", "pass"),
        default="fail",
        help="whether an SLO that too few samples carry gives exit code 3, or 0",
    )
    parser.add_argument(
        "--prometheus",
        type=_listening,
        metavar="[HOST:]PORT",
        help="tell the run to Prometheus at http://HOST:PORT/metrics while it goes on; HOST is 127.0.0.1 unless given, PORT 0 is a free one",
    )
    parser.set_defaults(execute=_execute)


def _execute(options: argparse.Namespace) -> ExitCode:
    from perfkit.clock import utc_now
    from perfkit.report.text import print_warnings
    from perfkit.scenario.file import read_cases

    cases = read_cases(options.scenario, options.settings)
    session = _Session(quiet=options.quiet, publish_at=options.prometheus)
    name = cases[0].loaded.scenario.name
    folder = options.out or pathlib.Path("reports") / f"{name}-{utc_now():%Y%m%dT%H%M%SZ}"
    if cases[0].values:
        code = _sweep(session, cases, folder, options)
    else:
        result, folder = session.measure(cases[0].loaded, folder)
        if result.points:
            if not options.quiet:
                print_warnings(result)
            _show(result, folder, as_json=options.format == "json")
        code = _exit_code(result, session.caught)
    return ExitCode.DONE if code is ExitCode.INCONCLUSIVE and options.on_inconclusive == "pass" else code


class _Session:
    """What the runs of one command share: who watches, and the signals that stop them."""

    def __init__(self, *, quiet: bool, publish_at: tuple[str, int] | None) -> None:
        from perfkit.calibration.cache import calibration_path, read_calibration
        from perfkit.machine.host import describe_host
        from perfkit.report.live import LiveReport

        self.live, self.caught = LiveReport(quiet=quiet), list[signal.Signals]()
        self._publish_at, self._calibration = publish_at, read_calibration(calibration_path(), describe_host()).calibration

    def measure(self, loaded: "LoadedScenario", folder: pathlib.Path) -> "tuple[Result, pathlib.Path]":
        """Measures a scenario, and writes and draws its result folder, where there is anything to write."""
        import uvloop

        from perfkit.clock import utc_now
        from perfkit.measurement.control import Interruption
        from perfkit.measurement.lifecycle import run_scenario
        from perfkit.result.file import ResultWriter

        writer, interruption = ResultWriter(folder, utc_now().timestamp()), Interruption()

        def on_signal(number: signal.Signals) -> None:
            self.caught.append(number)
            interruption.interrupt()
            if len(self.caught) == 1:
                self.live.say("stopping: answers under way are awaited; once more stops at once")

        async def run() -> "Result":
            loop = asyncio.get_running_loop()
            for number in _SIGNALS:
                loop.add_signal_handler(number, on_signal, number)
            try:
                return await run_scenario(
                    loaded,
                    writer,
                    self.live,
                    interruption,
                    calibration=self._calibration,
                    publish_at=self._publish_at,
                )
            finally:
                for number in _SIGNALS:
                    loop.remove_signal_handler(number)

        try:
            result = uvloop.run(run())
        except BaseException:
            if kept := writer.abort():
                self.live.say(f"what was measured until then is in {kept}")
            raise
        if not result.points:
            writer.discard()
            self.live.say(f"{result.status_reason or result.status}; nothing was measured, and nothing is written")
            return result, folder
        folder = writer.commit()
        if len(self.caught) < 2:
            _draw(folder)
        return result, folder


def _sweep(session: _Session, cases: "Sequence[Case]", folder: pathlib.Path, options: argparse.Namespace) -> ExitCode:
    """Measures every case that is not measured yet, and shows the table over all."""
    from perfkit.errors import PerfkitError
    from perfkit.report.text import print_sweep
    from perfkit.result.sweep import SweepFolder, shown_value, sweep_document
    from perfkit.scenario.document import scenario_document

    sweep = SweepFolder(folder, cases[0].loaded.scenario.name, [(case.values, scenario_document(case.loaded.scenario)) for case in cases])
    pending, codes = sweep.pending(), list[ExitCode]()
    if kept := len(cases) - len(pending):
        session.live.note(f"{kept} of {len(cases)} cases are measured already, and kept")
    for index in pending:
        case = cases[index]
        values = ", ".join(f"{key} {shown_value(value)}" for key, value in case.values.items())
        session.live.note(f"case {index + 1} of {len(cases)}: {values}")
        try:
            result, _ = session.measure(case.loaded, folder / sweep.document.cases[index].folder)
        except PerfkitError as error:  # another combination may do
            session.live.say(f"perfkit: {error}")
            sweep.record(index, "failed", str(error))
            codes.append(exit_code_of(error))
            continue
        sweep.record(index, result.status if result.points or session.caught else "failed", result.status_reason)
        codes.append(_exit_code(result, session.caught))
        if session.caught:
            session.live.say(f"the rest of the sweep: perfkit run {options.scenario} --out {folder}")
            break
    codes += [_stored_code(folder / case.folder) for case in sweep.document.cases if case.status == "complete"]
    _draw(folder, "--table-only")
    if options.format == "json":
        print(json.dumps(sweep_document(sweep.document), indent=1))
    else:
        print_sweep(folder, sweep.document)
        print(f"{folder}{os.sep}: sweep.json, sweep.csv, report.html, and a result folder a case")
    return min(codes, key=_SEVERITY.index)


def _stored_code(folder: pathlib.Path) -> ExitCode:
    from perfkit.result.file import read_result

    return _exit_code(read_result(folder)[0], [])


def _listening(text: str) -> tuple[str, int]:
    """Reads `9400`, `0.0.0.0:9400` or `[::]:9400`."""
    host, _, port = text.rpartition(":")
    if not port.isdecimal() or int(port) > 65535:
        raise argparse.ArgumentTypeError(f"expected a port, or host:port, found {text!r}")
    return host.removeprefix("[").removesuffix("]") or "127.0.0.1", int(port)


def _show(result: "Result", folder: pathlib.Path, *, as_json: bool) -> None:
    from perfkit.report.text import print_summary
    from perfkit.result.model import result_document

    try:
        if as_json:
            print(json.dumps(result_document(result), indent=1))
        else:
            print_summary(result)
            files = [name for name in ("result.json", "latency.hlog", "report.html") if (folder / name).exists()]
            print(f"{folder}{os.sep}: {', '.join(files)}")
        sys.stdout.flush()
    except BrokenPipeError:  # the reader left; how the run ended is still ours to say
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def _draw(folder: pathlib.Path, *options: str) -> None:
    """Draws the report in a process of its own: its libraries are large, and the result is safe already."""
    drawn = subprocess.run(
        [sys.executable, "-m", "perfkit", "report", "--quiet", *options, str(folder)], check=False, stdin=subprocess.DEVNULL
    )
    if drawn.returncode:
        print(f"perfkit: the report was not drawn; `perfkit report {folder}` tries again", file=sys.stderr)


def _exit_code(result: "Result", caught: list[signal.Signals]) -> ExitCode:
    if caught:
        return ExitCode.TERMINATED if caught[0] is signal.SIGTERM else ExitCode.INTERRUPTED
    if result.status != "complete":
        return {"invalid": ExitCode.INVALID, "incomplete": ExitCode.TARGET}.get(result.status, ExitCode.INTERRUPTED)
    if result.search is not None:
        return _SEARCHED.get(result.search.stopped_because, ExitCode.INCONCLUSIVE)
    verdicts = {point.slo.verdict for point in result.summary if point.slo is not None}
    if "violated" in verdicts:
        return ExitCode.VIOLATED
    return ExitCode.INCONCLUSIVE if "inconclusive" in verdicts else ExitCode.DONE
