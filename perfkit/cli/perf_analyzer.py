"""`perfkit perf-analyzer`: runs a perf_analyzer command line on perfkit's engine."""

import argparse
import pathlib
import sys
from collections.abc import Awaitable, Callable, Sequence
from typing import TYPE_CHECKING, TypeVar

from perfkit.cli.exit_code import ExitCode

if TYPE_CHECKING:
    from perfkit.cli.signals import SignalHandler
    from perfkit.measurement.control import Interruption
    from perfkit.measurement.reply_spool import ReplySpool
    from perfkit.measurement.scenario_run import MeasuredScenario
    from perfkit.perf_analyzer.options import Options, TraceOptions
    from perfkit.perf_analyzer.server_calls import ModelTraits
    from perfkit.scenario.file import LoadedScenario

_T = TypeVar("_T")
_PRINT_SCENARIO = "--print-scenario"
HELP = """usage: perfkit perf-analyzer [--print-scenario] PERF_ANALYZER_ARGUMENTS...

Takes the arguments of perf_analyzer as its own parser does, sends the load with perfkit's engine, and writes perf_analyzer's output,
files and exit codes: 0 done, 2 one load that was not stable, 3 no answers, 99 anything else.

  --print-scenario  print the scenario that the arguments stand for, for perfkit run, and send nothing

perfkit-perf-analyzer is the same command; a link named perf_analyzer to it can stand in its place on the PATH, or be given to
Model Analyzer as --perf-analyzer-path. docs/how-to/perf_analyzer.md lists the options and what changes in meaning.
"""


def configure(parser: argparse.ArgumentParser) -> None:
    """Adds the command's options: perf_analyzer's, which `run` takes as they are."""
    parser.add_argument("arguments", nargs=argparse.REMAINDER, metavar="...", help="perf_analyzer's own; see perfkit perf-analyzer --help")


def main() -> int:
    """The command as a program of its own."""
    try:
        from perfkit.cli.main import main as run_command
    except KeyboardInterrupt:  # loading takes long enough for somebody to change their mind
        return ExitCode.INTERRUPTED
    name = pathlib.Path(sys.argv[0]).name
    return run_command(["perf-analyzer", *(["mpiexec"] if name == "mpiexec" else []), *sys.argv[1:]])


def run(arguments: Sequence[str]) -> int:
    """Runs the command with perf_analyzer's arguments, and returns its exit code; that of Ctrl-C is 0, as perf_analyzer's."""
    from perfkit.cli.signals import SignalHandler

    signals = SignalHandler(code_of_ctrl_c=ExitCode.DONE)
    with signals.installed_between_loops():
        code = _execute(arguments, signals)
    return int(signals.exit_code or code)


def _execute(arguments: Sequence[str], signals: "SignalHandler") -> int:
    from perfkit.errors import PerfkitError
    from perfkit.perf_analyzer.command_line import parse, split_commands
    from perfkit.perf_analyzer.notes import in_options
    from perfkit.perf_analyzer.options import CommandLineError
    from perfkit.perf_analyzer.profile import ExitCode as ProfileExitCode

    if list(arguments) == ["--help"]:
        print(HELP, end="")
        return ExitCode.DONE
    words = [word for word in arguments if word != _PRINT_SCENARIO]
    try:
        options = [parse(command) for command in (split_commands(words) if words[:1] == ["mpiexec"] else [words])]
        try:
            return _run(options, signals, prints_scenario=len(words) < len(arguments))
        except PerfkitError as error:
            _complain(f"error: {in_options(str(error), options[0])}")
            return ProfileExitCode.FAILED
    except CommandLineError as error:
        print(error, file=sys.stderr)
        return error.exit_code


def _run(options: "Sequence[Options]", signals: "SignalHandler", *, prints_scenario: bool) -> int:
    from perfkit.perf_analyzer.command_line import commands_to_run
    from perfkit.perf_analyzer.notes import notes, notes_on_run
    from perfkit.perf_analyzer.scenario import print_scenario

    for warning in (warning for one in options for warning in one.warnings):
        _complain(warning)
    said = notes if prints_scenario else notes_on_run
    options, changes = commands_to_run(options)
    for note in dict.fromkeys((*changes, *(note for one in options for note in said(one)))):
        _complain(f"perfkit: {note}")
    if prints_scenario:
        print(print_scenario(options), end="")
        return ExitCode.DONE
    return _measure(options, signals)


def _measure(options: "Sequence[Options]", signals: "SignalHandler") -> int:
    from perfkit.measurement.control import Interruption
    from perfkit.perf_analyzer.measurement import ScenarioMeasurement
    from perfkit.perf_analyzer.profile import Output, profile

    interruption = signals.interruption = Interruption()
    with ScenarioMeasurement(options, _Engine(interruption, signals), lambda note: _complain(f"perfkit: {note}")) as measurement:
        signals.before_exit = measurement.remove_files
        return profile(options, measurement, Output(_write, _complain))


class _Engine:
    """Runs scenarios, and passes signals on to them; raises Interrupted after one."""

    def __init__(self, interruption: "Interruption", signals: "SignalHandler") -> None:
        self._interruption, self._signals = interruption, signals

    def run(self, loaded: "LoadedScenario", folder: pathlib.Path, spool: "ReplySpool | None") -> "MeasuredScenario":
        from perfkit.measurement.control import RunObserver
        from perfkit.measurement.lifecycle import measure_scenario

        return self._run(lambda: measure_scenario(loaded, folder, RunObserver(), self._interruption, spool=spool))

    def model_traits(self, loaded: "LoadedScenario") -> "ModelTraits":
        from perfkit.clock import MonotonicClock
        from perfkit.perf_analyzer.server_calls import model_traits

        return self._run(lambda: model_traits(loaded, MonotonicClock()))

    def change_trace_settings(self, loaded: "LoadedScenario", options: "TraceOptions") -> None:
        from perfkit.clock import MonotonicClock
        from perfkit.perf_analyzer.server_calls import change_trace_settings

        self._run(lambda: change_trace_settings(loaded, options, MonotonicClock()))

    def _run(self, call: Callable[[], Awaitable[_T]]) -> _T:
        import asyncio

        import uvloop

        from perfkit.perf_analyzer.profile import Interrupted

        async def run() -> _T:
            with self._signals.installed():
                if self._signals.has_come:
                    raise Interrupted
                self._interruption.task = asyncio.current_task()
                return await call()

        try:
            return uvloop.run(run())
        except asyncio.CancelledError:
            raise Interrupted from None


def _write(line: str) -> None:
    print(line, flush=True)


def _complain(line: str) -> None:
    print(line, file=sys.stderr, flush=True)
