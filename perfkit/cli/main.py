"""`perfkit`: finds the command, runs it, and turns failures into sentences and exit codes."""

import argparse
import importlib
import io
import sys
import traceback
from collections.abc import Sequence
from typing import NoReturn

import perfkit
from perfkit.cli.exit_code import ExitCode, exit_code_of
from perfkit.errors import PerfkitError

_COMMANDS = {
    "run": "measure every load point of a scenario and write a result folder",
    "validate": "check a scenario without sending anything",
    "schema": "print the JSON Schema of scenarios or results",
    "calibrate": "measure what this machine can do as a load generator, and keep that for later runs",
    "plan": "make a capacity plan of results: replicas, cost, forecast",
    "serve": "start the bundled v2 server",
    "report": "draw the report of a result again, from its files alone",
}


class _Parser(argparse.ArgumentParser):
    """Argparse with a sentence in place of the usage text."""

    def error(self, message: str) -> NoReturn:
        self.exit(ExitCode.USAGE, f"{self.prog}: {message}; see {self.prog} --help\n")


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs one command and returns its exit code."""
    arguments = list(sys.argv[1:] if arguments is None else arguments)
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
    options = parser.parse_args(arguments)
    try:
        return int(options.execute(options))
    except PerfkitError as error:
        print(f"perfkit: {error}", file=sys.stderr)
        return exit_code_of(error)
    except KeyboardInterrupt:
        return ExitCode.INTERRUPTED
    except Exception:  # noqa: BLE001 - whatever comes here is a bug, and is shown whole
        traceback.print_exc()
        print("perfkit: this is a bug in perfkit; please report it with the lines above", file=sys.stderr)
        return ExitCode.INTERNAL
