"""Cases of the hostile trial: sizes and counts that are absurd, from files and from servers."""

import contextlib
import functools
import json
from collections.abc import Iterator, Sequence
from typing import Any

from benchmarks.hostile_case import Case
from tests.hostile import v2_server
from tests.hostile.v2_server import TENSOR, Described, statistics_document

_FAST = {"measure": {"warmup": "0s", "requests": 20, "repetitions": 1}, "load": {"closed": {"concurrency": 1, "think_time": "1ms"}}}


def _scenario(**sections: Any) -> dict[str, str]:
    """A scenario file for a hostile server; keywords replace sections."""
    document = {"name": "hostile", "target": {"url": "{url}", "model": "m"}, **_FAST, **sections}
    return {"s.yaml": json.dumps(document, indent=1)}


@contextlib.contextmanager
def _described(protocol: str, **keys: Any) -> Iterator[str]:
    server = v2_server.http_server if protocol == "http" else v2_server.grpc_server
    with server(Described(**keys)) as url:
        yield url


def _shaped(shape: Sequence[int], datatype: str = "FP32") -> list[dict[str, Any]]:
    return [{**TENSOR, "datatype": datatype, "shape": list(shape)}]


def _bomb(levels: int = 9) -> str:
    """Lists of ten aliases of the previous list: ten to the power of `levels` values."""
    lines = ["a0: &a0 [1, 1, 1, 1, 1, 1, 1, 1, 1, 1]"]
    lines += [f"a{level}: &a{level} [{', '.join([f'*a{level - 1}'] * 10)}]" for level in range(1, levels)]
    return "\n".join(["name: bomb", *lines]) + "\n"


_SWEEP = {f"workload.parameters.p{key}": list(range(100)) for key in "abcd"}
_SERVE = ("serve", "--http-port=0", "--grpc-port=0", "--metrics-port=0", "--model", "simple", "simple_dyna_sequence")
_RUN = ("run", "s.yaml", "--out", "out", "--no-report")

_HTTP = functools.partial(functools.partial, _described, "http")
_LARGE = [{**TENSOR, "name": f"x{index}", "shape": [4_000_000]} for index in range(4)]

SIZE_CASES = (
    *(
        Case(f"metadata with shape [1000000000], {datatype}, {protocol}", 3, _RUN, 2, "GiB", _scenario(), functools.partial(_described, protocol, inputs=_shaped([10**9], datatype)))
        for protocol in ("http", "grpc")
        for datatype in ("FP32", "BYTES")
    ),
    Case("permitted tensors of 1 GiB, and Ctrl-C while they are made", 3, _RUN, 130, "", _scenario(), _HTTP(inputs=_LARGE), peak_mib=1600, interrupt_at_mib=500),
    Case("10^9 variants", 3, _RUN, 2, "workload.variants", _scenario(workload={"variants": 10**9}), _HTTP()),
    Case("a YAML file of aliases that expand to 10^9 values", 3, ("validate", "s.yaml"), 2, "250,000", {"s.yaml": _bomb()}, seconds=2),
    Case("the same in --set", 3, ("validate", "s.yaml", "--set", "workload={" + ", ".join(_bomb().splitlines()[1:]) + "}"), 2, "250,000", _scenario(), seconds=2),
    Case("a YAML file of 64 MB", 3, ("validate", "s.yaml"), 2, "MiB", {"s.yaml": "name: x\n" + "# 4567\n" * 8_000_000}, seconds=2),
    Case("a sweep of 100^4 cases", 3, ("validate", "s.yaml"), 2, "100,000,000", _scenario(sweep=_SWEEP), seconds=2),
    Case("a million repetitions", 3, _RUN, 2, "measure.repetitions", _scenario(measure={"repetitions": 10**6, "requests": 5}), _HTTP()),
    Case("metadata with a dimension of 10^30", 8, _RUN, 6, "dimension", _scenario(), _HTTP(inputs=_shaped([10**30]))),
    Case("output metadata with a dimension of 10^30", 8, _RUN, 6, "dimension", _scenario(), _HTTP(outputs=_shaped([10**30]))),
    Case("a shape of 10^30 in the scenario", 8, _RUN, 2, "workload.inputs.x.shape", _scenario(workload={"inputs": {"x": {"generate": "zeros", "shape": [10**30]}}}), _HTTP(inputs=_shaped([-1]))),
    Case("statistics of 9.2e41", 8, _RUN, 0, "no count of 64 bits", _scenario(), _HTTP(statistics=lambda reading: statistics_document(92 * 10**40 * reading, ns=92 * 10**40 * reading))),
    Case("statistics that are not numbers", 8, _RUN, 0, "no count of 64 bits", _scenario(), _HTTP(statistics=lambda _: statistics_document("NaN", ns="1e400"))),
    Case("a think time of 10^90 h", 3, ("validate", "s.yaml"), 2, "at most 8784h", _scenario(load={"closed": {"concurrency": 1, "think_time": "1e90h"}})),
    Case("a concurrency of 10^9", 3, ("validate", "s.yaml"), 2, "65536", _scenario(load={"closed": {"concurrency": 10**9}})),
    Case("a rate of 10^99/s", 3, ("validate", "s.yaml"), 2, "10,000,000/s", _scenario(load={"open": {"rate": "1e99/s"}})),
    Case("a sine with a period of 1 ns", 3, ("validate", "s.yaml"), 2, "linear pieces", _scenario(load={"open": {"rate": 10, "shape": {"sine": {"amplitude": 0.5, "period": "1ns"}}}}, measure={"duration": "10s"})),
    Case("a scenario file that never ends", 3, ("validate", "/dev/zero"), 2, "8.00 MiB"),
    Case("four gRPC compression bombs of 1,000 MiB", 10, _SERVE, 0, "", client="bombs"),
    Case("12,000 sequences that are never ended", 10, _SERVE, 0, "", client="sequences", seconds=60),
)  # fmt: skip
