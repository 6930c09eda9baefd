"""System shared memory: rows X1 to X4 of the conformance checklist."""

import asyncio
import contextlib
import errno
import json
import os
import pathlib
import uuid
from typing import Any

import grpc
import numpy as np
import pytest
import tritonclient.grpc
import tritonclient.grpc.aio
import tritonclient.http
import tritonclient.http.aio
from tritonclient.grpc import service_pb2
from tritonclient.utils import InferenceServerException, shared_memory

from perfkit.errors import ErrorKind, ProtocolError
from perfkit.protocol.message import InferRequest
from perfkit.protocol.tensor import Datatype, Tensor, encode_bytes_elements, tensor_from_array
from server_stub.executors.array import ArrayExecutor
from server_stub.inference.executed_model import BatchExecution
from server_stub.models import array_models
from server_stub.scheduling.request_queue import QueuedRequest
from server_stub.shared_memory.regions import FOLDER, RegionSlice, SharedMemoryRegions
from server_stub.shared_memory.shared_tensors import SharedTensors

FIRST, SECOND = np.arange(16, dtype=np.int32), np.full(16, 10, np.int32)
PATH = "/v2/systemsharedmemory"


@pytest.fixture(scope="module")
def allowing(start_server):
    with start_server("--model", "simple", "identity_fp32", "repeat_int32", "--allow-client-shm") as started:
        yield started


@pytest.fixture
def to(allowing, wire_to):
    connection = wire_to(allowing)
    yield connection
    assert connection.send("POST", f"{PATH}/unregister").status == 200


@pytest.fixture
def region():
    """The name of a file in /dev/shm with both input vectors, and space for the outputs after them."""
    name = f"perfkit-test-{uuid.uuid4().hex}"
    file = FOLDER / name
    file.write_bytes(FIRST.tobytes() + SECOND.tobytes() + bytes(256))
    yield name
    file.unlink()


@pytest.fixture(params=["http", "grpc"])
def client(request, allowing):
    library = {"http": tritonclient.http, "grpc": tritonclient.grpc}[request.param]
    port = allowing.http_port if request.param == "http" else allowing.grpc_port
    with library.InferenceServerClient(f"127.0.0.1:{port}") as opened:
        opened.library = library
        yield opened
        opened.unregister_system_shared_memory()


def register(to, name, key, byte_size=384, offset=0):
    return to.send("POST", f"{PATH}/region/{name}/register", json.dumps({"key": key, "offset": offset, "byte_size": byte_size}).encode())


def vectors(**second):
    place = {"shared_memory_region": "r", "shared_memory_byte_size": 64}
    return [
        {"name": "INPUT0", "datatype": "INT32", "shape": [1, 16], "parameters": place},
        {"name": "INPUT1", "datatype": "INT32", "shape": [1, 16], "parameters": {**place, "shared_memory_offset": 64, **second}},
    ]


def test_X1_tritonclient_registers_infers_and_unregisters(client):
    library, name = client.library, f"perfkit-{uuid.uuid4().hex}"
    handle = shared_memory.create_shared_memory_region("data", f"/{name}", 256)
    try:
        shared_memory.set_shared_memory_region(handle, [FIRST, SECOND])
        client.register_system_shared_memory("data", f"/{name}", 256)
        inputs = [library.InferInput(one, [1, 16], "INT32") for one in ("INPUT0", "INPUT1")]
        outputs = [library.InferRequestedOutput(one) for one in ("OUTPUT0", "OUTPUT1")]
        for index, one in enumerate((*inputs, *outputs)):
            one.set_shared_memory("data", 64, 64 * index)
        result = client.infer("simple", inputs, outputs=outputs)
        output = result.get_output("OUTPUT0")
        shape = output["shape"] if isinstance(output, dict) else output.shape
        sums, differences = (shared_memory.get_contents_as_numpy(handle, np.int32, list(shape), 128 + 64 * index) for index in (0, 1))
        np.testing.assert_array_equal(sums, [FIRST + SECOND])
        np.testing.assert_array_equal(differences, [FIRST - SECOND])
        status = client.get_system_shared_memory_status(**({} if library is tritonclient.http else {"as_json": True}))
        assert "data" in json.dumps(status)
        client.unregister_system_shared_memory("data")
        with pytest.raises(InferenceServerException, match="Unable to find shared memory region: 'data'"):
            client.infer("simple", inputs, outputs=outputs)
    finally:
        shared_memory.destroy_shared_memory_region(handle)


