"""What the comparisons with peers share: their options, rounds, the cost of a request between two runs, and a second run after a hang."""

import argparse
import random
import signal
import sys
from collections.abc import Callable, Collection, Mapping
from typing import Any, TypeVar

from benchmarks.peers.clients import ClientError, HungError, Reported
from benchmarks.peers.install import peers_folder
from benchmarks.report import program_options

_T = TypeVar("_T")


def comparison_options(doc: str | None, cases: Collection[str], *, rounds: int = 5, **options: Any) -> argparse.Namespace:
    """The options of a comparison, and those of `program_options`; SIGTERM stops clients and servers from now on, as Ctrl-C does."""
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    seed = (0, "seed for the order of the clients")
    found = program_options(doc, case=([*cases], "the cases"), rounds=rounds, seed=seed, peers=peers_folder(), **options)
    if unknown := {*found.case} - {*cases}:
        sys.exit(f"--case: {', '.join(sorted(unknown))} is none of {', '.join(cases)}")
    return found


def in_rounds(runs: Mapping[str, Callable[[], _T]], rounds: int, order: random.Random) -> dict[str, list[_T]]:
    """What each client gives in each round, in which all run one after another, in random order."""
    found: dict[str, list[_T]] = {name: [] for name in runs}
    for number in range(rounds):
        for name in order.sample(list(runs), len(runs)):
            found[name].append(retry_hung(runs[name]))
            print(f"round {number + 1}, {name}: {found[name][-1]}", file=sys.stderr, flush=True)
    return found


def cpu_us_per_request(client: str, short: Reported, long: Reported) -> float:
    """The slope between a short and a long run, so that start-up and reports do not count; raises ClientError."""
    if long.requests <= short.requests:
        raise ClientError(f"{client} sent {short.requests} requests in its short run and {long.requests} in its long one")
    return 1e6 * (long.usage.cpu_s - short.usage.cpu_s) / (long.requests - short.requests)


def retry_hung(run: Callable[[], _T]) -> _T:
    """Runs a client, a second time if it hangs: a hang should not cost the whole comparison."""
    try:
        return run()
    except HungError as error:
        print(f"{error}: it is run again", file=sys.stderr)
        return run()
