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
import math
import random
import sys
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from benchmarks.fleet.namespaces import Host, Laboratory, NamespacesUnavailableError
from benchmarks.processes import RunningServer, run_perfkit, running_server
from benchmarks.report import describe_machine, option_parser, publish, table_head, table_row, yes_no

FAST_MS, SLOW_MS = 10, 12
BALANCES = ("round_robin", "random", "least_in_flight")
RATE_PER_S, CONCURRENCY = 400, 16
_LOADS: Mapping[str, Mapping[str, Any]] = {
    f"open, {RATE_PER_S}/s": {"open": {"rate": RATE_PER_S, "arrivals": "poisson"}},
    f"closed, {CONCURRENCY}": {"closed": {"concurrency": CONCURRENCY}},
}
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
    def of(cls, point: Mapping[str, Any]) -> "Shares":
        """Of a load point in `result.json`."""
        first, second = point["replicas"]
        times = first["times_ns"], second["times_ns"]
        return cls(
            (first["requests"], second["requests"]),
            (times[0]["p50"], times[1]["p50"]),
            first["intervals"]["p50"][1] < second["intervals"]["p50"][0] if second["ok"] else False,
            frozenset(warning["code"] for warning in point["warnings"]),
        )

    @property
    def second_share(self) -> float:
        """The share of the requests that the second address got."""
        return self.requests[1] / sum(self.requests)

    @property
    def ratio(self) -> float:
        """The median of the second address by that of the first."""
        return self.medians_ns[1] / self.medians_ns[0]


def simulated_share(services_s: tuple[float, float], rate_per_s: float | None, concurrency: int, requests: int = 200_000) -> float:
    """The share of the second of two servers without queues, where each request goes to the one with fewer in flight, ties in turn.

    An open loop with Poisson arrivals, or a closed loop if the rate is None.
    """
    chance = random.Random(7)
    in_flight, sent, last, now_s = [0, 0], [0, 0], 1, 0.0
    ends: list[tuple[float, int]] = []
    for number in range(requests):
        if rate_per_s is not None:
            now_s += chance.expovariate(rate_per_s)
        elif number >= concurrency:
            now_s = ends[0][0]
        while ends and ends[0][0] <= now_s and (rate_per_s is not None or len(ends) == concurrency):
            in_flight[heapq.heappop(ends)[1]] -= 1
        last = min((1 - last, last), key=lambda position: in_flight[position])
        in_flight[last] += 1
        sent[last] += 1
        heapq.heappush(ends, (now_s + services_s[last] * chance.uniform(0.99, 1.01), last))
    return sent[1] / requests


def expected_share(balance: str, load: str) -> float:
    """The share of the slower of the two replicas."""
    if balance != "least_in_flight":
        return 0.5
    return simulated_share((FAST_MS / 1e3, SLOW_MS / 1e3), RATE_PER_S if load.startswith("open") else None, CONCURRENCY)


def allowed_share(balance: str, requests: int) -> float:
    """How far a share may be from the expected one."""
    return _CHANCE * math.sqrt(0.25 / requests) if balance == "random" else _ALLOWED_SHARE


def scenario(target: Mapping[str, Any], load: Mapping[str, Any], seconds: float) -> dict[str, Any]:
    """A scenario with the model `synthetic`."""
    return {
        "target": {"model": "synthetic", **target},
        "workload": {"seed": 25, "inputs": {"INPUT0": {"generate": "ones", "shape": [4]}}},
        "load": load,
        "measure": {"warmup": "1s", "duration": f"{seconds:g}s", "repetitions": 1},
        "telemetry": False,
    }


def server_options(service_ms: float, *options: str) -> tuple[str, ...]:
    """The options of a bundled server whose requests never wait for each other."""
    return ("--model=synthetic", f"--synthetic=service=constant:{service_ms}ms,servers=256", *options)


def list_rows(fast: RunningServer, slow: RunningServer, seconds: float) -> Iterator[tuple[str, bool]]:
    """A line for each load point on the list of both replicas, and whether it says what is true."""
    for protocol in ("http", "grpc"):
        for name, load in _LOADS.items():
            for balance in BALANCES:
                target = {"url": [fast.url(protocol), slow.url(protocol)], "balance": balance}
                shares = Shares.of(run_perfkit(scenario(target, load, seconds)).point)
                expected = expected_share(balance, name)
                is_uneven = expected < 0.5 * (1 - 0.05)
                is_right = (
                    abs(shares.ratio - SLOW_MS / FAST_MS) <= _ALLOWED_RATIO
                    and shares.medians_are_apart
                    and abs(shares.second_share - expected) <= allowed_share(balance, sum(shares.requests))
                    and "slower_replica" in shares.warnings
                    and ("imbalanced" in shares.warnings) == is_uneven
                )
                yield (
                    table_row(
                        protocol, name, f"`{balance}`", *(f"{count:,}" for count in shares.requests), f"{shares.second_share:.1%}", f"{expected:.1%}",
                        " and ".join(f"{median_ns / 1e6:.2f}" for median_ns in shares.medians_ns), f"{shares.ratio:.3f}", _codes(shares), yes_no(is_right),
                    ),
                    is_right,
                )  # fmt: skip


