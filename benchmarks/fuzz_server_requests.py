"""Random requests to the bundled server, most of them broken: HTTP, gRPC messages, HTTP/2 frames."""

import gzip
import json
import random
import struct
import zlib
from typing import Any, NamedTuple

from benchmarks.fuzzing import add_fault
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
    """A gRPC call and its request messages."""

    method: str
    messages: tuple[bytes, ...]
    is_stream: bool = False


class _Model(NamedTuple):
    name: str
    inputs: tuple[str, ...]
    datatype: str
    row: int
    large_row: int = 0
    is_sequence: bool = False


_MODELS = (
    _Model("simple", ("INPUT0", "INPUT1"), "INT32", 16),
    _Model("simple_string", ("INPUT0", "INPUT1"), "BYTES", 16),
    _Model("simple_identity", ("INPUT0",), "BYTES", 3),
    _Model("identity_fp32", ("INPUT0",), "FP32", 5, large_row=20_000),  # more than the 64 KiB of a small HTTP request
    _Model("simple_sequence", ("INPUT",), "INT32", 1, is_sequence=True),
    _Model("simple_dyna_sequence", ("INPUT",), "INT32", 1, is_sequence=True),
)


def any_http(rng: random.Random) -> bytes:
    """The bytes of one request; about one in ten is valid."""
    headers: dict[str, object] = {"Host": "a"}
    kind = rng.random()
    if kind < 0.08:
        return _framed("GET", rng.choice(_GETS), headers, b"", rng)
    if kind < 0.25:
        path, document = rng.choice(_POSTS)
        return _framed("POST", path, headers, _json_bytes(_mutated(document, rng, 0.2)), rng)
    model = rng.choice(_MODELS)
    document, binary = _inference(model, rng)
    head = _json_bytes(_mutated(document, rng, rng.choice([0, 0.02, 0.1])))
    body = head + binary
    if binary or rng.random() < 0.1:
        headers["Inference-Header-Content-Length"] = _near(len(head), rng)
    match rng.randrange(12):
        case 0:
            body, headers["Content-Encoding"] = gzip.compress(body, mtime=0), "gzip"
        case 1:
            body, headers["Content-Encoding"] = zlib.compress(body), rng.choice(_ENCODINGS)
        case 2:
            headers["Accept-Encoding"] = rng.choice(_ENCODINGS)
        case _:
            pass
    return _framed("POST", f"/v2/models/{model.name}{rng.choice(['', '', '/versions/1', '/versions/2'])}/infer", headers, body, rng)


def _framed(method: str, path: str, headers: dict[str, object], body: bytes, rng: random.Random) -> bytes:
    if rng.random() < 0.1:
        headers["Transfer-Encoding"] = "chunked"
        middle = rng.randrange(len(body) + 1)
        parts = [part for part in (body[:middle], body[middle:]) if part]
        body = b"".join([*(b"%x\r\n%s\r\n" % (len(part), part) for part in parts), b"0\r\n\r\n"])
    elif body or method == "POST":
        headers["Content-Length"] = _near(len(body), rng)
    lines = [f"{method} {path} HTTP/1.1", *(f"{name}: {value}" for name, value in headers.items()), "", ""]
    written = bytearray("\r\n".join(lines).encode("utf-8") + body)
    for _ in range(rng.choice([0, 0, 0, 0, 1, 3])):
        add_fault(written, rng)
    return bytes(written)


