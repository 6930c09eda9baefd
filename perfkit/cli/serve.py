"""`perfkit serve`: the bundled server, as `python -m server_stub` in this process's place."""

import argparse
import os
import sys
from typing import NoReturn


def configure(parser: argparse.ArgumentParser) -> None:
    """Adds the command's options: they are the server's own."""
    parser.add_argument("options", nargs=argparse.REMAINDER, metavar="...", help="see `perfkit serve -- --help`")
    parser.set_defaults(execute=_execute)
    parser.prefix_chars = "\0"  # nothing here looks like an option, so that all of them reach the server


def _execute(options: argparse.Namespace) -> NoReturn:
    os.execv(sys.executable, [sys.executable, "-m", "server_stub", *(option for option in options.options if option != "--")])  # noqa: S606 - the same program, another module
