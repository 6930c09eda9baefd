"""Two replicas of a server, one of them 20 % slower, behind a list of URLs; and two equal ones behind a name with two addresses.

    python -m benchmarks.replicas [--seconds 10] [--out reports/replicas.md]

The bundled server's model `synthetic` serves with declared times, so that the truth is known: 10 and 12 ms. For each protocol, each way of
balancing, and an open and a closed loop, the figures of each address must tell them apart, and the shares of the requests must be those that
the way of balancing gives: equal ones in turn or by chance; with the fewest requests in flight, those of a simulation of the two queues.
Then a name resolves to the addresses of two equal replicas, which must get equal shares to 1 %, and it must be named if
all connections lead to one of them, as without `resolve: all`. That part needs root, because the name is known only in a mount namespace of its own. The exit code is 1 if anything differs.
"""

import contextlib
import dataclasses
import heapq
import itertools
import math
import random
import sys
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from benchmarks.fleet.namespaces import Host, Laboratory, NamespacesUnavailableError
from benchmarks.processes import run_perfkit, running_server
from benchmarks.report import Report, describe_machine, program_options
from benchmarks.synthetic import closed_loop, open_loop, scenario

FAST_MS, SLOW_MS = 10, 12
BALANCES = ("round_robin", "random", "least_in_flight")
RATE_PER_S, CONCURRENCY = 400, 16
_OPEN = f"open, {RATE_PER_S}/s"
_LOADS = {_OPEN: open_loop(RATE_PER_S), f"closed, {CONCURRENCY}": closed_loop(CONCURRENCY)}
_ALLOWED_RATIO, _ALLOWED_SHARE = 0.05, 0.01
"""How far the ratio of the medians may be from 1.2, and a share from the expected one."""
_CHANCE = 3.29
"""Standard deviations that a share by chance exceeds once in 1,000 load points."""
_NAME = "replicas.test"
_ADDRESSES = ("127.0.0.1", "127.0.0.2")


@dataclasses.dataclass(frozen=True, slots=True)
class Shares:
    """What a load point's `replicas` say of two addresses; the second is the slower one, if one is."""

    requests: tuple[int, int]
    medians_ns: tuple[float, float]
    medians_are_apart: bool
    warnings: frozenset[str]

    @classmethod
    def measured(cls, target: Mapping[str, Any], load: dict[str, Any], seconds: float, prefix: Sequence[str] = ()) -> "Shares":
        """The shares of a new run."""
        point = run_perfkit(scenario("", load, seconds, seed=25, target=target, telemetry=False), prefix=prefix).point
        first, second = point["replicas"]
        are_apart = first["intervals"]["p50"][1] < second["intervals"]["p50"][0] if second["ok"] else False
        codes = frozenset(warning["code"] for warning in point["warnings"]) & {"imbalanced", "slower_replica"}
        return cls((first["requests"], second["requests"]), (first["times_ns"]["p50"], second["times_ns"]["p50"]), are_apart, codes)

    @property
    def second_share(self) -> float:
        """The share of the requests that the second address got."""
        return self.requests[1] / sum(self.requests)

    def is_near(self, share: float, balance: str) -> bool:
        """Whether the second address got this share: to 1 %, or to what chance exceeds once in 1,000 load points."""
        allowed = _CHANCE * math.sqrt(0.25 / sum(self.requests)) if balance == "random" else _ALLOWED_SHARE
        return abs(self.second_share - share) <= allowed

    @property
    def shown_codes(self) -> str:
        """The warnings about replicas, as a cell."""
        return ", ".join(f"`{code}`" for code in sorted(self.warnings)) or "–"


def simulated_share(rate_per_s: float | None, requests: int = 200_000) -> float:
    """The share of the second of two servers without queues, where each request goes to the one with fewer in flight, ties in turn.

    An open loop with Poisson arrivals, or a closed loop if the rate is None.
    """
    chance, services_s = random.Random(7), (FAST_MS / 1e3, SLOW_MS / 1e3)
    in_flight, sent, last, now_s = [0, 0], [0, 0], 1, 0.0
    ends: list[tuple[float, int]] = []
    for number in range(requests):
        if rate_per_s is not None:
            now_s += chance.expovariate(rate_per_s)
        elif number >= CONCURRENCY:
            now_s = ends[0][0]
        while ends and ends[0][0] <= now_s and (rate_per_s is not None or len(ends) == CONCURRENCY):
            in_flight[heapq.heappop(ends)[1]] -= 1
        last = min((1 - last, last), key=lambda position: in_flight[position])
        in_flight[last] += 1
        sent[last] += 1
        heapq.heappush(ends, (now_s + services_s[last] * chance.uniform(0.99, 1.01), last))
    return sent[1] / requests


def server_options(service_ms: float, *options: str) -> tuple[str, ...]:
    """The options of a bundled server whose requests never wait for each other."""
    return ("--model=synthetic", f"--synthetic=service=constant:{service_ms}ms,servers=256", *options)