def test_X1_an_output_in_a_region_is_written_by_each_of_equal_requests(to, region, client):
    assert register(to, "r", f"/{region}").status == 200
    inputs = [client.library.InferInput(name, [1, 16], "INT32") for name in ("INPUT0", "INPUT1")]
    output = client.library.InferRequestedOutput("OUTPUT0")
    output.set_shared_memory("r", 64, 128)
    for number in range(3):
        for one, values in zip(inputs, (FIRST, np.full(16, number, np.int32)), strict=True):
            one.set_data_from_numpy(values.reshape(1, 16))
        client.infer("simple", inputs, outputs=[output])
        assert (FOLDER / region).read_bytes()[128:192] == (FIRST + number).tobytes()


@pytest.mark.parametrize("library", [tritonclient.http.aio, tritonclient.grpc.aio], ids=["http.aio", "grpc.aio"])
def test_X1_the_asynchronous_clients_register_infer_and_unregister(allowing, region, library):
    async def main():
        port = allowing.http_port if library is tritonclient.http.aio else allowing.grpc_port
        async with library.InferenceServerClient(f"127.0.0.1:{port}") as opened:
            await opened.register_system_shared_memory("aio", region, 384)
            inputs = [library.InferInput(one, [1, 16], "INT32") for one in ("INPUT0", "INPUT1")]
            output = library.InferRequestedOutput("OUTPUT0")
            for one, offset in ((inputs[0], 0), (inputs[1], 64), (output, 128)):
                one.set_shared_memory("aio", 64, offset)
            await opened.infer("simple", inputs, outputs=[output])
            await opened.unregister_system_shared_memory("aio")

    asyncio.run(main())
    assert (FOLDER / region).read_bytes()[128:192] == (FIRST + SECOND).tobytes()


def test_X1_regions_and_bodies_mix_over_http(to, region):
    assert register(to, "r", f"/{region}").status == 200
    inputs = [vectors()[0], {"name": "INPUT1", "datatype": "INT32", "shape": [1, 16], "parameters": {"binary_data_size": 64}}]
    place = {"shared_memory_region": "r", "shared_memory_byte_size": 64, "shared_memory_offset": 128}
    outputs = [{"name": "OUTPUT0", "parameters": place}, {"name": "OUTPUT1", "parameters": {"binary_data": True}}]
    answer = to.infer({"inputs": inputs, "outputs": outputs}, binary=SECOND.tobytes())
    assert answer.json["outputs"] == [
        {"name": "OUTPUT0", "datatype": "INT32", "shape": [1, 16]},
        {"name": "OUTPUT1", "datatype": "INT32", "shape": [1, 16], "parameters": {"binary_data_size": 64}},
    ]
    assert answer.body.endswith((FIRST - SECOND).tobytes())
    assert (FOLDER / region).read_bytes()[128:192] == (FIRST + SECOND).tobytes()
    answer = to.infer({"inputs": [inputs[0], {**vectors()[1], "parameters": {}, "data": SECOND.tolist()}], "outputs": outputs[:1]})
    assert answer.headers["Content-Type"] == "application/json"
    assert answer.json["outputs"] == [{"name": "OUTPUT0", "datatype": "INT32", "shape": [1, 16]}]


def test_X1_a_stream_reads_and_writes_regions_too(allowing, to, region):
    assert register(to, "r", region).status == 200
    came: list[Any] = []
    with tritonclient.grpc.InferenceServerClient(f"127.0.0.1:{allowing.grpc_port}") as opened:
        opened.start_stream(lambda result, error: came.append(error or result.get_response().raw_output_contents))
        inputs = [tritonclient.grpc.InferInput(one, [1, 16], "INT32") for one in ("INPUT0", "INPUT1")]
        output = tritonclient.grpc.InferRequestedOutput("OUTPUT0")
        for one, offset in ((inputs[0], 0), (inputs[1], 64), (output, 128)):
            one.set_shared_memory("r", 64, offset)
        opened.async_stream_infer("simple", inputs, outputs=[output])
        opened.stop_stream()
    assert [list(contents) for contents in came] == [[b""]]
    assert (FOLDER / region).read_bytes()[128:192] == (FIRST + SECOND).tobytes()


