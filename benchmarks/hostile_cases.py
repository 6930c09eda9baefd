"""Cases of the hostile trial: sizes and counts that are absurd, and answers, frames and pages without an end."""

import contextlib
import dataclasses
import functools
import json
import pathlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from typing import Any

from benchmarks.hostile_recording_clients import HOSTILE, READ
from benchmarks.processes import RunningServer, running_canned_server, running_server
from tests.hostile.flooding_grpc import FLOODS as FRAMES
from tests.hostile.flooding_grpc import flooding_server
from tests.hostile.http_floods import FLOODS
from tests.hostile.v2_server import TENSOR, Described, grpc_server, http_server, statistics_document


@dataclasses.dataclass(frozen=True)
class Case:
    """A perfkit command against hostile files or a hostile server, and what it must end in."""

    name: str
    words: tuple[str, ...]
    """The command without `perfkit`; `{url}` is the server's URL, `{grpc}` that of the bundled one for gRPC, `{http_port}` and `{grpc_port}` are free ports."""
    exit_code: int | None
    """None: any that comes with a sentence, or 0."""
    text: str
    """Part of a line on stderr."""
    files: Mapping[str, str | bytes | pathlib.Path] = dataclasses.field(default_factory=dict)
    """The files of its folder; `{url}` is the server's URL. A path is what a symbolic link leads to."""
    server: Callable[[], AbstractContextManager[str | RunningServer]] | None = None
    """A hostile server, which gives its URL, or the bundled one."""
    client: str | None = None
    """The function of `hostile_clients` that talks to the bundled server or the proxy, where `words` start it; it must not fail."""
    peak_mib: int = 300
    seconds: float = 30.0
    interrupt_at_mib: int | None = None
    """The memory at which Ctrl-C is pressed."""
    answered_within_s: float = 2.0
    left_mib: int = 300
    """The most memory that a server may hold after its clients have left."""
    environ: Mapping[str, str | None] = dataclasses.field(default_factory=dict)
    """Variables of its environment; None for one that is missing."""
    script: str = ""
    """The shell script that executes the command, `"$@"`."""


def scenario(requests: int = 20, **sections: Any) -> dict[str, str]:
    """A scenario file for a hostile server; keywords replace sections."""
    document = {"name": "hostile", "load": _ONE, "measure": {"warmup": "0s", "requests": requests, "repetitions": 1}, **sections}
    document["target"] = {"url": "{url}", "model": "m", **sections.get("target", {})}
    return {"s.yaml": json.dumps(document, indent=1)}


def _loaded(**sections: Any) -> dict[str, str]:
    """One under load, which failures end."""
    measure = {"warmup": "0s", "requests": 40, "repetitions": 1, "abort_error_rate": "50%"}
    return scenario(
        **{
            "load": {"closed": {"concurrency": 8}},
            "measure": measure,
            **sections,
            "target": {"timeout": "10s", **sections.get("target", {})},
        }
    )


@contextlib.contextmanager
def _described(protocol: str, keys: dict[str, Any]) -> Iterator[str]:
    with (http_server if protocol == "http" else grpc_server)(Described(**keys)) as url:
        yield url


def http_target(protocol: str = "http", **keys: Any) -> Callable[[], AbstractContextManager[str]]:
    """A server that is `Described` by keywords."""
    return functools.partial(_described, protocol, keys)


def _shaped(shape: Sequence[int], datatype: str = "FP32") -> list[dict[str, Any]]:
    return [{**TENSOR, "datatype": datatype, "shape": list(shape)}]


def _bomb() -> str:
    """Lists of ten aliases of the previous list: ten to the power of nine values."""
    lines = ["a0: &a0 [1, 1, 1, 1, 1, 1, 1, 1, 1, 1]"]
    lines += [f"a{level}: &a{level} [{', '.join([f'*a{level - 1}'] * 10)}]" for level in range(1, 9)]
    return "\n".join(["name: bomb", *lines]) + "\n"


_ONE, _SLOW = ({"closed": {"concurrency": 1, "think_time": think_time}} for think_time in ("1ms", "10ms"))
_TWO_SECONDS = {"warmup": "0s", "duration": "2s", "repetitions": 1}
_SWEEP = {f"workload.parameters.p{key}": list(range(100)) for key in "abcd"}
_SERVE = ("serve", "--http-port=0", "--grpc-port=0", "--metrics-port=0", "--model", "simple", "simple_dyna_sequence")
_RECORD = (
    "record",
    "--listen",
    "http://127.0.0.1:{http_port}",
    "--target",
    "{url}",
    "--listen",
    "grpc://127.0.0.1:{grpc_port}",
    "--target",
    "{grpc}",
    "--out",
    "t.jsonl",
)
_RECORDED = (running_canned_server, functools.partial(running_server, "--model", "simple", "identity_fp32"))
RUN, _VALIDATE = ("run", "s.yaml", "--out", "out", "--no-report"), ("validate", "s.yaml")
_LARGE = [{**TENSOR, "name": f"x{index}", "shape": [4_000_000]} for index in range(4)]
_SWITCH = b"HTTP/1.1 101 Switching Protocols\r\nConnection: upgrade\r\nUpgrade: h2c\r\n\r\n"
_LONG_ERROR = b'{"error": "' + b"x" * 2**20 + b'"}'

