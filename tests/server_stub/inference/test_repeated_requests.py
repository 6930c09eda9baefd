"""Which requests the front ends parse only once."""

import json
import types
from typing import Any

import numpy as np
import pytest

from perfkit.errors import ProtocolError
from perfkit.protocol import protobuf, rest, v2_pb2
from server_stub.grpc.calls import StatusError
from server_stub.grpc.front_end import GrpcFrontEnd
from server_stub.http.inference import HttpInference
from server_stub.log import Log
from server_stub.options import Options
from server_stub.repository.sources import open_repository
from server_stub.service import Service
from server_stub.settings import Settings
from server_stub.shared_memory.regions import SharedMemoryRegions


@pytest.fixture(scope="module")
def service():
    repository = open_repository(Options(models=("simple", "identity_fp32", "repeat_int32")), 1)
    repository.load()
    yield Service(repository, SharedMemoryRegions(is_allowed=False), Log(Settings()))
    repository.close()


@pytest.fixture
def parsed(monkeypatch):
    """What is parsed as a request, in both protocols."""
    seen = []

    def count(module, name):
        parse = getattr(module, name)

        def counted(*arguments):
            seen.append(name)
            return parse(*arguments)

        monkeypatch.setattr(module, name, counted)

    count(protobuf, "parse_infer_request")
    count(rest, "decode_infer_request")
    return seen


def over_grpc(service):
    """A function that answers requests of one front end."""
    infer: Any = GrpcFrontEnd(service).methods.unary[protobuf.method_path("ModelInfer")]

    async def answer(shape, values, **typed):
        inputs = [{"name": name, "datatype": "INT32", "shape": shape, **typed} for name in ("INPUT0", "INPUT1")]
        raw = [] if typed else [values.tobytes()] * 2
        message = v2_pb2.ModelInferRequest(model_name="simple", inputs=inputs, raw_input_contents=raw)
        pieces = await infer(message.SerializeToString(), types.SimpleNamespace(metadata={}))
        return v2_pb2.ModelInferResponse.FromString(b"".join(pieces)).raw_output_contents[0]

    return answer


def over_http(service):
    front = HttpInference(service)

    async def answer(shape, values):
        inputs = [
            {"name": name, "datatype": "INT32", "shape": shape, "parameters": {"binary_data_size": values.nbytes}}
            for name in ("INPUT0", "INPUT1")
        ]
        head = json.dumps({"inputs": inputs, "parameters": {"binary_data_output": True}}).encode()
        response = await front.respond("simple", "", head + values.tobytes() * 2, 0, str(len(head)))
        return bytes(response.body[1])

    return answer


@pytest.mark.parametrize("over", [over_grpc, over_http])
async def test_a_request_is_parsed_again_until_its_model_has_answered_one_like_it(service, parsed, over):
    answer = over(service)
    for times in (1, 2, 3):
        with pytest.raises((ProtocolError, StatusError), match="unexpected shape for input 'INPUT0'"):
            await answer([1, 15], np.zeros(15, np.int32))
        assert len(parsed) == times, "what does not fit the model is not remembered"
    parsed.clear()
    for number in range(3):
        values = np.full(16, number, np.int32)
        assert await answer([1, 16], values) == (2 * values).tobytes()
    assert len(parsed) == 1


async def test_typed_contents_are_parsed_each_time(service, parsed):
    answer = over_grpc(service)
    for number in range(3):
        values = np.full(16, number, np.int32)
        assert await answer([1, 16], values, contents={"int_contents": values.tolist()}) == (2 * values).tobytes()
    assert len(parsed) == 3
