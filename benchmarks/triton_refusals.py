"""The bundled server's refusals beside real Triton's: the same broken requests to both, over HTTP and gRPC.

    python -m benchmarks.triton_refusals [--peers FOLDER] [--out reports/triton-refusals.md]

It compares status, content type and text. The servers name different inputs first where several are wrong, and parse JSON
with different libraries, so a text that begins alike counts as alike. Differences that are meant are listed with why.
"""

import argparse
import asyncio
import http.client
import json
import pathlib
import sys
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import grpc

from benchmarks.peers.install import peers_folder
from benchmarks.peers.triton import Triton, TritonError, running_triton
from perfkit.protocol import v2_pb2
from perfkit.target.bundled_server import bundled_server

# what differs on purpose, or from one release of Triton to the next
_MEANT = {
    "a value that does not fit": "Triton wraps it around; a wrong input is better told",
    "ready of an unknown model": "2.51 answers 400, 2.73 answers 404, as here",
    "ready of an unknown version": "2.51 answers 400, 2.73 answers 404, as here",
    "ModelReady of an unknown model": "2.51 answers not ready, 2.73 NOT_FOUND, as here",
    "a length that is no number": "Triton takes it for 0; both refuse",
    "gzip that is none": "Triton goes on with an empty body; both refuse",
    "batches that differ": "each names the other one of the two",
    "bytes that are no message": "the same status, in the words of each protobuf library",
    "id that is no UTF-8": "Triton passes the bytes on; here JSON must be UTF-8",
}
_ALIKE = 20  # characters, behind the request's id


class Answer(NamedTuple):
    """What a server says: a status, a content type (none over gRPC) and a text."""

    status: str
    content_type: str
    text: str


def vector(name: str = "INPUT0", **members: Any) -> dict[str, Any]:
    """An input of `simple`."""
    return {"name": name, "datatype": "INT32", "shape": [1, 16], "data": [1] * 16, **members}


SECOND = vector("INPUT1")
HTTP_BODIES: dict[str, Any] = {
    "broken JSON": b"{",
    "an empty object": {},
    "inputs that are no array": {"inputs": {}},
    "an input that is no object": {"inputs": ["x"]},
    "no shape": {"inputs": [{key: value for key, value in vector().items() if key != "shape"}, SECOND]},
    "a shape that is no array": {"inputs": [vector(shape="x"), SECOND]},
    "a negative size": {"inputs": [vector(shape=[-1, 16]), SECOND]},
    "too few values": {"inputs": [vector(data=[1] * 15), SECOND]},
    "data and binary_data_size": {"inputs": [vector(parameters={"binary_data_size": 64}), SECOND]},
    "neither": {"inputs": [{"name": "INPUT0", "datatype": "INT32", "shape": [1, 16]}, SECOND]},
    "an input missing": {"inputs": [SECOND]},
    "an input too many": {"inputs": [vector(), SECOND, vector("X")]},
    "an input twice": {"inputs": [vector(), vector()]},
    "another datatype": {"inputs": [vector(datatype="FP32", data=[1.0] * 16), SECOND]},
    "an unknown datatype": {"inputs": [vector(datatype="FOO"), SECOND]},
    "another shape": {"inputs": [vector(name, shape=[1, 15], data=[1] * 15) for name in ("INPUT0", "INPUT1")]},
    "too large a batch": {"inputs": [vector(name, shape=[9, 16], data=[1] * 144) for name in ("INPUT0", "INPUT1")]},
    "batches that differ": {"inputs": [vector(shape=[2, 16], data=[1] * 32), SECOND]},
    "a scalar": {"inputs": [vector(shape=[], data=[1]), SECOND]},
    "an unknown output": {"inputs": [vector(), SECOND], "outputs": [{"name": "Z"}]},
    "an output without a name": {"inputs": [vector(), SECOND], "outputs": [{}]},
    "a negative classification": {"inputs": [vector(), SECOND], "outputs": [{"name": "OUTPUT0", "parameters": {"classification": -1}}]},
    "binary_data that is text": {"inputs": [vector(), SECOND], "outputs": [{"name": "OUTPUT0", "parameters": {"binary_data": "x"}}]},
    "an unknown region": {"inputs": [vector(), SECOND], "outputs": [{"name": "OUTPUT0", "parameters": {"shared_memory_region": "r"}}]},
    "FP16 as JSON": {"inputs": [vector(datatype="FP16"), SECOND]},
    "a boolean for an integer": {"inputs": [vector(data=[True] * 16), SECOND]},
    "a fraction for an integer": {"inputs": [vector(data=[1.5] * 16), SECOND]},
    "text for an integer": {"inputs": [vector(data=["1"] * 16), SECOND]},
    "a value that does not fit": {"inputs": [vector(data=[2**40] * 16), SECOND]},
    "a parameter that is a list": {"inputs": [vector(), SECOND], "parameters": {"a": [1]}},
    "parameters that are text": {"inputs": [vector(), SECOND], "parameters": "x"},
    "a priority that is text": {"inputs": [vector(), SECOND], "parameters": {"priority": "x"}},
    "a negative timeout": {"inputs": [vector(), SECOND], "parameters": {"timeout": -1}},
    "a reserved parameter": {"inputs": [vector(), SECOND], "parameters": {"triton_x": 1}},
    "an id that is a number": {"inputs": [vector(), SECOND], "id": 5},
    "id that is no UTF-8": b'{"id":"\xff","inputs":[]}',
    "the id in the text": {"inputs": [SECOND], "id": "abc"},
}
_GOOD = json.dumps({"inputs": [vector(), SECOND]}).encode()
HTTP_HEADERS = {
    "a length beyond the body": {"Inference-Header-Content-Length": "99999"},
    "a negative length": {"Inference-Header-Content-Length": "-1"},
    "a length that is no number": {"Inference-Header-Content-Length": "x"},
    "a raw request for two inputs": {"Inference-Header-Content-Length": "0"},
    "an unknown encoding": {"Content-Encoding": "br"},
    "gzip that is none": {"Content-Encoding": "gzip"},
}
HTTP_PATHS = {
    "an unknown path": ("GET", "/v2/nope"),
    "the wrong verb": ("POST", "/v2/health/live"),
    "an unknown model": ("GET", "/v2/models/nope"),
    "an unknown version": ("GET", "/v2/models/simple/versions/9"),
    "ready of an unknown model": ("GET", "/v2/models/nope/ready"),
    "ready of an unknown version": ("GET", "/v2/models/simple/versions/9/ready"),
    "a version that is no number": ("GET", "/v2/models/simple/versions/x"),
    "statistics of an unknown model": ("GET", "/v2/models/nope/stats"),
    "statistics of an unknown version": ("GET", "/v2/models/simple/versions/9/stats"),
    "an inference on an unknown model": ("POST", "/v2/models/nope/infer"),
    "an inference on an unknown version": ("POST", "/v2/models/simple/versions/9/infer"),
}