def add_list_rows(page: Report, seconds: float) -> None:
    """A line for each load point on the list of both replicas."""
    simulated = {name: simulated_share(RATE_PER_S if name == _OPEN else None) for name in _LOADS}
    with running_server(*server_options(FAST_MS)) as fast, running_server(*server_options(SLOW_MS)) as slow:
        for protocol, (name, load), balance in itertools.product(("http", "grpc"), _LOADS.items(), BALANCES):
            shares = Shares.measured({"url": [fast.url(protocol), slow.url(protocol)], "balance": balance}, load, seconds)
            expected = simulated[name] if balance == "least_in_flight" else 0.5
            ratio = shares.medians_ns[1] / shares.medians_ns[0]
            is_right = (
                abs(ratio - SLOW_MS / FAST_MS) <= _ALLOWED_RATIO
                and shares.medians_are_apart
                and shares.is_near(expected, balance)
                and "slower_replica" in shares.warnings
                and ("imbalanced" in shares.warnings) == (expected < 0.5 * (1 - 0.05))
            )
            medians = " and ".join(f"{median_ns / 1e6:.2f}" for median_ns in shares.medians_ns)
            page.judged_row(is_right, protocol, name, f"`{balance}`", *(f"{count:,}" for count in shares.requests), f"{shares.second_share:.1%}",
                            f"{expected:.1%}", medians, f"{ratio:.3f}", shares.shown_codes)  # fmt: skip


def add_name_rows(page: Report, host: Host, urls: Mapping[str, str], seconds: float) -> None:
    """A line for each load point on a name with two addresses."""
    for (protocol, url), balance in itertools.product(urls.items(), (*BALANCES, "")):
        keys = {"resolve": "all", "balance": balance} if balance else {"resolve": "first"}
        shares = Shares.measured({"url": url, **keys}, _LOADS[_OPEN], seconds, host.prefix)
        expected, way = (0.5, f"`all`, `{balance}`") if balance else (0.0, "`first`")
        is_near = shares.is_near(0.5, balance) if balance else shares.second_share == 0
        page.judged_row(is_near and ("imbalanced" in shares.warnings) != bool(balance), protocol, _OPEN, way, *(f"{count:,}" for count in shares.requests),
                        f"{shares.second_share:.2%}", f"{expected:.1%}", shares.shown_codes)  # fmt: skip


@contextlib.contextmanager
def named_replicas(laboratory: Laboratory) -> Iterator[tuple[Host, dict[str, str]]]:
    """A host on which a name leads to two equal replicas, and the name's URLs by protocol."""
    host = laboratory.add_host("replicas", names={_NAME: _ADDRESSES})
    ports = {"http": 8000, "grpc": 8001}
    options = server_options(FAST_MS, *(f"--{protocol}-port={port}" for protocol, port in ports.items()))
    with contextlib.ExitStack() as stack:
        for address in _ADDRESSES:
            stack.enter_context(running_server(*options, f"--host={address}", prefix=host.prefix))
        yield host, {protocol: f"{protocol}://{_NAME}:{port}" for protocol, port in ports.items()}


def main() -> int:
    """Prints both tables."""
    options = program_options(__doc__, seconds=(10.0, "window of each load point"))
    page = Report(options.out, "Replicas")
    page.add(f"The bundled server's model `synthetic`, windows of {options.seconds:g} s. {describe_machine()}")
    page.section(
        "Two replicas, the second 20 % slower",
        f"Service times of {FAST_MS} and {SLOW_MS} ms, behind a list of URLs. Required: the ratio of the medians is 1.2 to within {_ALLOWED_RATIO}; "
        f"the 95 % intervals of both medians are apart, and `slower_replica` says so; the slower one's share is the expected one to "
        f"{100 * _ALLOWED_SHARE:g} percentage point (`random`: to what chance exceeds once in 1,000 load points); `imbalanced` says when it is more than 5 % "
        "below an equal one.",
        "",
    )
    page.table(
        "protocol",
        "load",
        "balance",
        ">requests, fast",
        ">slow",
        ">slow share",
        ">expected",
        "medians, ms",
        ">ratio",
        "warnings",
        "as required",
    )
    add_list_rows(page, options.seconds)
    page.section(
        "A name with two addresses",
        f"`{_NAME}` resolves to {' and '.join(_ADDRESSES)}; both replicas take {FAST_MS} ms. Required: with `resolve: all`, shares of 50 % as above; "
        "with `resolve: first`, all requests at the first address, and `imbalanced` says so.",
        "",
    )
    try:
        with Laboratory() as laboratory, named_replicas(laboratory) as (host, urls):
            page.table(
                "protocol", "load", "`resolve`", ">requests, first", ">second", ">second share", ">expected", "warnings", "as required"
            )
            add_name_rows(page, host, urls, options.seconds)
    except NamespacesUnavailableError as error:
        page.add(f"Not measured: {error}.")
    return page.write()


if __name__ == "__main__":
    sys.exit(main())
