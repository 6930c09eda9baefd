"""Cases of the hostile trial: answers, frames and pages without an end, mostly from servers that answer the probe honestly."""

import contextlib
import functools
import json
from collections.abc import Iterator
from typing import Any

from benchmarks.hostile_case import Case
from tests.hostile.flooding_grpc import FLOODS as FRAMES
from tests.hostile.flooding_grpc import flooding_server
from tests.hostile.http_floods import FLOODS
from tests.hostile.v2_server import Described, http_server, statistics_document

_RUN = ("run", "s.yaml", "--out", "out", "--no-report")
_SWITCH = b"HTTP/1.1 101 Switching Protocols\r\nConnection: upgrade\r\nUpgrade: h2c\r\n\r\n"
_LONG_ERROR = b'{"error": "' + b"x" * 2**20 + b'"}'


def _scenario(**sections: Any) -> dict[str, str]:
    load = {
        "measure": {"warmup": "0s", "requests": 40, "repetitions": 1, "abort_error_rate": "50%"},
        "load": {"closed": {"concurrency": 8}},
    }
    document = {"name": "hostile", **load, **sections}
    document["target"] = {"url": "{url}", "model": "m", "timeout": "10s", **sections.get("target", {})}
    return {"s.yaml": json.dumps(document, indent=1)}


@contextlib.contextmanager
def _described(**keys: Any) -> Iterator[str]:
    with http_server(Described(**keys)) as url:
        yield url


def _http(**keys: Any) -> Any:
    return functools.partial(_described, **keys)


_TWO_SECONDS = {"warmup": "0s", "duration": "2s", "repetitions": 1}
_SLOW = {"closed": {"concurrency": 1, "think_time": "10ms"}}

ANSWER_CASES = (
    *(Case(f"HTTP: {part} without an end", 4, _RUN, 6, "aborted", _scenario(), _http(flood=flood)) for part, flood in FLOODS.items()),
    *(Case(f"gRPC: {kind} without an end", 4, _RUN, 6, "aborted", _scenario(), functools.partial(flooding_server, kind)) for kind in FRAMES),
    *(
        Case(f"gRPC: {kind} in place of the first answer", 4, _RUN, 6, "probe", _scenario(), functools.partial(flooding_server, kind, 0))
        for kind in ("DATA", "PING")
    ),
    Case("HTTP 101 under load", 8, _RUN, 6, "aborted", _scenario(), _http(flood=(_SWITCH, b""))),
    Case("an error of 1 MiB", 9, _RUN, 6, "aborted", _scenario(), _http(flood=(b"HTTP/1.1 500 x\r\nContent-Length: %d\r\n\r\n" % len(_LONG_ERROR) + _LONG_ERROR, b""))),
    Case("statistics that drip", 4, _RUN, 0, "", _scenario(measure=_TWO_SECONDS, load=_SLOW), _http(dripping=("/stats",)), seconds=20),
    Case("statistics of 64 MiB", 4, _RUN, 0, "", _scenario(load=_SLOW), _http(statistics=lambda _: statistics_document() + b" " * 2**26), seconds=20),
    Case("a metrics page that drips", 4, _RUN, 0, "", _scenario(target={"metrics_url": "{url}/metrics"}, measure=_TWO_SECONDS, load=_SLOW), _http(dripping=("/metrics",)), seconds=20),
)  # fmt: skip