CASES = (
    *(
        Case(f"metadata with shape [1000000000], {datatype}, {protocol}", RUN, 2, "GiB", scenario(), http_target(protocol, inputs=_shaped([10**9], datatype)))
        for protocol in ("http", "grpc")
        for datatype in ("FP32", "BYTES")
    ),
    Case("permitted tensors of 1 GiB, and Ctrl-C while they are made", RUN, 130, "", scenario(), http_target(inputs=_LARGE), peak_mib=1600, interrupt_at_mib=500),
    Case("10^9 variants", RUN, 2, "workload.variants", scenario(workload={"variants": 10**9}), http_target()),
    Case("a YAML file of aliases that expand to 10^9 values", _VALIDATE, 2, "250,000", {"s.yaml": _bomb()}, seconds=2),
    Case("the same in --set", (*_VALIDATE, "--set", "workload={" + ", ".join(_bomb().splitlines()[1:]) + "}"), 2, "250,000", scenario(), seconds=2),
    Case("a YAML file of 64 MB", _VALIDATE, 2, "MiB", {"s.yaml": "name: x\n" + "# 4567\n" * 8_000_000}, seconds=2),
    Case("a sweep of 100^4 cases", _VALIDATE, 2, "100,000,000", scenario(sweep=_SWEEP), seconds=2),
    Case("a million repetitions", RUN, 2, "measure.repetitions", scenario(measure={"repetitions": 10**6, "requests": 5}), http_target()),
    Case("metadata with a dimension of 10^30", RUN, 6, "dimension", scenario(), http_target(inputs=_shaped([10**30]))),
    Case("output metadata with a dimension of 10^30", RUN, 6, "dimension", scenario(), http_target(outputs=_shaped([10**30]))),
    Case("a shape of 10^30 in the scenario", RUN, 2, "workload.inputs.x.shape", scenario(workload={"inputs": {"x": {"generate": "zeros", "shape": [10**30]}}}), http_target(inputs=_shaped([-1]))),
    Case("statistics of 9.2e41", RUN, 0, "no count of 64 bits", scenario(), http_target(statistics=lambda reading: statistics_document(92 * 10**40 * reading, ns=92 * 10**40 * reading))),
    Case("statistics that are not numbers", RUN, 0, "no count of 64 bits", scenario(), http_target(statistics=lambda _: statistics_document("NaN", ns="1e400"))),
    Case("a think time of 10^90 h", _VALIDATE, 2, "at most 8784h", scenario(load={"closed": {"concurrency": 1, "think_time": "1e90h"}})),
    Case("a concurrency of 10^9", _VALIDATE, 2, "65536", scenario(load={"closed": {"concurrency": 10**9}})),
    Case("a rate of 10^99/s", _VALIDATE, 2, "10,000,000/s", scenario(load={"open": {"rate": "1e99/s"}})),
    Case("a sine with a period of 1 ns", _VALIDATE, 2, "linear pieces", scenario(load={"open": {"rate": 10, "shape": {"sine": {"amplitude": 0.5, "period": "1ns"}}}}, measure={"duration": "10s"})),
    Case("a scenario file that never ends", ("validate", "/dev/zero"), 2, "8.00 MiB"),
    Case("four gRPC compression bombs of 1,000 MiB", _SERVE, 0, "", client="bombs"),
    Case("12,000 sequences that are never ended", _SERVE, 0, "", client="sequences", seconds=60),
    *(Case(f"HTTP: {part} without an end", RUN, 6, "aborted", _loaded(), http_target(flood=flood)) for part, flood in FLOODS.items()),
    *(Case(f"gRPC: {kind} without an end", RUN, 6, "aborted", _loaded(), functools.partial(flooding_server, kind)) for kind in FRAMES),
    *(Case(f"gRPC: {kind} in place of the first answer", RUN, 6, "probe", _loaded(), functools.partial(flooding_server, kind, 0)) for kind in ("DATA", "PING")),
    Case("HTTP 101 under load", RUN, 6, "aborted", _loaded(), http_target(flood=(_SWITCH, b""))),
    Case("an error of 1 MiB", RUN, 6, "aborted", _loaded(), http_target(flood=(b"HTTP/1.1 500 x\r\nContent-Length: %d\r\n\r\n" % len(_LONG_ERROR) + _LONG_ERROR, b""))),
    *(Case(f"record: {name}", _RECORD, 0, "", server=_RECORDED[name in READ], client=name, peak_mib=512, left_mib=400, answered_within_s=5) for name in HOSTILE),
    Case("statistics that drip", RUN, 0, "", _loaded(measure=_TWO_SECONDS, load=_SLOW), http_target(dripping=("/stats",)), seconds=20),
    Case("statistics of 64 MiB", RUN, 0, "", _loaded(load=_SLOW), http_target(statistics=lambda _: statistics_document() + b" " * 2**26), seconds=20),
    Case("a metrics page that drips", RUN, 0, "", _loaded(target={"metrics_url": "{url}/metrics"}, measure=_TWO_SECONDS, load=_SLOW), http_target(dripping=("/metrics",)), seconds=20),
)  # fmt: skip