def name_rows(host: Host, urls: Mapping[str, str], seconds: float) -> Iterator[tuple[str, bool]]:
    """A line for each load point on a name with two addresses, and whether it says what is true."""
    ways: Sequence[tuple[str, Mapping[str, Any]]] = [
        *((f"`all`, `{balance}`", {"resolve": "all", "balance": balance}) for balance in BALANCES),
        ("`first`", {"resolve": "first"}),
    ]
    name, load = next(iter(_LOADS.items()))
    for protocol, url in urls.items():
        for way, keys in ways:
            target = {"url": url, **keys}
            shares = Shares.of(run_perfkit(scenario(target, load, seconds), prefix=host.prefix).point)
            if keys["resolve"] == "first":
                is_right, expected = shares.second_share == 0 and "imbalanced" in shares.warnings, "0.0%"
            else:
                allowed = allowed_share(str(keys["balance"]), sum(shares.requests))
                is_right, expected = abs(shares.second_share - 0.5) <= allowed and "imbalanced" not in shares.warnings, "50.0%"
            cells = (*(f"{count:,}" for count in shares.requests), f"{shares.second_share:.2%}", expected, _codes(shares), yes_no(is_right))
            yield table_row(protocol, name, way, *cells), is_right


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


def _codes(shares: Shares) -> str:
    codes = shares.warnings & {"imbalanced", "slower_replica"}
    return ", ".join(f"`{code}`" for code in sorted(codes)) or "–"


def main() -> int:
    """Prints both tables."""
    parser = option_parser(__doc__)
    parser.add_argument("--seconds", type=float, default=10, help="window of each load point (default %(default)s)")
    options = parser.parse_args()
    lines = [
        "# Replicas",
        "",
        f"The bundled server's model `synthetic`, windows of {options.seconds:g} s. {describe_machine()}",
        "",
        "## Two replicas, the second 20 % slower",
        "",
        (
            f"Service times of {FAST_MS} and {SLOW_MS} ms, behind a list of URLs. Required: the ratio of the medians is 1.2 to within {_ALLOWED_RATIO}; "
            f"the 95 % intervals of both medians are apart, and `slower_replica` says so; the slower one's share is the expected one to "
            f"{100 * _ALLOWED_SHARE:g} percentage point (`random`: to what chance exceeds once in 1,000 load points); `imbalanced` says when it is more than 5 % below an equal one."
        ),
        "",
        *table_head("protocol", "load", "balance", ">requests, fast", ">slow", ">slow share", ">expected", "medians, ms", ">ratio", "warnings", "as required"),
    ]  # fmt: skip
    verdicts = []
    with running_server(*server_options(FAST_MS)) as fast, running_server(*server_options(SLOW_MS)) as slow:
        for line, is_right in list_rows(fast, slow, options.seconds):
            lines.append(line)
            verdicts.append(is_right)
            print(line, file=sys.stderr, flush=True)
    lines += [
        "",
        "## A name with two addresses",
        "",
        (
            f"`{_NAME}` resolves to {' and '.join(_ADDRESSES)}; both replicas take {FAST_MS} ms. Required: with `resolve: all`, shares of 50 % as above; "
            "with `resolve: first`, all requests at the first address, and `imbalanced` says so."
        ),
        "",
    ]
    try:
        with Laboratory() as laboratory, named_replicas(laboratory) as (host, urls):
            lines += table_head(
                "protocol", "load", "`resolve`", ">requests, first", ">second", ">second share", ">expected", "warnings", "as required"
            )
            for line, is_right in name_rows(host, urls, options.seconds):
                lines.append(line)
                verdicts.append(is_right)
                print(line, file=sys.stderr, flush=True)
    except NamespacesUnavailableError as error:
        lines.append(f"Not measured: {error}.")
    met = sum(verdicts)
    lines += ["", f"{met} of {len(verdicts)} load points are as required."]
    return publish(options.out, lines, is_met=met == len(verdicts))


if __name__ == "__main__":
    sys.exit(main())
