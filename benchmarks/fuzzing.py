"""What the fuzzers share: faults put into bytes from a seed, trials by the clock, and a report of what they came to."""

import argparse
import asyncio
import collections
import contextlib
import pathlib
import platform
import random
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from typing import NamedTuple, cast

Answering = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]

_MOST_FAILURES = 10


class Kind(NamedTuple):
    """One kind of trial: its name, what runs one and says what came of it (a broken promise raises), and how many seeds go to one."""

    name: str
    trial: Callable[[random.Random], str]
    every: int = 1


def harm(written: bytearray, chance: random.Random) -> None:
    """Puts one fault into bytes: a bit turned, some left out, repeated, or put in place of others, or the rest cut off."""
    if not written:
        return
    first = chance.randrange(len(written))
    last = min(len(written), first + chance.randrange(1, 30))
    match chance.randrange(5):
        case 0:
            written[first] ^= 1 << chance.randrange(8)
        case 1:
            del written[first:last]
        case 2:
            written[first:first] = written[chance.randrange(len(written)) : last]
        case 3:
            written[first:last] = chance.randbytes(last - first)
        case _:
            del written[first:]


def pieces(data: bytes, chance: random.Random) -> Sequence[bytes]:
    """The bytes as they may come: whole, or in pieces down to a byte."""
    found, position = [], 0
    while position < len(data):
        size = chance.choice([1, 2, 9, 30, 200, len(data)])
        found.append(data[position : position + size])
        position += size
    return found


@contextlib.asynccontextmanager
async def serving(answer: Answering) -> AsyncIterator[int]:
    """The port of a server that does this to each connection and closes it; what is left at the block's end is cancelled."""
    tasks: set[asyncio.Task[None]] = set()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        tasks.add(cast(asyncio.Task[None], asyncio.current_task()))
        with contextlib.suppress(ConnectionError, asyncio.IncompleteReadError, asyncio.CancelledError):
            await answer(reader, writer)
        writer.close()

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    try:
        yield server.sockets[0].getsockname()[1]
    finally:
        server.close()
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


def parse(description: str | None) -> argparse.Namespace:
    """The options that all fuzzers have."""
    parser = argparse.ArgumentParser(description=(description or "").splitlines()[0])
    parser.add_argument("--minutes", type=float, default=10)
    parser.add_argument("--seed", type=int, default=0, help="of the first trial; each after it has the next")
    parser.add_argument("--out", type=pathlib.Path)
    return parser.parse_args()


def run_trials(kinds: Sequence[Kind], minutes: float, seed: int) -> tuple[dict[str, "collections.Counter[str]"], int, list[str]]:
    """What came of the trials of each kind, how many seeds they took, and the promises that were broken."""
    ends = time.monotonic() + minutes * 60
    counts = {kind.name: collections.Counter[str]() for kind in kinds}
    failures: list[str] = []
    first = seed
    while time.monotonic() < ends and len(failures) < _MOST_FAILURES:
        for kind in kinds:
            if seed % kind.every:
                continue
            try:
                counts[kind.name][kind.trial(random.Random(seed))] += 1
            except Exception as error:  # noqa: BLE001 - any error but the expected ones is what this looks for
                failures.append(f"{kind.name}, seed {seed}: {type(error).__name__}: {error}")
        seed += 1
    return counts, seed - first, failures


def tell(
    title: str,
    promise: str,
    options: argparse.Namespace,
    counts: dict[str, "collections.Counter[str]"],
    seeds: int,
    failures: Sequence[str],
) -> int:
    """Prints the report, and writes it where it is asked for; the exit code, 1 where a promise was broken."""
    lines = [
        f"# {title}",
        "",
        f"{options.minutes:g} minutes, seeds {options.seed} to {options.seed + seeds - 1}, Python {platform.python_version()}.",
        promise,
        "",
        "| kind | trials | came to | how often |",
        "|---|---:|---|---:|",
        *(
            f"| {name} | {counted.total():,} | {outcome} | {number:,} |"
            for name, counted in counts.items()
            for outcome, number in counted.most_common()
        ),
        "",
        *(f"- broken: {failure}" for failure in failures),
        "" if failures else "No promise was broken.",
    ]
    print("\n".join(lines))
    if options.out:
        options.out.write_text("\n".join([*lines, ""]), encoding="utf-8")
    return 1 if failures else 0