def message(change: Callable[[v2_pb2.ModelInferRequest], object]) -> bytes:
    """A `ModelInferRequest` for `simple`, changed."""
    request = v2_pb2.ModelInferRequest(model_name="simple", raw_input_contents=[bytes(64)] * 2)
    for name in ("INPUT0", "INPUT1"):
        request.inputs.add(name=name, datatype="INT32", shape=[1, 16])
    change(request)
    return request.SerializeToString()


def _parameter(key: str, field: str, value: Any) -> bytes:
    return message(lambda request: setattr(request.parameters[key], field, value))


def _classes(field: str, value: Any) -> bytes:
    return message(lambda request: setattr(request.outputs.add(name="OUTPUT0").parameters["classification"], field, value))


GRPC_CALLS: dict[str, tuple[str, bytes]] = {
    name: ("ModelInfer", encoded)
    for name, encoded in {
        "raw and typed contents": message(lambda request: request.inputs[0].contents.int_contents.append(1)),
        "too few raw contents": message(lambda request: request.raw_input_contents.pop()),
        "no contents": message(lambda request: request.ClearField("raw_input_contents")),
        "too few bytes": message(lambda request: request.raw_input_contents.__setitem__(0, bytes(32))),
        "an unknown model": message(lambda request: setattr(request, "model_name", "nope")),
        "an unknown version": message(lambda request: setattr(request, "model_version", "9")),
        "a version that is text": message(lambda request: setattr(request, "model_version", "x")),
        "a negative version": message(lambda request: setattr(request, "model_version", "-1")),
        "an input twice": message(lambda request: setattr(request.inputs[1], "name", "INPUT0")),
        "an unknown input": message(lambda request: setattr(request.inputs[1], "name", "X")),
        "an unknown output": message(lambda request: request.outputs.add(name="Z")),
        "classification 0": _classes("int64_param", 0),
        "classification as text": _classes("string_param", "1"),
        "a reserved parameter": _parameter("triton_x", "bool_param", True),
        "the key of the C++ client": _parameter("triton_enable_empty_final_response", "bool_param", True),
        "that key with a number": _parameter("triton_enable_empty_final_response", "int64_param", 1),
        "a priority that is text": _parameter("priority", "string_param", "x"),
        "a negative priority": _parameter("priority", "int64_param", -1),
        "a timeout that is unsigned": _parameter("timeout", "uint64_param", 1),
        "a sequence_id that is a fraction": _parameter("sequence_id", "double_param", 1.0),
        "bytes that are no message": b"\xff\xff",
    }.items()
} | {
    "ModelReady of an unknown model": ("ModelReady", v2_pb2.ModelReadyRequest(name="nope").SerializeToString()),
    "ModelMetadata of an unknown model": ("ModelMetadata", v2_pb2.ModelMetadataRequest(name="nope").SerializeToString()),
    "ModelStatistics of an unknown model": ("ModelStatistics", v2_pb2.ModelStatisticsRequest(name="nope").SerializeToString()),
}


