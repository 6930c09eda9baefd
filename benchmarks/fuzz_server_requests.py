"""Requests to the bundled server, made from a seed and broken somewhere: HTTP, messages for gRPC, HTTP/2 frames."""

import gzip
import json
import random
import struct
import zlib
from typing import Any, NamedTuple

from benchmarks.fuzzing import harm
from perfkit.protocol import http2, v2_pb2

_NUMBERS = (0, 1, -1, 2, 15, 16, 17, 64, 2**31 - 1, 2**31, 2**32, 2**62, 2**63, 2**64, 2**100, 1.5, float("nan"))
_TEXTS = ("", "x", "INPUT0", "OUTPUT0", "INT32", "FP32", "BYTES", "FP16", "simple", "\x00", "ü" * 50, "9" * 30, "../../etc/passwd")
_KEYS = ("binary_data_size", "binary_data", "binary_data_output", "classification", "shared_memory_region", "shared_memory_byte_size",
         "sequence_id", "sequence_start", "sequence_end", "priority", "timeout", "triton_x", "headers")  # fmt: skip
_ENCODINGS = ("gzip", "deflate", "identity", "br", "gzip, deflate", "*", ";q=", "gzip;q=1e400")
_GETS = ("/v2", "/v2/health/ready", "/v2/models/simple", "/v2/models/simple/config", "/v2/models/simple/stats", "/v2/models/stats",
         "/v2/systemsharedmemory/status", "/v2/cudasharedmemory/status", "/v2/trace/setting", "/v2/logging", "/v2/models/simple/versions/1")  # fmt: skip
_POSTS: tuple[tuple[str, dict[str, Any]], ...] = (
    ("/v2/repository/index", {"ready": True}),
    ("/v2/repository/models/simple/load", {"parameters": {"config": "{}", "file:1/model.onnx": "AAAA"}}),
    ("/v2/repository/models/simple/unload", {"parameters": {"unload_dependents": True}}),
    ("/v2/systemsharedmemory/region/r/register", {"key": "/nothing", "offset": 0, "byte_size": 64}),
    ("/v2/systemsharedmemory/unregister", {}),
    ("/v2/cudasharedmemory/region/r/register", {"raw_handle": {"b64": "AAAA"}, "device_id": 0, "byte_size": 64}),
    ("/v2/trace/setting", {"trace_rate": "5", "trace_level": ["OFF"]}),
    ("/v2/logging", {"log_warning": True}),
    ("/v2/models/simple/generate", {"INPUT0": list(range(16)), "INPUT1": [1] * 16, "id": "7", "parameters": {"x": 1}}),
    ("/v2/models/repeat_int32/generate_stream", {"IN": [1, 2], "DELAY": [0, 0], "WAIT": 0}),
    ("/v2/models/simple_identity/generate_stream", {"INPUT0": "text"}),
)
_METHODS = ("ModelInfer", "ModelInfer", "ModelInfer", "ModelMetadata", "ModelConfig", "ModelStatistics", "ModelReady", "RepositoryIndex",
            "RepositoryModelLoad", "RepositoryModelUnload", "SystemSharedMemoryStatus", "SystemSharedMemoryRegister", "TraceSetting",
            "LogSettings", "CudaSharedMemoryRegister", "ServerMetadata", "Nope")  # fmt: skip


class Call(NamedTuple):
    """A gRPC call and what is sent by it."""

    method: str
    messages: tuple[bytes, ...]
    is_stream: bool = False


class _Model(NamedTuple):
    name: str
    inputs: tuple[str, ...]
    datatype: str
    row: int
    is_sequence: bool = False


_MODELS = (
    _Model("simple", ("INPUT0", "INPUT1"), "INT32", 16),
    _Model("simple_string", ("INPUT0", "INPUT1"), "BYTES", 16),
    _Model("simple_identity", ("INPUT0",), "BYTES", 3),
    _Model("identity_fp32", ("INPUT0",), "FP32", 5),
    _Model("simple_sequence", ("INPUT",), "INT32", 1, is_sequence=True),
    _Model("simple_dyna_sequence", ("INPUT",), "INT32", 1, is_sequence=True),
)


def any_http(chance: random.Random) -> bytes:
    """One request's bytes; about one in ten is whole."""
    headers: dict[str, object] = {"Host": "a"}
    kind = chance.random()
    if kind < 0.08:
        return _framed("GET", chance.choice(_GETS), headers, b"", chance)
    if kind < 0.25:
        path, document = chance.choice(_POSTS)
        return _framed("POST", path, headers, _dumped(_changed(document, chance, 0.2)), chance)
    model = chance.choice(_MODELS)
    document, binary = _inference(model, chance)
    head = _dumped(_changed(document, chance, chance.choice([0, 0.02, 0.1])))
    body = head + binary
    if binary or chance.random() < 0.1:
        headers["Inference-Header-Content-Length"] = _near(len(head), chance)
    match chance.randrange(12):
        case 0:
            body, headers["Content-Encoding"] = gzip.compress(body, mtime=0), "gzip"
        case 1:
            body, headers["Content-Encoding"] = zlib.compress(body), chance.choice(_ENCODINGS)
        case 2:
            headers["Accept-Encoding"] = chance.choice(_ENCODINGS)
        case _:
            pass
    return _framed("POST", f"/v2/models/{model.name}{chance.choice(['', '', '/versions/1', '/versions/2'])}/infer", headers, body, chance)


