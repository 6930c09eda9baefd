"""`perfkit`: runs a command, and turns failures into messages and exit codes."""

import argparse
import errno
import importlib
import io
import os
import pathlib
import re
import sys
import traceback
from collections.abc import Iterable, Sequence
from typing import NoReturn

import perfkit
from perfkit.cli.exit_code import ExitCode, exit_code_of
from perfkit.cli.output import discard_stdout
from perfkit.errors import PerfkitError, suggestion
from perfkit.machine.limits import check_address_space, environment_fault, is_file_limit
from perfkit.process.entry import collect_from_now_on
from perfkit.text import bounded, open_standard_files, safe_stream

COMMANDS = {
    "run": "measure all load points of a scenario and write a result folder",
    "init": "write a scenario for a model of a running server, or list its models",
    "gate": "compare a candidate server with a baseline and exit with the verdict",
    "gate accept": "accept a verdict's regressions until a date, in a file that is reviewed like code",
    "tune": "find the best configuration of a server, with proof, and put back the present one",
    "bisect": "find the first slower revision of a git repository by paired gates",
    "validate": "check a scenario without sending any request",
    "schema": "print the JSON Schema of a file that perfkit reads or writes",
    "calibrate": "measure this machine as a load generator, and store the result for later runs",
    "plan": "plan capacity from results: replicas, cost, forecast",
    "doctor": "check this machine for conditions that disturb measurements",
    "perf-analyzer": "run a perf_analyzer command line, with its output, files and exit codes",
    "record": "pass requests on to a server, and record them as a trace for replay",
    "serve": "start the bundled v2 server",
    "worker": "make this machine one of a fleet that sends load together",
    "baseline": "write results into a baseline file, to gate later results against",
    "compare": "show results side by side, with the differences in how they were measured, but no verdict",
    "explain": "say how each figure of a result came about, and where the time of traced requests went",
    "history": "collect results in a file and show their trends, steps, and the commits of the steps",
    "recover": "make a result of the folder that a killed run left",
    "report": "write the report of a result again from its files",
    "open": "show the page of a result, a sweep, a gate or a plan in the browser",
    "completion": "print a completion script for bash, zsh or fish",
    "help": "explain exit codes, warnings, metrics and the rest of the documentation",
}
_LIGHT = ("completion", "help", "open", "schema", "validate")
"""Commands that import no large library."""
_NOWHERE = pathlib.Path(os.devnull)
_DISK_FULL = (errno.ENOSPC, errno.EDQUOT)


_EXAMPLES = """examples:
  perfkit run http://127.0.0.1:8000 -m simple    measure a running server
  perfkit init http://127.0.0.1:8000 -m simple   write a scenario file for it
  perfkit run densenet                           try it without a server
"""


