"""`perfkit init`: writes a scenario for a model of a running server, or lists the server's models."""

import argparse
import pathlib
import shlex
from typing import TYPE_CHECKING

from perfkit.cli.exit_code import ExitCode
from perfkit.cli.output import write_output
from perfkit.cli.url_scenario import target_of_urls
from perfkit.errors import UsageError

if TYPE_CHECKING:
    from perfkit.measurement.server_description import ServerDescription


def configure(parser: argparse.ArgumentParser) -> None:
    """Adds the command's options."""
    parser.add_argument(
        "urls", nargs="+", metavar="URL", help="the server, such as http://127.0.0.1:8000; a second URL adds the other protocol"
    )
    parser.set_defaults(takes_words="urls", execute=_execute)
    parser.add_argument("-m", "--model", metavar="NAME", help="the model; without it, the server's models are listed")
    parser.add_argument("--out", type=pathlib.Path, metavar="FILE", help="write the scenario to a new file; default: stdout")


def _execute(options: argparse.Namespace) -> ExitCode:
    import uvloop

    from perfkit.cli.initial_scenario import initial_scenario
    from perfkit.clock import MonotonicClock
    from perfkit.measurement.server_description import describe_model, describe_server
    from perfkit.target.address import redacted_url

    target = target_of_urls(options.urls, None)
    if options.model == "":
        raise UsageError("-m: the model's name is empty; without -m, the server's models are listed")
    if options.model is None:
        print(_table(uvloop.run(describe_server(options.urls[0], MonotonicClock())), options.urls[0]))
        return ExitCode.DONE
    if options.out is not None and options.out.exists():
        raise UsageError(f"--out {options.out}: the file exists already: remove it, or choose another name")
    described = uvloop.run(describe_model(options.urls[0], options.model, MonotonicClock()))
    command = shlex.join(["perfkit", "init", *map(redacted_url, options.urls), "-m", options.model])
    text = initial_scenario(described, {**target, "model": options.model}, command)
    if options.out is None:
        print(text, end="")
    else:
        write_output("--out", options.out, text)
        print(f"{options.out}: written; to measure it: perfkit run {shlex.quote(str(options.out))}")
    return ExitCode.DONE


def _table(described: "ServerDescription", url: str) -> str:
    """The server's models with version, state and reason, one per line; raises UsageError if it lists none."""
    from perfkit.target.address import redacted_url
    from perfkit.text.foreign import one_line

    if not described.index:
        raise UsageError("the server does not list its models: name one with -m")
    rows = [(one_line(one.name), one_line(one.version), one_line(one.state), one_line(one.reason)) for one in described.index]
    titles = ("model", "version", "state")
    widths = [max(len(titles[column]), *(len(row[column]) for row in rows)) for column in range(3)]
    lines = ["  ".join(text.ljust(width) for text, width in zip(row, [*widths, 0], strict=False)).rstrip() for row in (titles, *rows)]
    return "\n".join(
        [*lines, "", f"a scenario for one of them: perfkit init {shlex.quote(redacted_url(url))} -m {shlex.quote(rows[0][0])}"]
    )
