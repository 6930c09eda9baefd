"""Hostile clients of the bundled server and of `perfkit record`, for the trial: python -m benchmarks.hostile_clients NAME READY."""

import http.client
import json
import math
import sys
import zlib
from collections.abc import Callable, Mapping
from typing import Any

from benchmarks.hostile_recording_clients import HOSTILE, beside_neighbour, send_tensors
from tests.server_stub.grpc.h2_caller import Caller, framed

_MIB = 2**20


def send_bombs(ready: Mapping[str, Any]) -> None:
    """Four gRPC messages of a megabyte that inflate to 1,000 MiB each."""
    packing = zlib.compressobj(1, zlib.DEFLATED, zlib.MAX_WBITS | 16)
    bomb = b"".join([*(packing.compress(bytes(_MIB)) for _ in range(1000)), packing.flush()])
    with Caller(ready["grpc_port"]) as caller:  # type: ignore[no-untyped-call]  # the tests' functions are not typed
        for _ in range(4):
            stream = caller.open("ModelInfer", (b"grpc-encoding", b"gzip"))
            caller.send(stream, framed(bomb, packed=True), end=True)  # type: ignore[no-untyped-call]  # as above
            print(caller.finish(stream)[:2])


def start_sequences(ready: Mapping[str, Any]) -> None:
    """12,000 sequences, of which none is ended."""
    connection = http.client.HTTPConnection("127.0.0.1", ready["http_port"])
    tensor = {"name": "INPUT", "datatype": "INT32", "shape": [1, 1], "data": [1]}
    for key in range(1, 12_001):
        body = json.dumps({"inputs": [tensor], "parameters": {"sequence_id": key, "sequence_start": True}})
        connection.request("POST", "/v2/models/simple_dyna_sequence/infer", body)
        connection.getresponse().read()


CLIENTS: Mapping[str, Callable[[Mapping[str, Any]], None]] = {
    "bombs": send_bombs,
    "sequences": start_sequences,
    "tensors": lambda ready: send_tensors(ready, math.inf),
    **{name: beside_neighbour(name) for name in HOSTILE},
}

if __name__ == "__main__":
    CLIENTS[sys.argv[1]](json.loads(sys.argv[2]))
