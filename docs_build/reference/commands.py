"""Every command with its arguments and options, from their parsers."""

import argparse
import re
from collections.abc import Iterator

from docs_build.reference.marked_parts import anchor, cell
from perfkit.cli.main import COMMANDS, make_parser
from perfkit.cli.perf_analyzer import HELP as PERF_ANALYZER_HELP
from server_stub.options import make_parser as make_server_parser

_PLACEHOLDER = re.compile(r"(?<!`)[^\s`]*<[^<>]+>(?:[^\s;,`]*<[^<>]+>)*[^\s;,`]*")
"""Such as `reports/<name>-<UTC time>`, which Markdown would take for HTML."""


def commands() -> str:
    """A table of the commands, and a section for each."""
    _, parsers = make_parser(COMMANDS)
    table = "\n".join(
        [
            "| command | purpose |",
            "|---|---|",
            *(f"| [`{name}`](#{anchor(f'perfkit {name}')}) | {cell(text)} |" for name, text in COMMANDS.items()),
        ]
    )
    return "\n\n".join([table, *(part for name in COMMANDS for part in _command(name, parsers[name]))])


def _command(name: str, parser: argparse.ArgumentParser) -> Iterator[str]:
    yield f"## `perfkit {name}`"
    yield f"{COMMANDS[name][0].upper()}{COMMANDS[name][1:]}."
    if name == "perf-analyzer":
        yield f"```text\n{PERF_ANALYZER_HELP.strip()}\n```"
    elif name == "serve":
        yield from _arguments("perfkit serve", make_server_parser())
    else:
        subparsers = [action for action in parser._actions if isinstance(action, argparse._SubParsersAction)]  # noqa: SLF001 - argparse has no other way to its actions
        if not subparsers:
            yield from _arguments(parser.prog, parser)
        for action in subparsers:
            texts = {choice.dest: choice.help or "" for choice in action._choices_actions}  # noqa: SLF001
            for part, subparser in action.choices.items():
                yield f"### `perfkit {name} {part}`"
                yield f"{texts[part][0].upper()}{texts[part][1:]}."
                yield from _arguments(f"perfkit {name} {part}", subparser)


def _arguments(program: str, parser: argparse.ArgumentParser) -> Iterator[str]:
    """A line with what is required, and a table."""
    actions = [action for action in parser._actions if action.dest != "help"]  # noqa: SLF001
    required = [f"{action.option_strings[-1]} {_value(action)}" for action in actions if action.option_strings and action.required]
    positional = [_words(action) for action in actions if not action.option_strings]
    has_others = any(action.option_strings and not action.required for action in actions)
    yield f"```text\n{' '.join([program, *(['[OPTIONS]'] if has_others else []), *required, *positional])}\n```"
    if actions:
        yield "\n".join(["| argument | meaning |", "|---|---|", *map(_row, actions)])


def _row(action: argparse.Action) -> str:
    names = ", ".join(f"`{name}`" for name in action.option_strings) or f"`{cell(_value(action))}`"
    value = f" `{cell(_words(action))}`" if action.option_strings and _value(action) else ""
    text = _PLACEHOLDER.sub(lambda match: f"`{match[0]}`", (action.help or "") % {"default": action.default})
    if action.choices is not None and not action.option_strings and not all(str(choice) in text for choice in action.choices):
        text = f"{text}{'; ' if text else ''}one of {', '.join(f'`{choice}`' for choice in action.choices)}"
    is_plain = (
        isinstance(action.default, str | int | float) and not isinstance(action.default, bool) and action.default != argparse.SUPPRESS
    )
    if is_plain and "default" not in text:
        text += f"; default: `{action.default}`" if text else f"default: `{action.default}`"
    return f"| {names}{value} | {cell(text)} |"


def _value(action: argparse.Action) -> str:
    """What stands for the value; empty for an option without one."""
    if action.nargs == 0:
        return ""
    metavar = action.metavar if isinstance(action.metavar, str) else None
    if metavar is None and action.choices is not None and action.option_strings:
        return "|".join(map(str, action.choices))
    return metavar or (action.dest.upper() if not action.option_strings else action.option_strings[-1].lstrip("-").upper())


def _words(action: argparse.Action) -> str:
    name = _value(action)
    match action.nargs:
        case "+":
            return f"{name} …"
        case "*" | argparse.REMAINDER:
            return f"[{name} …]" if name != "..." else "…"
        case "?":
            return f"[{name}]"
        case _:
            return name
