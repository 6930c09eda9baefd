"""The same calls to perfkit's own HTTP/2 and to grpcio's server: equal messages, statuses and texts."""

import zlib

import numpy as np
import pytest
from tritonclient.grpc import service_pb2 as triton

from tests.server_stub.grpc.h2_caller import Caller, framed


@pytest.fixture(scope="module")
def engines(start_server):
    """The server by perfkit's own HTTP/2, and the oracle on grpcio."""
    options = ("--model", "simple", "repeat_int32", "--max-body=65536")
    with start_server(*options) as wire, start_server(*options, module="tests.oracles.grpcio_server") as grpcio:
        yield wire, grpcio


def simple(**members):
    message = triton.ModelInferRequest(model_name="simple", **members)
    for name in ("INPUT0", "INPUT1"):
        message.inputs.add(name=name, datatype="INT32", shape=[1, 16])
        message.raw_input_contents.append(np.arange(16, dtype=np.int32).tobytes())
    return message


def with_other(message, change):
    change(message)
    return message.SerializeToString()


SIMPLE = simple(id="1").SerializeToString()
REPEAT = triton.ModelInferRequest(model_name="repeat_int32", id="r")
for _name, _datatype, _values in (("IN", "INT32", [5, 6]), ("DELAY", "UINT32", [0, 0]), ("WAIT", "UINT32", [0])):
    REPEAT.inputs.add(name=_name, datatype=_datatype, shape=[len(_values)])
    REPEAT.raw_input_contents.append(np.array(_values, np.int32).tobytes())
GZIP = ((b"grpc-encoding", b"gzip"),)
COMPRESSED = zlib.compress(SIMPLE, wbits=zlib.MAX_WBITS | 16)
NOPE = triton.ModelInferRequest(model_name="nope-ü%", id="2").SerializeToString()
FEW_BYTES = with_other(simple(), lambda message: message.raw_input_contents.pop())
CALLS = {
    "live": ("ServerLive", framed(b""), ()),
    "ready": ("ServerReady", framed(b""), ()),
    "health": (b"/grpc.health.v1.Health/Check", framed(b""), ()),
    "model ready": ("ModelReady", framed(triton.ModelReadyRequest(name="simple").SerializeToString()), ()),
    "server metadata": ("ServerMetadata", framed(b""), ()),
    "model metadata": ("ModelMetadata", framed(triton.ModelMetadataRequest(name="simple").SerializeToString()), ()),
    "configuration": ("ModelConfig", framed(triton.ModelConfigRequest(name="repeat_int32").SerializeToString()), ()),
    "index": ("RepositoryIndex", framed(b""), ()),
    "infer": ("ModelInfer", framed(SIMPLE), ()),
    "infer, compressed": ("ModelInfer", framed(COMPRESSED, packed=True), GZIP),
    "infer, not compressed despite its encoding": ("ModelInfer", framed(SIMPLE), GZIP),
    "infer, within a deadline": ("ModelInfer", framed(SIMPLE), ((b"grpc-timeout", b"1H"),)),
    "stream": ("ModelStreamInfer", framed(SIMPLE) + framed(REPEAT.SerializeToString()), ()),
    "stream, compressed": ("ModelStreamInfer", framed(COMPRESSED, packed=True) * 2, GZIP),
    "stream, with errors": ("ModelStreamInfer", framed(SIMPLE) + framed(NOPE) + framed(b"\xff"), ()),
    "stream, nothing": ("ModelStreamInfer", b"", ()),
    "unknown model": ("ModelInfer", framed(NOPE), ()),
    "a missing input": ("ModelInfer", framed(FEW_BYTES), ()),
    "a decoupled model": ("ModelInfer", framed(REPEAT.SerializeToString()), ()),
    "not a message": ("ModelInfer", framed(b"\xff\xff"), ()),
    "not a message, elsewhere": ("ModelReady", framed(b"\xff\xff"), ()),
    "unknown method": ("ModelThink", framed(b""), ()),
    "unknown service": (b"/s/M", framed(b""), ()),
    "broken gzip": ("ModelInfer", framed(COMPRESSED[:20], packed=True), GZIP),
    "too large": ("ModelInfer", framed(bytes(65_537)), ()),
    "too large once inflated": ("ModelInfer", framed(zlib.compress(bytes(65_537), wbits=zlib.MAX_WBITS | 16), packed=True), GZIP),
    "too large in a stream": ("ModelStreamInfer", framed(bytes(65_537)), ()),
    "too large in a stream once inflated": (
        "ModelStreamInfer",
        framed(zlib.compress(bytes(65_537), wbits=zlib.MAX_WBITS | 16), packed=True),
        GZIP,
    ),
}


def outcome(server, method, data, headers):
    with Caller(server.grpc_port) as caller:
        stream = caller.open(method, *headers)
        caller.send(stream, data, end=True)
        return caller.finish(stream)


@pytest.mark.parametrize(("method", "data", "headers"), CALLS.values(), ids=CALLS)
def test_both_engines_answer_alike(engines, method, data, headers):
    wire, (status, text, came) = (outcome(one, method, data, headers) for one in engines)
    assert wire == (status, text, came)


def test_a_deadline_ends_a_stream_alike(engines):
    later = triton.ModelInferRequest.FromString(REPEAT.SerializeToString())
    later.raw_input_contents[1] = np.array([2**31, 0], np.uint32).tobytes()  # weeks
    wire, grpcio = (outcome(one, "ModelStreamInfer", framed(later.SerializeToString()), ((b"grpc-timeout", b"50m"),)) for one in engines)
    assert wire == grpcio == (4, "Deadline Exceeded", b"")
