"""What the comparisons with peers share: their options, the cost of a request between two runs, and a second run after a hang."""

import argparse
import pathlib
import sys
from collections.abc import Callable, Iterable, Mapping
from types import MappingProxyType
from typing import TypeVar

from benchmarks.peers.clients import ClientError, HungError, Reported
from benchmarks.report import option_parser

_T = TypeVar("_T")
_NONE: Mapping[str, str] = MappingProxyType({})


def comparison_options(doc: str | None, cases: Iterable[str], *, seconds: float, flags: Mapping[str, str] = _NONE) -> argparse.Namespace:
    """The options of a comparison's command line; `seconds` is the default length of a long run, `flags` are further ones with their help."""
    parser = option_parser(doc)
    parser.add_argument("--case", action="append", choices=list(cases), help="may be repeated (default: all)")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--seconds", type=float, default=seconds, help="length of a client's long run (default %(default)s)")
    parser.add_argument("--perfkit", metavar="PATH", help="the perfkit to measure (default: this checkout)")
    parser.add_argument("--seed", type=int, default=0, help="seed for the order of the clients")
    parser.add_argument("--peers", type=pathlib.Path, help="folder of the peers")
    for name, text in flags.items():
        parser.add_argument(name, action="store_true", help=text)
    return parser.parse_args()


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
