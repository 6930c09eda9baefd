"""Compares how the bundled server and a real Triton reject the same broken requests, over HTTP and gRPC.

    python -m benchmarks.triton_refusals [--peers FOLDER] [--out reports/triton-refusals.md]

It compares status, content type and message. Messages count as equal if they begin alike, because the servers parse JSON with
different libraries and name different inputs first if several are wrong. Intended differences are listed with their reason; at
any other the exit code is 1.
"""

import http.client
import json
import pathlib
import sys
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import grpc

from benchmarks.peers.install import peers_folder
from benchmarks.peers.server_process import PeerError
from benchmarks.peers.triton import Triton, running_triton
from benchmarks.processes import running_server
from benchmarks.report import Report, program_options
from perfkit.protocol import v2_pb2

# differences that are intended, or that exist between releases of Triton
_INTENDED = {
    "a value that does not fit": "Triton wraps the value around; an error is better",
    "ready of an unknown model": "2.51 answers 400; 2.73 answers 404, as the bundled server does",
    "ready of an unknown version": "2.51 answers 400; 2.73 answers 404, as the bundled server does",
    "ModelReady of an unknown model": "2.51 answers not ready; 2.73 NOT_FOUND, as the bundled server does",
    "a length that is not a number": "Triton reads 0; both reject",
    "a body that is not gzip": "Triton continues with an empty body; both reject",
    "different batch sizes": "each server names another of the two inputs",
    "bytes that are not a message": "the same status with the message of each protobuf library",
    "an id that is not UTF-8": "Triton returns the bytes; the bundled server requires UTF-8 in JSON",
}
_COMPARED_CHARACTERS = 20  # after the request's id


class Answer(NamedTuple):
    """A server's answer: status, content type (empty over gRPC) and message."""

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
    "inputs that are not an array": {"inputs": {}},
    "an input that is not an object": {"inputs": ["x"]},
    "no shape": {"inputs": [{key: value for key, value in vector().items() if key != "shape"}, SECOND]},
    "a shape that is not an array": {"inputs": [vector(shape="x"), SECOND]},
    "a negative size": {"inputs": [vector(shape=[-1, 16]), SECOND]},
    "too few values": {"inputs": [vector(data=[1] * 15), SECOND]},
    "data and binary_data_size": {"inputs": [vector(parameters={"binary_data_size": 64}), SECOND]},
    "neither data nor binary_data_size": {"inputs": [{"name": "INPUT0", "datatype": "INT32", "shape": [1, 16]}, SECOND]},
    "an input missing": {"inputs": [SECOND]},
    "an extra input": {"inputs": [vector(), SECOND, vector("X")]},
    "an input twice": {"inputs": [vector(), vector()]},
    "another datatype": {"inputs": [vector(datatype="FP32", data=[1.0] * 16), SECOND]},
    "an unknown datatype": {"inputs": [vector(datatype="FOO"), SECOND]},
    "another shape": {"inputs": [vector(name, shape=[1, 15], data=[1] * 15) for name in ("INPUT0", "INPUT1")]},
    "too large a batch": {"inputs": [vector(name, shape=[9, 16], data=[1] * 144) for name in ("INPUT0", "INPUT1")]},
    "different batch sizes": {"inputs": [vector(shape=[2, 16], data=[1] * 32), SECOND]},
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
    "an id that is not UTF-8": b'{"id":"\xff","inputs":[]}',
    "the id in the text": {"inputs": [SECOND], "id": "abc"},
}
_GOOD = json.dumps({"inputs": [vector(), SECOND]}).encode()
HTTP_HEADERS = {
    "a length beyond the body": {"Inference-Header-Content-Length": "99999"},
    "a negative length": {"Inference-Header-Content-Length": "-1"},
    "a length that is not a number": {"Inference-Header-Content-Length": "x"},
    "a raw request for two inputs": {"Inference-Header-Content-Length": "0"},
    "an unknown encoding": {"Content-Encoding": "br"},
    "a body that is not gzip": {"Content-Encoding": "gzip"},
}
HTTP_PATHS = {
    "an unknown path": ("GET", "/v2/nope"),
    "the wrong verb": ("POST", "/v2/health/live"),
    "an unknown model": ("GET", "/v2/models/nope"),
    "an unknown version": ("GET", "/v2/models/simple/versions/9"),
    "ready of an unknown model": ("GET", "/v2/models/nope/ready"),
    "ready of an unknown version": ("GET", "/v2/models/simple/versions/9/ready"),
    "a version that is not a number": ("GET", "/v2/models/simple/versions/x"),
    "statistics of an unknown model": ("GET", "/v2/models/nope/stats"),
    "statistics of an unknown version": ("GET", "/v2/models/simple/versions/9/stats"),
    "an inference on an unknown model": ("POST", "/v2/models/nope/infer"),
    "an inference on an unknown version": ("POST", "/v2/models/simple/versions/9/infer"),
}