def test_X1_regions_and_typed_contents_mix_over_grpc(allowing, to, region):
    assert register(to, "r", region).status == 200
    message = service_pb2.ModelInferRequest(model_name="simple")
    lying, typed = (message.inputs.add(name=name, datatype="INT32", shape=[1, 16]) for name in ("INPUT0", "INPUT1"))
    lying.parameters["shared_memory_region"].string_param = "r"
    lying.parameters["shared_memory_byte_size"].int64_param = 64
    typed.contents.int_contents.extend(SECOND.tolist())
    with grpc.insecure_channel(f"127.0.0.1:{allowing.grpc_port}") as opened:
        channel: Any = opened
        call = channel.unary_unary("/inference.GRPCInferenceService/ModelInfer")
        answer = service_pb2.ModelInferResponse.FromString(call(message.SerializeToString(), timeout=60))
        assert answer.raw_output_contents[0] == (FIRST + SECOND).tobytes()
        message.raw_input_contents.append(bytes(64))
        with pytest.raises(grpc.RpcError) as refused:
            call(message.SerializeToString(), timeout=60)
    assert refused.value.code() is grpc.StatusCode.INVALID_ARGUMENT


def test_X2_a_second_region_with_the_same_name_is_rejected(to, region, client):
    assert register(to, "r", f"/{region}").status == 200
    answer = register(to, "r", f"/{region}")
    assert (answer.status, answer.json) == (400, {"error": "shared memory region 'r' already in manager"})
    with pytest.raises(InferenceServerException, match="already in manager") as error:
        client.register_system_shared_memory("r", f"/{region}", 4)
    assert error.value.status() == ("400" if client.library is tritonclient.http else "StatusCode.ALREADY_EXISTS")
    assert to.get(f"{PATH}/region/r/status").json == [{"name": "r", "key": f"/{region}", "offset": 0, "byte_size": 384}]


def test_X3_unregistering_an_unknown_region_succeeds(to, client):
    assert to.send("POST", f"{PATH}/unregister").status == 200
    assert to.send("POST", f"{PATH}/region/nope/unregister").status == 200
    client.unregister_system_shared_memory("nope")
    client.unregister_cuda_shared_memory()
    answer = to.get(f"{PATH}/region/x/status")
    assert (answer.status, answer.json) == (404, {"error": "Unable to find system shared memory region: 'x'"})


def test_X4_without_a_gpu_cuda_regions_are_rejected(to, client):
    body = json.dumps({"raw_handle": {"b64": "AAAA"}, "device_id": 0, "byte_size": 4}).encode()
    answer = to.send("POST", "/v2/cudasharedmemory/region/c/register", body)
    assert (answer.status, answer.json) == (400, {"error": "failed to register CUDA shared memory region: 'c', GPUs not supported"})
    assert to.get("/v2/cudasharedmemory/status").json == []
    assert to.get("/v2/cudasharedmemory/region/c/status").status == 404
    with pytest.raises(InferenceServerException, match="GPUs not supported"):
        client.register_cuda_shared_memory("c", b"AAAA", 0, 4)


def test_without_permission_nothing_can_be_registered(wire, triton_grpc, region):
    answer = register(wire, "r", f"/{region}")
    assert (answer.status, "--allow-client-shm" in answer.json["error"]) == (501, True)
    assert wire.send("POST", f"{PATH}/unregister").status == 501
    assert wire.get(f"{PATH}/status").json == []
    assert wire.infer({"inputs": vectors()}).status == 404
    with pytest.raises(InferenceServerException) as error:
        triton_grpc.register_system_shared_memory("r", f"/{region}", 4)
    assert error.value.status() == "StatusCode.UNIMPLEMENTED"
    assert "system_shared_memory" not in wire.get("/v2").json["extensions"]


@pytest.mark.parametrize(
    ("body", "status", "text"),
    [
        ({"byte_size": 4}, 400, "Shared memory register request has no 'key' field"),
        ({"key": "/KEY"}, 400, "Shared memory register request has no 'byte_size' field"),
        ({"key": "/nope", "byte_size": 4}, 500, "Unable to open shared memory region: '/nope'"),
        ({"key": "/../../etc/passwd", "byte_size": 4}, 500, "Unable to open shared memory region: '/../../etc/passwd'"),
        ({"key": "..", "byte_size": 4}, 500, "Unable to open shared memory region: '..'"),
        ({"key": "", "byte_size": 1}, 500, "Unable to open shared memory region: ''"),
        ({"key": "a\x00b", "byte_size": 1}, 500, "Unable to open shared memory region"),
        ({"key": "x" * 5000, "byte_size": 1}, 500, "Unable to open shared memory region"),
        ({"key": "\ud800", "byte_size": 1}, 500, "Unable to open shared memory region"),
        ({"key": "/KEY", "byte_size": 4000}, 500, "Invalid shared memory region: '/KEY'"),
        ({"key": "/KEY", "offset": 380, "byte_size": 16}, 500, "Invalid shared memory region: '/KEY'"),
        ({"key": "/KEY", "byte_size": 0}, 500, "Invalid shared memory region: '/KEY'"),
        ({"key": "/KEY", "offset": 2**63, "byte_size": 2**63}, 500, "Invalid shared memory region: '/KEY'"),
        ({"key": "/KEY", "byte_size": -1}, 500, "attempt to access JSON non-unsigned-integer as unsigned-integer"),
        ({"key": 5, "byte_size": 1}, 500, "attempt to access JSON non-string as string"),
    ],
)  # the responses of Triton 2.51
def test_invalid_regions_are_rejected(to, region, body, status, text):
    encoded = json.dumps(body).replace("/KEY", f"/{region}").encode()
    answer = to.send("POST", f"{PATH}/region/r/register", encoded)
    assert answer.status == status
    assert text.replace("/KEY", f"/{region}") in answer.json["error"]
    assert to.get(f"{PATH}/status").json == []