def _inference(model: _Model, rng: random.Random) -> tuple[dict[str, Any], bytes]:
    rows, binary, inputs = rng.choice([1, 1, 2, 8, 9]), b"", []
    row = model.large_row if model.large_row and rng.random() < 0.3 else model.row
    for name in model.inputs:
        item: dict[str, Any] = {"name": name, "datatype": model.datatype, "shape": [rows, row]}
        values = [rng.randrange(100) for _ in range(rows * model.row)] * (row // model.row)
        if rng.random() < 0.5:
            raw = _raw(model.datatype, values)
            item["parameters"] = {"binary_data_size": _near(len(raw), rng)}
            binary += raw
        else:
            item["data"] = [str(value) for value in values] if model.datatype == "BYTES" else values
        inputs.append(item)
    document: dict[str, Any] = {"id": rng.choice(_TEXTS), "inputs": inputs}
    if rng.random() < 0.3:
        document["outputs"] = [{"name": "OUTPUT0", "parameters": {"binary_data": True, "classification": rng.choice([0, 2, 10**9])}}]
    if model.is_sequence:
        document["parameters"] = {"sequence_id": rng.randrange(4), "sequence_start": True, "sequence_end": rng.random() < 0.8}
    elif rng.random() < 0.2:
        document["parameters"] = {rng.choice(_KEYS): rng.choice([1, True, "x", 1.5])}
    return document, binary


def _raw(datatype: str, values: list[int]) -> bytes:
    if datatype == "BYTES":
        return b"".join(struct.pack("<I", len(text)) + text for text in (str(value).encode() for value in values))
    return struct.pack(f"<{len(values)}{'f' if datatype == 'FP32' else 'i'}", *values)


def _near(correct: int, rng: random.Random) -> object:
    """The correct number in nine of ten cases; otherwise a number nearby or far off."""
    return correct if rng.random() < 0.9 else rng.choice([correct + 1, max(0, correct - 1), 0, -1, 2**31, 2**63, 2**70, "x", ""])


def _mutated(value: Any, rng: random.Random, share: float) -> Any:
    """A JSON value with some of its parts replaced, left out, doubled or nested."""
    if rng.random() < share:
        return rng.choice(
            [None, True, rng.choice(_NUMBERS), rng.choice(_TEXTS), [], {}, [value], {"x": value}, [value, value], _nested(rng)]
        )
    if isinstance(value, dict):
        mutated = {key: _mutated(item, rng, share) for key, item in value.items() if rng.random() >= share / 4}
        if rng.random() < share:
            mutated[rng.choice(_KEYS)] = rng.choice(_NUMBERS)
        return mutated
    if isinstance(value, list):
        return [_mutated(item, rng, share / max(1, len(value) / 4)) for item in value]
    return value


def _nested(rng: random.Random) -> Any:
    value: Any = 1
    for _ in range(rng.choice([3, 90, 300])):
        value = [value]
    return value


def _json_bytes(value: Any) -> bytes:
    return json.dumps(value).encode()


def any_call(rng: random.Random) -> Call:
    """One call; about one in four is valid."""
    if rng.random() < 0.25:
        return Call("ModelStreamInfer", tuple(_message(rng) for _ in range(rng.randrange(1, 4))), is_stream=True)
    method = rng.choice(_METHODS)
    if method == "ModelInfer":
        return Call(method, (_message(rng),))
    document = {"name": rng.choice(_TEXTS), "version": rng.choice(["", "1", "9", "x", "-1"])}
    request = v2_pb2.ModelReadyRequest(**document)  # many other requests have the same fields
    return Call(method, (_with_faults(request.SerializeToString(), rng),))


def _message(rng: random.Random) -> bytes:
    if rng.random() < 0.1:
        return _repeat(rng)
    model = rng.choice(_MODELS)
    rows = rng.choice([1, 1, 2, 9])
    message = v2_pb2.ModelInferRequest(model_name=model.name, id=rng.choice(_TEXTS), model_version=rng.choice(["", "", "1", "9", "x"]))
    for name in model.inputs:
        shape = [rows, model.row] if rng.random() < 0.9 else [rng.choice([0, -1, 2**62, 2**63 - 1, 7])] * rng.randrange(4)
        item = message.inputs.add(name=name, datatype=rng.choice([model.datatype] * 9 + ["FP16", "X", ""]), shape=shape)
        values = [rng.randrange(100) for _ in range(rows * model.row)]
        if rng.random() < 0.7:
            message.raw_input_contents.append(_with_faults(_raw(model.datatype, values), rng))
        elif model.datatype == "BYTES":
            item.contents.bytes_contents.extend(str(value).encode() for value in values)
        else:
            getattr(item.contents, rng.choice(["int_contents", "fp32_contents", "int64_contents"])).extend(values)
        if rng.random() < 0.1:
            item.parameters[rng.choice(_KEYS)].int64_param = rng.choice([0, 1, -1, 2**40])
    if rng.random() < 0.2:
        message.outputs.add(name=rng.choice(["OUTPUT0", "OUTPUT", "x"])).parameters["classification"].int64_param = rng.choice(
            [-1, 0, 2, 2**60]
        )
    if model.is_sequence:
        message.parameters["sequence_id"].int64_param = rng.randrange(-1, 4)
        message.parameters["sequence_start"].bool_param = message.parameters["sequence_end"].bool_param = True
    elif rng.random() < 0.3:
        message.parameters[rng.choice(_KEYS)].string_param = rng.choice(_TEXTS)
    return _with_faults(message.SerializeToString(), rng)


def _repeat(rng: random.Random) -> bytes:
    count = rng.randrange(4)
    message = v2_pb2.ModelInferRequest(model_name="repeat_int32")
    for name, datatype, size in (("IN", "INT32", count), ("DELAY", "UINT32", rng.choice([count, count, 1])), ("WAIT", "UINT32", 1)):
        message.inputs.add(name=name, datatype=datatype, shape=[size])
        message.raw_input_contents.append(bytes(4 * size))
    message.parameters["triton_enable_empty_final_response"].bool_param = rng.random() < 0.5
    return message.SerializeToString()  # without faults: a DELAY changed to weeks would block the call for weeks


def _with_faults(raw: bytes, rng: random.Random) -> bytes:
    written = bytearray(raw)
    for _ in range(rng.choice([0, 0, 0, 0, 0, 1, 2])):
        add_fault(written, rng)
    return bytes(written)


def any_frames(rng: random.Random) -> bytes:
    """The bytes of a connection: preface, settings and some calls, with random frames in between and faults anywhere."""
    frames = [frame for index in range(rng.randrange(1, 4)) for frame in _call_frames(2 * index + 1, rng)]
    for _ in range(rng.randrange(4)):
        kind = rng.choice([*range(10), 0xFA])
        payload = rng.choice([b"", rng.randbytes(4), rng.randbytes(8), rng.randbytes(rng.randrange(40))])
        frames.insert(rng.randrange(len(frames) + 1), http2.frame(kind, rng.randrange(256), rng.randrange(8), payload))
    written = bytearray(b"".join(frames))
    for _ in range(rng.choice([0, 0, 1, 2, 8])):
        add_fault(written, rng)
    return http2.PREFACE + http2.frame(http2.SETTINGS, 0, 0) + bytes(written)


def _call_frames(stream: int, rng: random.Random) -> list[bytes]:
    method = rng.choice(["ModelInfer", "ModelInfer", "ServerLive", "ModelStreamInfer", "Nope"])
    headers = [(":method", "POST"), (":scheme", "http"), (":path", f"/inference.GRPCInferenceService/{method}"), (":authority", "a"),
               ("content-type", "application/grpc"), ("te", "trailers")]  # fmt: skip
    if rng.random() < 0.3:
        headers.append(
            rng.choice([("grpc-timeout", "1m"), ("grpc-timeout", "x"), ("grpc-encoding", "gzip"), ("grpc-encoding", "y"), ("x-bin", "=")])
        )
    message = _message(rng)
    is_packed = rng.random() < 0.1
    length = _near(len(message), rng)
    prefix = struct.pack(">BI", is_packed, length if isinstance(length, int) and 0 <= length < 2**32 else len(message))
    data = prefix + (gzip.compress(message, mtime=0) if is_packed else message)
    middle = rng.randrange(len(data) + 1)
    return [
        http2.frame(http2.HEADERS, 4, stream, http2.encode_headers(headers)),
        http2.frame(http2.DATA, 0, stream, data[:middle][:16384]),
        http2.frame(http2.DATA, 1, stream, data[middle:][:16384]),
    ]