def ask_http(port: int, method: str, path: str, body: bytes | None = None, headers: Mapping[str, str] | None = None) -> Answer:
    """One request on a connection of its own."""
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=30)
    try:
        connection.request(method, path, body, dict(headers or {}))
        response = connection.getresponse()
        content = response.read().decode(errors="replace")
        text = str(json.loads(content)["error"]) if response.status >= 400 and content.startswith("{") else content
        return Answer(str(response.status), (response.getheader("Content-Type") or "").partition(";")[0], text)
    finally:
        connection.close()


def ask_grpc(port: int, rpc: str, encoded: bytes) -> Answer:
    """One call on a channel of its own."""
    with grpc.insecure_channel(f"127.0.0.1:{port}") as opened:
        channel: Any = opened
        try:
            channel.unary_unary(f"/inference.GRPCInferenceService/{rpc}")(encoded, timeout=30)
        except grpc.RpcError as error:
            failed: Any = error
            return Answer(failed.code().name, "", failed.details())
        return Answer("OK", "", "")


def ask_all(http_port: int, grpc_port: int) -> dict[tuple[str, str], Answer]:
    """Every answer of one server, by protocol and case."""
    infer = ("POST", "/v2/models/simple/infer")
    answers = {}
    for name, body in HTTP_BODIES.items():
        answers["http", name] = ask_http(http_port, *infer, body if isinstance(body, bytes) else json.dumps(body).encode())
    for name, headers in HTTP_HEADERS.items():
        answers["http", name] = ask_http(http_port, *infer, _GOOD, headers)
    for name, (method, path) in HTTP_PATHS.items():
        answers["http", name] = ask_http(http_port, method, path)
    for name, (rpc, encoded) in GRPC_CALLS.items():
        answers["grpc", name] = ask_grpc(grpc_port, rpc, encoded)
    return answers


def is_alike(theirs: Answer, ours: Answer) -> bool:
    """Whether status and content type are the same, and of failures the texts' beginnings."""
    if theirs[:2] != ours[:2]:
        return False
    beginnings = [answer.text.rpartition("] ")[2] if answer.text.startswith("[request id") else answer.text for answer in (theirs, ours)]
    if theirs.status in ("200", "OK"):
        return True
    return beginnings[0][:_ALIKE].lower() == beginnings[1][:_ALIKE].lower()


async def compare(triton: Triton) -> tuple[list[str], int]:
    """The page's lines on what differs, and how many differences are not meant."""
    async with bundled_server("simple", device="cpu", threads=1, cpus=(), on_line=lambda _: None) as server:
        ports = [int(url.rpartition(":")[2]) for url in (server.urls["http"], server.urls["grpc"])]
        ours = await asyncio.to_thread(ask_all, *ports)
    theirs = await asyncio.to_thread(ask_all, triton.http_port, triton.grpc_port)
    different = {key: (theirs[key], answer) for key, answer in ours.items() if not is_alike(theirs[key], answer)}
    unmeant = [name for _, name in different if name not in _MEANT]
    lines = [
        f"{len(ours)} requests: {len(ours) - len(different)} answered alike, {len(different) - len(unmeant)} otherwise for a reason.",
        "",
        "| protocol | request | Triton | the bundled server | why |",
        "|---|---|---|---|---|",
    ]
    for (protocol, name), pair in different.items():
        shown = [f"{one.status} {one.content_type} {one.text[:90]}".replace("|", "\\|").replace("\n", " ") for one in pair]
        lines.append(f"| {protocol} | {name} | {shown[0]} | {shown[1]} | {_MEANT.get(name, '**not meant**')} |")
    return lines, len(unmeant)


def main() -> int:
    """Prints the page; the exit code is 1 where an answer differs without a reason."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--peers", type=pathlib.Path)
    parser.add_argument("--out", type=pathlib.Path)
    options = parser.parse_args()
    try:
        with running_triton(peers_folder(options.peers)) as triton:
            lines, unmeant = asyncio.run(compare(triton))
            head = [f"# Refusals of the bundled server beside Triton {triton.version}", ""]
    except TritonError as error:
        print(error, file=sys.stderr)
        return 1
    print("\n".join(lines))
    if options.out:
        options.out.write_text("\n".join([*head, *lines, ""]), encoding="utf-8")
    return 1 if unmeant else 0


if __name__ == "__main__":
    sys.exit(main())
