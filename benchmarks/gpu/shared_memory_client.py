"""A small v2 client for comparing ways to hand over tensors: in the request, in system shared memory, in CUDA shared memory.

It sends the same request again and again on one connection. perfkit's load generator has no shared memory yet.
"""

import base64
import contextlib
import ctypes
import http.client
import json
import pathlib
import uuid
from collections.abc import Callable, Iterator
from typing import Any, Protocol

import grpc
import numpy as np
import numpy.typing as npt

from perfkit.protocol import v2_pb2
from perfkit.protocol.protobuf import SERVICE
from server_stub.devices.cuda_driver import HANDLE_BYTES, CudaDriver

_SHM = pathlib.Path("/dev/shm")  # noqa: S108 - shm_open's folder


class Region(Protocol):
    """A registered region that holds the input."""

    name: str
    byte_size: int


class SharingDriver(CudaDriver):
    """The driver as seen by a client, which shares its memory with the server."""

    def share(self, address: int) -> bytes:
        """The handle by which another process opens memory of `allocate`."""
        handle = ctypes.create_string_buffer(HANDLE_BYTES)
        self._call("cuIpcGetMemHandle", handle, ctypes.c_uint64(address))
        return handle.raw


class Registered:
    """A region that a server knows, as `kind` says: `system` or `cuda`."""

    def __init__(self, port: int, kind: str, byte_size: int, document: dict[str, Any]) -> None:
        self.name, self.byte_size = f"proof-{uuid.uuid4().hex[:8]}", byte_size
        self._port, self._path = port, f"/v2/{kind}sharedmemory/region/{self.name}"
        self._post("register", document)

    def unregister(self) -> None:
        """Let the server close it."""
        self._post("unregister", {})

    def _post(self, action: str, document: dict[str, Any]) -> None:
        connection = http.client.HTTPConnection("127.0.0.1", self._port, timeout=30)
        connection.request("POST", f"{self._path}/{action}", json.dumps(document))
        response = connection.getresponse()
        text = response.read()
        connection.close()
        if response.status != 200:
            raise RuntimeError(f"{action} of {self._path}: {response.status} {text.decode(errors='replace')}")


@contextlib.contextmanager
def system_region(http_port: int, array: npt.NDArray[np.float32]) -> Iterator[Registered]:
    """The array in a file of /dev/shm, registered for the length of the block."""
    file = _SHM / f"perfkit-proof-{uuid.uuid4().hex[:8]}"
    try:
        file.write_bytes(array.tobytes())
        region = Registered(http_port, "system", array.nbytes, {"key": f"/{file.name}", "offset": 0, "byte_size": array.nbytes})
        yield region
        region.unregister()
    finally:
        file.unlink(missing_ok=True)


@contextlib.contextmanager
def gpu_region(http_port: int, array: npt.NDArray[np.float32], driver: SharingDriver) -> Iterator[Registered]:
    """The array in memory of GPU 0, registered for the length of the block."""
    address = driver.allocate(array.nbytes)
    try:
        driver.write(address, array.tobytes(), 0)
        handle = {"b64": base64.b64encode(driver.share(address)).decode()}
        region = Registered(http_port, "cuda", array.nbytes, {"raw_handle": handle, "device_id": 0, "byte_size": array.nbytes})
        yield region
        region.unregister()
    finally:
        driver.free(address)


class HttpCaller:
    """Sends one request again and again over HTTP. The input is in `region`, or in the request without one."""

    def __init__(self, port: int, model: str, name: str, array: npt.NDArray[np.float32], region: Region | None) -> None:
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

    def __init__(self, port: int, model: str, name: str, array: npt.NDArray[np.float32], region: Region | None) -> None:
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
