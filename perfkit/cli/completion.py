"""`perfkit completion`: prints a shell script that completes perfkit's commands and options."""

import argparse
import pathlib
import sys
from typing import TYPE_CHECKING

from perfkit.cli.exit_code import ExitCode
from perfkit.text import write_raw

if TYPE_CHECKING:
    from perfkit.cli.main import _Parser

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
    for name in [name for name in commands if " " in name]:
        _nest(parser, commands, name, is_shown=options.shell != "zsh")
    for command in commands.values():
        for action in command._actions:  # noqa: SLF001 - argparse has no public list of them
            if action.type is pathlib.Path or action.dest == "scenario":
                action.complete = shtab.FILE  # type: ignore[attr-defined]  # shtab's own attribute
    write_raw(sys.stdout, shtab.complete(parser, options.shell) + "\n")
    return ExitCode.DONE


def _nest(parser: argparse.ArgumentParser, commands: "dict[str, _Parser]", name: str, *, is_shown: bool) -> None:
    """Moves a command of two words, such as `gate accept`, below its first word; zsh cannot complete a command beside an argument."""
    first, _, second = name.partition(" ")
    moved, shown = commands.pop(name), next(action for action in parser._actions if isinstance(action, argparse._SubParsersAction))  # noqa: SLF001
    del shown.choices[name]
    shown._choices_actions = [action for action in shown._choices_actions if action.dest != name]  # noqa: SLF001
    if is_shown:
        commands[first].add_subparsers().add_parser(second, help=moved.description, parents=[moved], add_help=False)