def _framed(method: str, path: str, headers: dict[str, object], body: bytes, chance: random.Random) -> bytes:
    if chance.random() < 0.1:
        headers["Transfer-Encoding"] = "chunked"
        middle = chance.randrange(len(body) + 1)
        parts = [part for part in (body[:middle], body[middle:]) if part]
        body = b"".join([*(b"%x\r\n%s\r\n" % (len(part), part) for part in parts), b"0\r\n\r\n"])
    elif body or method == "POST":
        headers["Content-Length"] = _near(len(body), chance)
    lines = [f"{method} {path} HTTP/1.1", *(f"{name}: {value}" for name, value in headers.items()), "", ""]
    written = bytearray("\r\n".join(lines).encode("utf-8") + body)
    for _ in range(chance.choice([0, 0, 0, 0, 1, 3])):
        harm(written, chance)
    return bytes(written)


def _inference(model: _Model, chance: random.Random) -> tuple[dict[str, Any], bytes]:
    rows, binary, inputs = chance.choice([1, 1, 2, 8, 9]), b"", []
    for name in model.inputs:
        one: dict[str, Any] = {"name": name, "datatype": model.datatype, "shape": [rows, model.row]}
        values = [chance.randrange(100) for _ in range(rows * model.row)]
        if chance.random() < 0.5:
            raw = _raw(model.datatype, values)
            one["parameters"] = {"binary_data_size": _near(len(raw), chance)}
            binary += raw
        else:
            one["data"] = [str(value) for value in values] if model.datatype == "BYTES" else values
        inputs.append(one)
    document: dict[str, Any] = {"id": chance.choice(_TEXTS), "inputs": inputs}
    if chance.random() < 0.3:
        document["outputs"] = [{"name": "OUTPUT0", "parameters": {"binary_data": True, "classification": chance.choice([0, 2, 10**9])}}]
    if model.is_sequence:
        document["parameters"] = {"sequence_id": chance.randrange(4), "sequence_start": True, "sequence_end": chance.random() < 0.8}
    elif chance.random() < 0.2:
        document["parameters"] = {chance.choice(_KEYS): chance.choice([1, True, "x", 1.5])}
    return document, binary


def _raw(datatype: str, values: list[int]) -> bytes:
    if datatype == "BYTES":
        return b"".join(struct.pack("<I", len(text)) + text for text in (str(value).encode() for value in values))
    return struct.pack(f"<{len(values)}{'f' if datatype == 'FP32' else 'i'}", *values)


def _near(right: int, chance: random.Random) -> object:
    """Right most of the time; otherwise a little off, or far."""
    return right if chance.random() < 0.9 else chance.choice([right + 1, max(0, right - 1), 0, -1, 2**31, 2**63, 2**70, "x", ""])


def _changed(value: Any, chance: random.Random, share: float) -> Any:
    """A JSON value with some of its parts replaced, left out, doubled or nested."""
    if chance.random() < share:
        return chance.choice(
            [None, True, chance.choice(_NUMBERS), chance.choice(_TEXTS), [], {}, [value], {"x": value}, [value, value], _nested(chance)]
        )
    if isinstance(value, dict):
        changed = {key: _changed(one, chance, share) for key, one in value.items() if chance.random() >= share / 4}
        if chance.random() < share:
            changed[chance.choice(_KEYS)] = chance.choice(_NUMBERS)
        return changed
    if isinstance(value, list):
        return [_changed(one, chance, share / max(1, len(value) / 4)) for one in value]
    return value


def _nested(chance: random.Random) -> Any:
    value: Any = 1
    for _ in range(chance.choice([3, 90, 300])):
        value = [value]
    return value


def _dumped(value: Any) -> bytes:
    return json.dumps(value).encode()


def any_call(chance: random.Random) -> Call:
    """One call; about one in four is whole."""
    if chance.random() < 0.25:
        return Call("ModelStreamInfer", tuple(_message(chance) for _ in range(chance.randrange(1, 4))), is_stream=True)
    method = chance.choice(_METHODS)
    if method == "ModelInfer":
        return Call(method, (_message(chance),))
    document = {"name": chance.choice(_TEXTS), "version": chance.choice(["", "1", "9", "x", "-1"])}
    request = v2_pb2.ModelReadyRequest(**document)  # the same fields as many others'
    return Call(method, (_harmed(request.SerializeToString(), chance),))