def test_a_region_needs_a_name(to, region):
    answer = to.send("POST", f"{PATH}/register", json.dumps({"key": region, "byte_size": 4}).encode())
    assert (answer.status, answer.json) == (400, {"error": "'region name' is necessary to register system shared memory region"})
    assert to.get(f"{PATH}/region/r/register").status == 405


R = {"shared_memory_region": "r", "shared_memory_byte_size": 64}


@pytest.mark.parametrize(
    ("changed", "status", "text"),
    [
        ({"shared_memory_region": "zz"}, 404, "Unable to find shared memory region: 'zz'"),
        ({"shared_memory_byte_size": 0}, 400, "Invalid offset + byte size for shared memory region: 'r'"),
        ({"shared_memory_byte_size": 32}, 400, "input byte size mismatch for input 'INPUT1' for model 'simple'. Expected 64, got 32"),
        ({"shared_memory_byte_size": 6400}, 400, "Invalid offset + byte size for shared memory region: 'r'"),
        ({"shared_memory_offset": 380}, 400, "Invalid offset + byte size for shared memory region: 'r'"),
        ({"shared_memory_offset": 3800}, 400, "Invalid offset for shared memory region: 'r'"),
        ({"shared_memory_offset": 2**70}, 400, "Invalid offset for shared memory region: 'r'"),
        ({"shared_memory_offset": -1}, 500, "Unable to parse 'shared_memory_offset': attempt to access JSON non-unsigned-integer"),
        ({"shared_memory_region": 3}, 500, "Unable to parse 'shared_memory_region': attempt to access JSON non-string as string"),
        ({"binary_data_size": 64}, 400, "Input must set only one of the following fields"),
    ],
)
def test_inputs_outside_their_region_are_rejected(to, region, changed, status, text):
    register(to, "r", f"/{region}")
    answer = to.infer({"inputs": vectors(**changed)})
    assert (answer.status, text in answer.json["error"]) == (status, True), answer.json


@pytest.mark.parametrize(
    ("parameters", "status", "text"),
    [
        (
            {**R, "shared_memory_byte_size": 32},
            500,
            "shared memory size specified with the request for output 'OUTPUT0' (32 bytes) should be",
        ),
        ({**R, "shared_memory_offset": 380}, 400, "Invalid offset + byte size for shared memory region: 'r'"),
        ({"shared_memory_region": "r"}, 400, "Invalid offset + byte size for shared memory region: 'r'"),
        ({**R, "shared_memory_region": "zz"}, 404, "Unable to find shared memory region: 'zz'"),
        ({**R, "classification": 2}, 400, "Output can't set both 'shared_memory_region' and 'classification'"),
    ],
)
def test_outputs_too_large_for_their_region_are_errors(to, region, parameters, status, text):
    register(to, "r", f"/{region}")
    before = (FOLDER / region).read_bytes()
    answer = to.infer({"inputs": vectors(), "outputs": [{"name": "OUTPUT0", "parameters": parameters}]})
    assert (answer.status, text in answer.json["error"]) == (status, True), answer.json
    assert (FOLDER / region).read_bytes() == before


def test_a_truncated_file_fails_one_request(to, region):
    register(to, "r", f"/{region}")
    os.truncate(FOLDER / region, 100)
    answer = to.infer({"inputs": vectors()})
    assert (answer.status, answer.json) == (500, {"error": "Invalid shared memory region: 'r'"})
    assert to.get("/v2/health/live").status == 200


