"""`perfkit completion`: prints a shell script that completes perfkit's commands and options."""

import argparse
import pathlib
import sys

from perfkit.cli.exit_code import ExitCode
from perfkit.text.terminal import write_raw

_SHELLS = {
    "bash": "perfkit completion bash > ~/.local/share/bash-completion/completions/perfkit",
    "zsh": "perfkit completion zsh > ~/.zfunc/_perfkit, with `fpath+=~/.zfunc` before `compinit` in ~/.zshrc",
    "fish": "perfkit completion fish > ~/.config/fish/completions/perfkit.fish",
}


def configure(parser: argparse.ArgumentParser) -> None:
    """Adds the command's options."""
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    parser.epilog = "to install it:\n" + "\n".join(f"  {command}" for command in _SHELLS.values())
    parser.add_argument("shell", choices=tuple(_SHELLS), help="the shell")
    parser.set_defaults(execute=_execute)


def _execute(options: argparse.Namespace) -> ExitCode:
    import shtab

    from perfkit.cli.main import COMMANDS, make_parser

    parser, commands = make_parser(COMMANDS)
    for command in commands.values():
        for action in command._actions:  # noqa: SLF001 - argparse has no public list of them
            if action.type is pathlib.Path or action.dest == "scenario":
                action.complete = shtab.FILE  # type: ignore[attr-defined]  # shtab's own attribute
    write_raw(sys.stdout, shtab.complete(parser, options.shell) + "\n")
    return ExitCode.DONE
