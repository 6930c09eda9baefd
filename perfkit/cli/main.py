"""`perfkit`: finds the command, runs it, and turns failures into sentences and exit codes."""

import argparse
import errno
import importlib
import io
import os
import pathlib
import sys
import traceback
from collections.abc import Sequence
from typing import NoReturn

import perfkit
from perfkit.cli.exit_code import ExitCode, exit_code_of
from perfkit.errors import PerfkitError

_COMMANDS = {
    "run": "measure every load point of a scenario and write a result folder",
    "gate": "compare a candidate server with a baseline, pair by pair, to a verdict and its exit code",
    "validate": "check a scenario without sending anything",
    "schema": "print the JSON Schema of scenarios, results or verdicts",
    "calibrate": "measure what this machine can do as a load generator, and keep that for later runs",
    "plan": "make a capacity plan of results: replicas, cost, forecast",
    "doctor": "say what on this machine would spoil a measurement",
    "serve": "start the bundled v2 server",
    "baseline": "put results into a baseline file for version control, to gate later results against",
    "compare": "put results side by side: what differs in how they were measured, then figure by figure, without a verdict",
    "history": "collect results in a file and follow them over time: trends, steps, and the commits that those belong to",
    "report": "draw the report of a result again, from its files alone",
}
_NOWHERE = pathlib.Path(os.devnull)
_FULL = (errno.ENOSPC, errno.EDQUOT)


class _Parser(argparse.ArgumentParser):
    """Argparse with a sentence in place of the usage text."""

    def error(self, message: str) -> NoReturn:
        self.exit(ExitCode.USAGE, f"{self.prog}: {message}; see {self.prog} --help\n")


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs one command and returns its exit code."""
    arguments = list(sys.argv[1:] if arguments is None else arguments)
    # closed by who called us: what is said then goes nowhere
    sys.stdout, sys.stderr = (stream or _NOWHERE.open("w", encoding="utf-8") for stream in (sys.stdout, sys.stderr))
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="replace")  # a terminal without – or µ gets a question mark, not a traceback
    parser = _Parser(prog="perfkit", description="Load generation and benchmarking for v2 / Open Inference Protocol servers.")
    parser.add_argument("--version", action="version", version=f"perfkit {perfkit.__version__}")
    commands = parser.add_subparsers(dest="command", metavar="COMMAND", required=True)
    name = next((argument for argument in arguments if not argument.startswith("-")), None)
    for command, summary in _COMMANDS.items():
        subparser = commands.add_parser(command, help=summary, description=f"{summary[0].upper()}{summary[1:]}.")
        if command == name:  # the others' modules need not be loaded
            importlib.import_module(f"perfkit.cli.{command}").configure(subparser)
    try:
        options = parser.parse_args(arguments)
        code = int(options.execute(options))
        sys.stdout.flush()  # here a full disk can still be told
    except PerfkitError as error:
        print(f"perfkit: {error}", file=sys.stderr)
        return exit_code_of(error)
    except KeyboardInterrupt:
        return ExitCode.INTERRUPTED
    except BrokenPipeError:  # the reader of our output has seen enough
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return ExitCode.DONE
    except Exception as error:  # noqa: BLE001 - whatever comes here is a bug, and is shown whole
        if isinstance(error, OSError) and error.errno in _FULL:
            print(f"perfkit: the output cannot be written: {error}", file=sys.stderr)
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())  # what is left in the buffer has nowhere to go
            return ExitCode.USAGE
        traceback.print_exc()
        print("perfkit: this is a bug in perfkit; please report it with the lines above", file=sys.stderr)
        return ExitCode.INTERNAL
    return code
