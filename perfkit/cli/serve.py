"""`perfkit serve`: replaces this process by the bundled server, `python -m server_stub`."""

import argparse
import os
import sys
from typing import NoReturn


def configure(parser: argparse.ArgumentParser) -> None:
    """Passes all options on to the server."""
    parser.add_argument("options", nargs=argparse.REMAINDER, metavar="...", help="see `perfkit serve -- --help`")
    parser.set_defaults(execute=_execute)
    parser.prefix_chars = "\0"  # so that argparse takes no argument for an option of its own


def _execute(options: argparse.Namespace) -> NoReturn:
    os.execv(sys.executable, [sys.executable, "-m", "server_stub", *(option for option in options.options if option != "--")])  # noqa: S606 - runs this Python itself, without a shell
