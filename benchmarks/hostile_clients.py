"""Hostile clients of the bundled server, for the trial: python -m benchmarks.hostile_clients NAME READY."""

import http.client
import json
import sys
import threading
import time
import zlib
from collections.abc import Callable, Mapping
from typing import Any

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


def send_tensors(ready: Mapping[str, Any]) -> None:
    """Honest requests of 10.8 MB, whose tensors are JSON, two at a time, without an end."""
    body = b'{"inputs":[{"name":"INPUT0","datatype":"FP32","shape":[1350000],"data":[' + b"0.12345," * 1_349_999 + b"0.12345]}]}"

    def send() -> None:
        connection = http.client.HTTPConnection("127.0.0.1", ready["http_port"])
        while True:
            connection.request("POST", f"/v2/models/{ready['model']}/infer", body)
            connection.getresponse().read()
            time.sleep(0.1)

    for _ in range(2):
        threading.Thread(target=send).start()


CLIENTS: Mapping[str, Callable[[Mapping[str, Any]], None]] = {"bombs": send_bombs, "sequences": start_sequences, "tensors": send_tensors}

if __name__ == "__main__":
    CLIENTS[sys.argv[1]](json.loads(sys.argv[2]))
