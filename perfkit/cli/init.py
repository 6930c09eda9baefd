"""`perfkit init`: writes a scenario for a model of a running server, or lists the server's models."""

import argparse
import asyncio
import pathlib
import shlex
from collections.abc import Awaitable, Callable, Sequence
from typing import TYPE_CHECKING, TypeVar

from perfkit.cli.exit_code import ExitCode
from perfkit.cli.output import write_output
from perfkit.cli.url_scenario import target_of_urls
from perfkit.errors import UsageError

if TYPE_CHECKING:
    from perfkit.protocol.message import IndexedModel

_Read = TypeVar("_Read")


def configure(parser: argparse.ArgumentParser) -> None:
    """Adds the command's options."""
    parser.add_argument(
        "urls", nargs="+", metavar="URL", help="the server, such as http://127.0.0.1:8000; a second URL adds the other protocol"
    )
    parser.set_defaults(takes_words="urls", execute=_execute)
    parser.add_argument("-m", "--model", metavar="NAME", help="the model; without it, the server's models are listed")
    parser.add_argument("--out", type=pathlib.Path, metavar="FILE", help="write the scenario to a new file; default: stdout")


def _execute(options: argparse.Namespace) -> ExitCode:
    from perfkit.cli.initial_scenario import initial_scenario
    from perfkit.clock import MonotonicClock
    from perfkit.measurement.server_description import describe_model, read_model_index
    from perfkit.target.address import redacted_url

    target = target_of_urls(options.urls, None)
    if options.model == "":
        raise UsageError("-m: the model's name is empty; without -m, the server's models are listed")
    if options.model is None:
        indexes = _read_from_all(options.urls, lambda url: read_model_index(url, MonotonicClock()))
        print(_table(next(filter(None, indexes), ()), options.urls))
        return ExitCode.DONE
    if options.out is not None and options.out.exists():
        raise UsageError(f"--out {options.out}: the file exists already: remove it, or choose another name")
    described, *_ = _read_from_all(options.urls, lambda url: describe_model(url, options.model, MonotonicClock()))
    command = shlex.join(["perfkit", "init", *map(redacted_url, options.urls), "-m", options.model])
    text = initial_scenario(described, {**target, "model": options.model}, command)
    if options.out is None:
        print(text, end="")
    else:
        write_output("--out", options.out, text)
        print(f"{options.out}: written; to measure it: perfkit run {shlex.quote(str(options.out))}")
    return ExitCode.DONE


def _read_from_all(urls: Sequence[str], read: Callable[[str], Awaitable[_Read]]) -> list[_Read]:
    """What is read from each URL at the same time; raises TargetError with a line for each URL that does not answer."""
    import uvloop

    from perfkit.errors import TargetError

    async def read_all() -> list[_Read | BaseException]:
        return await asyncio.gather(*map(read, urls), return_exceptions=True)

    found = uvloop.run(read_all())
    if failed := [one for one in found if isinstance(one, TargetError)]:
        raise TargetError("\n".join(map(str, failed)))
    for one in found:
        if isinstance(one, BaseException):
            raise one
    return [one for one in found if not isinstance(one, BaseException)]


def _table(index: "Sequence[IndexedModel]", urls: Sequence[str]) -> str:
    """The server's models with version, state and reason, one per line; raises UsageError if it lists none."""
    from perfkit.target.address import redacted_url
    from perfkit.text.foreign import one_line

    if not index:
        over_http = any(url.lower().startswith("http") for url in urls)
        other = "" if over_http else ", or add its HTTP URL: KServe's servers list their models over HTTP alone"
        raise UsageError(f"the server does not list its models: name one with -m{other}")
    rows = [(one_line(one.name), one_line(one.version), one_line(one.state), one_line(one.reason)) for one in index]
    titles = ("model", "version", "state")
    widths = [max(len(titles[column]), *(len(row[column]) for row in rows)) for column in range(3)]
    lines = ["  ".join(text.ljust(width) for text, width in zip(row, [*widths, 0], strict=False)).rstrip() for row in (titles, *rows)]
    return "\n".join([*lines, "", f"a scenario for one of them: perfkit init {shlex.join([*map(redacted_url, urls), '-m', rows[0][0]])}"])