def _message(chance: random.Random) -> bytes:
    if chance.random() < 0.1:
        return _repeat(chance)
    model = chance.choice(_MODELS)
    rows = chance.choice([1, 1, 2, 9])
    message = v2_pb2.ModelInferRequest(
        model_name=model.name, id=chance.choice(_TEXTS), model_version=chance.choice(["", "", "1", "9", "x"])
    )
    for name in model.inputs:
        shape = [rows, model.row] if chance.random() < 0.9 else [chance.choice([0, -1, 2**62, 2**63 - 1, 7])] * chance.randrange(4)
        one = message.inputs.add(name=name, datatype=chance.choice([model.datatype] * 9 + ["FP16", "X", ""]), shape=shape)
        values = [chance.randrange(100) for _ in range(rows * model.row)]
        if chance.random() < 0.7:
            message.raw_input_contents.append(_harmed(_raw(model.datatype, values), chance))
        elif model.datatype == "BYTES":
            one.contents.bytes_contents.extend(str(value).encode() for value in values)
        else:
            getattr(one.contents, chance.choice(["int_contents", "fp32_contents", "int64_contents"])).extend(values)
        if chance.random() < 0.1:
            one.parameters[chance.choice(_KEYS)].int64_param = chance.choice([0, 1, -1, 2**40])
    if chance.random() < 0.2:
        message.outputs.add(name=chance.choice(["OUTPUT0", "OUTPUT", "x"])).parameters["classification"].int64_param = chance.choice(
            [-1, 0, 2, 2**60]
        )
    if model.is_sequence:
        message.parameters["sequence_id"].int64_param = chance.randrange(-1, 4)
        message.parameters["sequence_start"].bool_param = message.parameters["sequence_end"].bool_param = True
    elif chance.random() < 0.3:
        message.parameters[chance.choice(_KEYS)].string_param = chance.choice(_TEXTS)
    return _harmed(message.SerializeToString(), chance)


def _repeat(chance: random.Random) -> bytes:
    count = chance.randrange(4)
    message = v2_pb2.ModelInferRequest(model_name="repeat_int32")
    for name, datatype, size in (("IN", "INT32", count), ("DELAY", "UINT32", chance.choice([count, count, 1])), ("WAIT", "UINT32", 1)):
        message.inputs.add(name=name, datatype=datatype, shape=[size])
        message.raw_input_contents.append(bytes(4 * size))
    message.parameters["triton_enable_empty_final_response"].bool_param = chance.random() < 0.5
    return message.SerializeToString()  # whole: a DELAY turned into weeks would hold a call for as long


def _harmed(raw: bytes, chance: random.Random) -> bytes:
    written = bytearray(raw)
    for _ in range(chance.choice([0, 0, 0, 0, 0, 1, 2])):
        harm(written, chance)
    return bytes(written)


def any_frames(chance: random.Random) -> bytes:
    """A connection's bytes: the preface, settings and some calls, with frames put in between and faults in any byte."""
    frames = [frame for index in range(chance.randrange(1, 4)) for frame in _call_frames(2 * index + 1, chance)]
    for _ in range(chance.randrange(4)):
        kind = chance.choice([*range(10), 0xFA])
        payload = chance.choice([b"", chance.randbytes(4), chance.randbytes(8), chance.randbytes(chance.randrange(40))])
        frames.insert(chance.randrange(len(frames) + 1), http2.frame(kind, chance.randrange(256), chance.randrange(8), payload))
    written = bytearray(b"".join(frames))
    for _ in range(chance.choice([0, 0, 1, 2, 8])):
        harm(written, chance)
    return http2.PREFACE + http2.frame(http2.SETTINGS, 0, 0) + bytes(written)


def _call_frames(stream: int, chance: random.Random) -> list[bytes]:
    method = chance.choice(["ModelInfer", "ModelInfer", "ServerLive", "ModelStreamInfer", "Nope"])
    headers = [(":method", "POST"), (":scheme", "http"), (":path", f"/inference.GRPCInferenceService/{method}"), (":authority", "a"),
               ("content-type", "application/grpc"), ("te", "trailers")]  # fmt: skip
    if chance.random() < 0.3:
        headers.append(
            chance.choice(
                [("grpc-timeout", "1m"), ("grpc-timeout", "x"), ("grpc-encoding", "gzip"), ("grpc-encoding", "y"), ("x-bin", "=")]
            )
        )
    message = _message(chance)
    is_packed = chance.random() < 0.1
    length = _near(len(message), chance)
    prefix = struct.pack(">BI", is_packed, length if isinstance(length, int) and 0 <= length < 2**32 else len(message))
    data = prefix + (gzip.compress(message, mtime=0) if is_packed else message)
    middle = chance.randrange(len(data) + 1)
    return [
        http2.frame(http2.HEADERS, 4, stream, http2.encode_headers(headers)),
        http2.frame(http2.DATA, 0, stream, data[:middle][:16384]),
        http2.frame(http2.DATA, 1, stream, data[middle:][:16384]),
    ]
