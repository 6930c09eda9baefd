"""`perfkit serve`: replaces this process by the bundled server."""

import argparse
import os
from typing import NoReturn

from perfkit.process.start_module import module_command, module_environment


def configure(parser: argparse.ArgumentParser) -> None:
    """Passes all options on to the server."""
    parser.add_argument("options", nargs=argparse.REMAINDER, metavar="...", help="see `perfkit serve -- --help`")
    parser.set_defaults(execute=_execute)
    parser.prefix_chars = "\0"  # so that argparse takes no argument for an option of its own


def _execute(options: argparse.Namespace) -> NoReturn:
    command = module_command("server_stub", *(option for option in options.options if option != "--"), dies_with_parent=False)
    os.execve(command[0], command, module_environment(os.environ))  # noqa: S606 - runs this Python itself, without a shell
