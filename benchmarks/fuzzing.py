"""The common parts of the fuzzers: random faults, trials until a time limit, and the report."""

import argparse
import asyncio
import collections
import contextlib
import platform
import random
import resource
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from typing import NamedTuple, cast

from benchmarks.report import option_parser, table_head, table_row, write_report

ConnectionHandler = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]

MAX_FAILURES = 10
_MAX_PEAK_MIB = 300


class TrialKind(NamedTuple):
    """A kind of trial: `run` returns its outcome and raises at a violation; one seed in `seeds_per_trial` is used."""

    name: str
    run: Callable[[random.Random], str]
    seeds_per_trial: int = 1


def add_fault(data: bytearray, rng: random.Random) -> None:
    """Puts one fault into bytes: a flipped bit, or a part deleted, repeated, replaced or cut off."""
    if not data:
        return
    first = rng.randrange(len(data))
    last = min(len(data), first + rng.randrange(1, 30))
    match rng.randrange(5):
        case 0:
            data[first] ^= 1 << rng.randrange(8)
        case 1:
            del data[first:last]
        case 2:
            data[first:first] = data[rng.randrange(len(data)) : last]
        case 3:
            data[first:last] = rng.randbytes(last - first)
        case _:
            del data[first:]


def split_randomly(data: bytes, rng: random.Random) -> Sequence[bytes]:
    """The bytes whole, or in parts of any size down to one byte."""
    parts, position = [], 0
    while position < len(data):
        size = rng.choice([1, 2, 9, 30, 200, len(data)])
        parts.append(data[position : position + size])
        position += size
    return parts


@contextlib.asynccontextmanager
async def serving(handler: ConnectionHandler) -> AsyncIterator[int]:
    """The port of a server that calls the handler for each connection and then closes it; the block's end cancels handlers."""
    tasks: set[asyncio.Task[None]] = set()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        tasks.add(cast(asyncio.Task[None], asyncio.current_task()))
        with contextlib.suppress(ConnectionError, asyncio.IncompleteReadError, asyncio.CancelledError):
            await handler(reader, writer)
        writer.close()

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    try:
        yield server.sockets[0].getsockname()[1]
    finally:
        server.close()
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


def parse_options(doc: str | None) -> argparse.Namespace:
    """The options of every fuzzer."""
    parser = option_parser(doc)
    parser.add_argument("--minutes", type=float, default=10)
    parser.add_argument("--seed", type=int, default=0, help="seed of the first trial; each further trial uses the next one")
    return parser.parse_args()


def fuzz(kinds: Sequence[TrialKind], title: str, guarantee: str, options: argparse.Namespace) -> int:
    """Runs trials for `--minutes`, and prints and writes the report.

    Returns 1 at a violation, whose seed repeats it, and if the process took more than 300 MiB.
    """
    end_s = time.monotonic() + options.minutes * 60
    outcomes = {kind.name: collections.Counter[str]() for kind in kinds}
    failures: list[str] = []
    seed = options.seed
    while time.monotonic() < end_s and len(failures) < MAX_FAILURES:
        for kind in kinds:
            if seed % kind.seeds_per_trial:
                continue
            try:
                outcomes[kind.name][kind.run(random.Random(seed))] += 1
            except Exception as error:  # noqa: BLE001 - an unexpected error of any type is what the fuzzer looks for
                failures.append(f"{kind.name}, seed {seed}: {type(error).__name__}: {error}")
        seed += 1
    peak_mib = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024
    if peak_mib > _MAX_PEAK_MIB:
        failures.append(f"the peak memory is {peak_mib} MiB, above {_MAX_PEAK_MIB} MiB")
    span = f"{options.minutes:g} minutes, seeds {options.seed} to {seed - 1}"
    intro = [f"{span}, Python {platform.python_version()}, peak memory {peak_mib} MiB.", guarantee]
    return finish(title, [*intro, "", *_outcome_table(outcomes)], failures, options)


def _outcome_table(outcomes: Mapping[str, "collections.Counter[str]"]) -> list[str]:
    rows = (
        table_row(name, f"{counts.total():,}", outcome, f"{count:,}")
        for name, counts in outcomes.items()
        for outcome, count in counts.most_common()
    )
    return [*table_head("kind", ">trials", "outcome", ">count"), *rows]


def finish(title: str, lines: Sequence[str], failures: Sequence[str], options: argparse.Namespace) -> int:
    """Prints and writes a report that ends with the violations. Returns the exit code."""
    verdict = [f"- violation: {failure}" for failure in failures] or ["No violation was found."]
    page = [f"# {title}", "", *lines, "", *verdict]
    print("\n".join(page))
    write_report(options.out, page)
    return 1 if failures else 0