def shared_request(regions, name, *, datatype=Datatype.INT32, dims=(1, 16)):
    """A request of `simple` with both inputs in a region, and its shared tensors."""
    shared = SharedTensors(inputs={f"INPUT{index}": regions.slice(name, 64 * index, 64) for index in (0, 1)})
    return shared.fill(InferRequest("simple", tuple(Tensor(name, datatype, dims, b"") for name in shared.inputs))), shared


class JoiningExecutor(ArrayExecutor):
    """Reads shared inputs where it joins a batch."""

    accepts_shared_arrays = True

    def join(self, parts):
        return {name: np.concatenate([part[name].to_host() for part in parts]) for name in parts[0]}


@pytest.mark.parametrize("kind", [ArrayExecutor, JoiningExecutor])
def test_a_file_truncated_before_the_execution_fails_one_request_of_the_batch(tmp_path, kind):
    regions = SharedMemoryRegions(tmp_path, is_allowed=True)
    for name in ("whole", "short"):
        (tmp_path / name).write_bytes(bytes(128))
        regions.register(name, name, 0, 128)
    requests = [shared_request(regions, name) for name in ("whole", "short")]
    (tmp_path / "whole").write_bytes(FIRST.tobytes() + SECOND.tobytes())  # models see the bytes at their execution
    os.truncate(tmp_path / "short", 100)
    definition, executor = array_models.load("simple")
    executor = kind(executor.execute)
    execution = BatchExecution(definition, "1", executor)
    result = execution.finish(execution.begin([QueuedRequest(request, 1, 0) for request, _ in requests]))
    assert result.failure is None
    finished = requests[0][1].finish(result.responses[0])
    assert [bytes(output.raw) for output in finished.outputs] == [(FIRST + SECOND).tobytes(), (FIRST - SECOND).tobytes()]
    with pytest.raises(ProtocolError, match=r"^Invalid shared memory region: 'short'$") as error:
        requests[1][1].finish(result.responses[1])
    assert error.value.kind is ErrorKind.INTERNAL


def test_shared_strings_are_read_at_once_so_that_their_number_can_be_checked(tmp_path):
    regions = SharedMemoryRegions(tmp_path, is_allowed=True)
    raw = encode_bytes_elements([b"%02d" % index for index in range(16)]).ljust(128)
    (tmp_path / "r").write_bytes(raw)
    regions.register("r", "r", 0, 128)
    request, _ = shared_request(regions, "r", datatype=Datatype.BYTES)
    assert [bytes(tensor.raw) for tensor in request.inputs] == [raw[:64], raw[64:]]
    os.truncate(tmp_path / "r", 100)
    with pytest.raises(ProtocolError, match=r"^Invalid shared memory region: 'r'$"):
        shared_request(regions, "r", datatype=Datatype.BYTES)


def test_a_file_that_cannot_be_written_fails_one_request():
    class Full:
        def read(self, offset, byte_size):
            return b""

        def write(self, offset, data):
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    slot = RegionSlice("r", Full(), 0, 8)
    with pytest.raises(ProtocolError, match=r"shared memory region 'r' cannot be used: .*No space left") as error:
        slot.write(tensor_from_array("x", Datatype.INT64, np.zeros(1, np.int64)))
    assert error.value.kind is ErrorKind.INTERNAL


def test_keys_cannot_lead_out_of_the_folder(tmp_path):
    inside, outside = tmp_path / "shm", tmp_path / "secret"
    inside.mkdir()
    outside.write_bytes(bytes(16))
    (inside / "link").symlink_to(outside)
    (inside / "folder").mkdir()
    os.mkfifo(inside / "pipe")
    regions = SharedMemoryRegions(inside, is_allowed=True)
    for key in ("link", "/link", "folder", "pipe", "../secret", "/..//secret", str(outside), ".", ""):
        with pytest.raises(ProtocolError) as error:
            regions.register("r", key, 0, 4)
        assert error.value.kind is ErrorKind.INTERNAL
    assert regions.status() == []


def test_an_unregistered_region_stays_open_for_requests_that_use_it(tmp_path):
    pathlib.Path(tmp_path, "file").write_bytes(b"0123456789")
    regions = SharedMemoryRegions(tmp_path, is_allowed=True)
    regions.register("r", "file", 2, 8)
    slot = regions.slice("r", 1, 3)
    regions.unregister("r")
    with contextlib.closing(os.fdopen(os.open(tmp_path / "other", os.O_CREAT | os.O_RDWR), "r+b")):
        assert slot.read() == b"345"
    regions.close()