def message(change: Callable[[v2_pb2.ModelInferRequest], object]) -> bytes:
    """A `ModelInferRequest` for `simple` with a change."""
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
        "the key of the C++ client with a number": _parameter("triton_enable_empty_final_response", "int64_param", 1),
        "a priority that is text": _parameter("priority", "string_param", "x"),
        "a negative priority": _parameter("priority", "int64_param", -1),
        "a timeout that is unsigned": _parameter("timeout", "uint64_param", 1),
        "a sequence_id that is a fraction": _parameter("sequence_id", "double_param", 1.0),
        "bytes that are not a message": b"\xff\xff",
    }.items()
} | {
    "ModelReady of an unknown model": ("ModelReady", v2_pb2.ModelReadyRequest(name="nope").SerializeToString()),
    "ModelMetadata of an unknown model": ("ModelMetadata", v2_pb2.ModelMetadataRequest(name="nope").SerializeToString()),
    "ModelStatistics of an unknown model": ("ModelStatistics", v2_pb2.ModelStatisticsRequest(name="nope").SerializeToString()),
}


def request_http(port: int, method: str, path: str, body: bytes | None = None, headers: Mapping[str, str] | None = None) -> Answer:
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


def call_grpc(port: int, rpc: str, encoded: bytes) -> Answer:
    """One call on a channel of its own."""
    with grpc.insecure_channel(f"127.0.0.1:{port}") as opened:
        channel: Any = opened
        try:
            channel.unary_unary(f"/inference.GRPCInferenceService/{rpc}")(encoded, timeout=30)
        except grpc.RpcError as error:
            failed: Any = error
            return Answer(failed.code().name, "", failed.details())
        return Answer("OK", "", "")


def request_all(http_port: int, grpc_port: int) -> dict[tuple[str, str], Answer]:
    """All answers of one server, by protocol and case."""
    infer = ("POST", "/v2/models/simple/infer")
    answers = {}
    for name, body in HTTP_BODIES.items():
        answers["http", name] = request_http(http_port, *infer, body if isinstance(body, bytes) else json.dumps(body).encode())
    for name, headers in HTTP_HEADERS.items():
        answers["http", name] = request_http(http_port, *infer, _GOOD, headers)
    for name, (method, path) in HTTP_PATHS.items():
        answers["http", name] = request_http(http_port, method, path)
    for name, (rpc, encoded) in GRPC_CALLS.items():
        answers["grpc", name] = call_grpc(grpc_port, rpc, encoded)
    return answers


def is_equal(theirs: Answer, ours: Answer) -> bool:
    """Whether status, content type and, for errors, the beginnings of the messages are equal."""
    if theirs[:2] != ours[:2]:
        return False
    beginnings = [answer.text.rpartition("] ")[2] if answer.text.startswith("[request id") else answer.text for answer in (theirs, ours)]
    if theirs.status in ("200", "OK"):
        return True
    return beginnings[0][:_COMPARED_CHARACTERS].lower() == beginnings[1][:_COMPARED_CHARACTERS].lower()


def compare(triton: Triton, out: pathlib.Path | None) -> int:
    """Prints and writes the report; the exit code is 1 at an unintended difference."""
    with running_server("--threads=1", "--device=cpu", "--model=simple") as server:
        ours = request_all(server.http_port, int(server.ready["grpc_port"]))
    theirs = request_all(triton.http_port, triton.grpc_port)
    different = {key: (theirs[key], answer) for key, answer in ours.items() if not is_equal(theirs[key], answer)}
    unintended = [name for _, name in different if name not in _INTENDED]
    report = Report(out, f"Errors of the bundled server compared with Triton {triton.version}")
    report.add(
        f"{len(ours)} requests: {len(ours) - len(different)} answered equally, {len(different) - len(unintended)} differently with a reason.",
        "",
    )
    report.table("protocol", "request", "Triton", "the bundled server", "reason")
    for (protocol, name), pair in different.items():
        shown = [f"{answer.status} {answer.content_type} {answer.text[:90]}".replace("|", "\\|").replace("\n", " ") for answer in pair]
        report.row(protocol, name, *shown, _INTENDED.get(name, "**not intended**"))
    report.is_met = not unintended
    return report.write()


def main() -> int:
    """Prints the report."""
    options = program_options(__doc__, peers=peers_folder())
    try:
        with running_triton(options.peers) as triton:
            return compare(triton, options.out)
    except PeerError as error:
        sys.exit(str(error))


if __name__ == "__main__":
    sys.exit(main())
