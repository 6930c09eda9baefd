"""A small v2 client for comparing ways to hand over tensors: in the request, in system shared memory, in CUDA shared memory.

It sends the same request again and again on one connection, with perfkit's own regions.
"""

import contextlib
import http.client
import json
from collections.abc import Callable, Iterator

import grpc
import numpy as np
import numpy.typing as npt

from perfkit.machine.shared_memory import RegionMemory
from perfkit.protocol import rest, v2_pb2
from perfkit.protocol.message import SharedRegion
from perfkit.protocol.protobuf import SERVICE


@contextlib.contextmanager
def registered(http_port: int, array: npt.NDArray[np.float32], memory: RegionMemory) -> Iterator[RegionMemory]:
    """The array in memory of perfkit's own, registered for the length of the block."""
    region = SharedRegion(memory.name, memory.byte_size, memory.handle)
    try:
        memory.write(0, array.tobytes())
        _post(http_port, rest.region_path(region.kind, "register", region.name), rest.encode_region(region))
        yield memory
        _post(http_port, rest.region_path(region.kind, "unregister", region.name), b"{}")
    finally:
        memory.close()


def _post(port: int, path: str, body: bytes) -> None:
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=30)
    connection.request("POST", path, body)
    response = connection.getresponse()
    text = response.read()
    connection.close()
    if response.status != 200:
        raise RuntimeError(f"{path}: {response.status} {text.decode(errors='replace')}")


class HttpCaller:
    """Sends one request again and again over HTTP. The input is in `region`, or in the request without one."""

    def __init__(self, port: int, model: str, name: str, array: npt.NDArray[np.float32], region: RegionMemory | None) -> None:
        self._connection = http.client.HTTPConnection("127.0.0.1", port, timeout=60)
        size = {"binary_data_size": array.nbytes}
        shared = {} if region is None else {"shared_memory_region": region.name, "shared_memory_byte_size": array.nbytes}
        tensor = {"name": name, "datatype": "FP32", "shape": list(array.shape), "parameters": shared or size}
        head = json.dumps({"inputs": [tensor], "parameters": {"binary_data_output": True}}).encode()
        self._path, self._headers = f"/v2/models/{model}/infer", {"Inference-Header-Content-Length": str(len(head))}
        self._body = head if region is not None else head + array.tobytes()

    def call(self) -> npt.NDArray[np.float32]:
        """The first output. Raises RuntimeError with the server's words if the request fails."""
        self._connection.request("POST", self._path, self._body, self._headers)
        response = self._connection.getresponse()
        body = response.read()
        if response.status != 200:
            raise RuntimeError(f"{self._path}: {response.status} {body[:500].decode(errors='replace')}")
        return np.frombuffer(body[int(response.headers["Inference-Header-Content-Length"]) :], np.float32)

    def close(self) -> None:
        """Close the connection."""
        self._connection.close()


class GrpcCaller:
    """Sends one request again and again over gRPC. The input is in `region`, or in the request without one."""

    def __init__(self, port: int, model: str, name: str, array: npt.NDArray[np.float32], region: RegionMemory | None) -> None:
        options = [("grpc.max_send_message_length", -1), ("grpc.max_receive_message_length", -1), ("grpc.use_local_subchannel_pool", 1)]
        self._channel = grpc.insecure_channel(f"127.0.0.1:{port}", options)
        self._infer: Callable[..., bytes] = self._channel.unary_unary(f"/{SERVICE}/ModelInfer")
        message = v2_pb2.ModelInferRequest(model_name=model)
        tensor = message.inputs.add(name=name, datatype="FP32", shape=array.shape)
        if region is None:
            message.raw_input_contents.append(array.tobytes())
        else:
            tensor.parameters["shared_memory_region"].string_param = region.name
            tensor.parameters["shared_memory_byte_size"].int64_param = array.nbytes
        self._message = message.SerializeToString()

    def call(self) -> npt.NDArray[np.float32]:
        """The first output. Raises grpc.RpcError if the request fails."""
        response = v2_pb2.ModelInferResponse.FromString(self._infer(self._message, timeout=60))
        return np.frombuffer(response.raw_output_contents[0], np.float32)

    def close(self) -> None:
        """Close the channel."""
        self._channel.close()


Caller = HttpCaller | GrpcCaller
CALLERS: dict[str, type[HttpCaller] | type[GrpcCaller]] = {"http": HttpCaller, "grpc": GrpcCaller}