class _Parser(argparse.ArgumentParser):
    """Reports errors in one sentence, without the usage text, and names the nearest option or command."""

    def add_words(self, options: argparse.Namespace, words: Sequence[str]) -> None:
        """Adds positional arguments that follow an option, which argparse leaves over; anything else is an error."""
        if unknown := [word for word in words if word.startswith("-")] or ([] if self.get_default("takes_words") else words):
            self.error(f"unknown {'option' if unknown[0].startswith('-') else 'argument'} {unknown[0]}{self._suggestion(unknown[0])}")
        if words:
            getattr(options, options.takes_words).extend(words)

    def _suggestion(self, option: str) -> str:
        known = [string for string in self._option_string_actions if string.startswith("--")]
        return suggestion(option.partition("=")[0], known)

    def error(self, message: str) -> NoReturn:
        self.exit(ExitCode.USAGE, f"{self.prog}: {message}; see {self.prog} --help\n")


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs one command and returns its exit code."""
    code = _run(arguments)
    if (signals := sys.modules.get("perfkit.cli.signals")) is not None:  # imported by the commands that measure
        signals.end_if_interrupted_twice(code)
    return code


def make_parser(names: Iterable[str]) -> "tuple[_Parser, dict[str, _Parser]]":
    """The main parser with the named commands alone, and the parsers of these by name.

    Without names it has all commands, but not their options, because importing all modules is slow.
    """
    wanted = list(names) or COMMANDS
    parser = _Parser(
        prog="perfkit",
        description="Load generation and benchmarking for v2 / Open Inference Protocol servers.",
        epilog=_EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--version", action="version", version=f"perfkit {perfkit.__version__}")
    commands = parser.add_subparsers(dest="command", metavar="COMMAND")
    summaries = ((command, COMMANDS[command], f"{COMMANDS[command][0].upper()}{COMMANDS[command][1:]}.") for command in wanted)
    parsers = {command: commands.add_parser(command, help=summary, description=text) for command, summary, text in summaries}
    configured = {} if wanted is COMMANDS else parsers
    for name, subparser in configured.items():
        importlib.import_module(f"perfkit.cli.{re.sub('[ -]', '_', name)}").configure(subparser)
    return parser, configured


def _with_joined_command(arguments: list[str]) -> list[str]:
    """The arguments with a command of two words, such as `gate accept`, as one of them."""
    start = next((index for index, argument in enumerate(arguments) if not argument.startswith("-")), 0)
    command = " ".join(arguments[start : start + 2])
    return [*arguments[:start], command, *arguments[start + 2 :]] if command in COMMANDS and " " in command else arguments


def _run(arguments: Sequence[str] | None) -> int:
    arguments = list(sys.argv[1:] if arguments is None else arguments)
    open_standard_files()
    # a stream that the caller closed is None
    sys.stdout, sys.stderr = (stream or _NOWHERE.open("w", encoding="utf-8") for stream in (sys.stdout, sys.stderr))
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="replace")  # a terminal without – or µ gets a question mark, not a traceback
    sys.stdout, sys.stderr = safe_stream(sys.stdout), safe_stream(sys.stderr)
    joined = _with_joined_command(arguments)
    name = next((argument for argument in joined if not argument.startswith("-")), None)
    try:
        if name in COMMANDS and name not in _LIGHT:
            check_address_space()
        parser, configured = make_parser([name] if name in COMMANDS and joined[0] == name else [])
        if not arguments:
            parser.print_help()
            return ExitCode.USAGE
        if name is not None and name not in COMMANDS:
            parser.error(f"unknown command {name}{suggestion(name, COMMANDS)}")
        if name == "perf-analyzer":  # whose options follow rules of their own
            collect_from_now_on()
            code = int(importlib.import_module("perfkit.cli.perf_analyzer").run(arguments[arguments.index(name) + 1 :]))
        else:
            options, words = parser.parse_known_args(joined)
            options.arguments = arguments
            configured.get(name or "", parser).add_words(options, words)
            if name not in (*_LIGHT, "run"):  # which does it when it has started
                collect_from_now_on()
            code = int(options.execute(options))
        sys.stdout.flush()  # a full disk can still be reported here, but not at exit
    except PerfkitError as error:
        print(f"perfkit: {bounded(str(error))}", file=sys.stderr)
        return exit_code_of(error)
    except KeyboardInterrupt:
        return ExitCode.INTERRUPTED
    except BrokenPipeError:  # the reader of stdout has left
        discard_stdout()
        return ExitCode.DONE
    except Exception as error:  # noqa: BLE001 - any other exception is a bug, and is shown with its traceback
        if is_file_limit(error):
            print(f"perfkit: this process may not open more files: raise the limit (ulimit -n): {error}", file=sys.stderr)
            return ExitCode.USAGE
        if isinstance(error, OSError) and error.errno in _DISK_FULL:
            print(f"perfkit: the output cannot be written: {error}", file=sys.stderr)
            discard_stdout()
            return ExitCode.USAGE
        if fault := environment_fault(error):
            print(f"perfkit: {bounded(fault)}", file=sys.stderr)
            return ExitCode.USAGE
        traceback.print_exc()
        print("perfkit: this is a bug in perfkit; please report it with the lines above", file=sys.stderr)
        return ExitCode.INTERNAL
    return code
