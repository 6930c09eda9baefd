"""Infer requests over HTTP, from the body's bytes to the response's, independent of the HTTP library."""

import functools
import time
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from perfkit.digits import whole_number
from perfkit.errors import ErrorKind, ProtocolError
from perfkit.protocol import rest
from perfkit.protocol.compression import ACCEPTED, choose_encoding, compress, decompress
from perfkit.protocol.message import InferRequest, InferResponse
from perfkit.protocol.tensor import Buffer
from server_stub.http.repeated_heads import RepeatedHeads
from server_stub.inference.conversion import raw_request
from server_stub.inference.layouts import AnyRequest, whole_request
from server_stub.inference.model import Model
from server_stub.inference.repeated_responses import AnyResponse, RepeatedResponse
from server_stub.service import Service
from server_stub.shared_memory.shared_tensors import NOT_SHARED, SharedTensors, omit_shared_outputs, resolve_http_request
from server_stub.tracing.request_trace import RequestTrace

MAX_JSON_BYTES = 2**26
"""Limit on JSON and on decompressed bodies, which are in memory twice. Binary tensors after the JSON part may be larger."""
_MAX_LENGTHS = 2**10
_STATUS = {ErrorKind.INTERNAL: 500, ErrorKind.NOT_FOUND: 404, ErrorKind.UNAVAILABLE: 503, ErrorKind.UNSUPPORTED: 501}


class HttpResponse(NamedTuple):
    """A response. `headers` do not include its length. The body is in pieces, so that large tensors are not copied."""

    status: int
    headers: Mapping[str, str]
    body: Sequence[Buffer]
    trace: RequestTrace | None = None
    """Gets the instants at which the response is sent."""

    @property
    def body_bytes(self) -> int:
        """The length of the body."""
        return sum(map(len, self.body))


class RequestHead(NamedTuple):
    """The parsed head of a request on the fast path."""

    model: str
    version: str
    body_bytes: int
    header_length: str | None
    traceparent: str = ""
    received_ns: int = 0
    """When it was received, if it has a `traceparent`."""

    @property
    def request_line(self) -> str:
        """Method and path, for the log."""
        return f"POST {rest.model_path(self.model, self.version, 'infer')}"


class HttpLayerError(ProtocolError):
    """An error before the request itself is decoded, which in Triton comes from its HTTP layer."""


def check_json_size(json_bytes: int) -> None:
    """Raises ProtocolError if there is too much JSON to parse."""
    if json_bytes > MAX_JSON_BYTES:
        raise ProtocolError(f"request JSON size of {json_bytes} bytes exceeds the maximum allowed input size of {MAX_JSON_BYTES} bytes")


class HttpInference:
    """Answers infer requests from a repository of models."""

    def __init__(self, service: Service) -> None:
        self._repository, self._regions, self._log, self._tracer = service.repository, service.regions, service.log, service.tracer
        self._heads = RepeatedHeads()

    def find(self, name: str, version: str) -> Model:
        """The model, if it can be used over HTTP. Raises HttpLayerError."""
        try:
            model = self._repository.find(name, version)
        except ProtocolError as error:
            raise HttpLayerError(str(error), error.kind) from None
        if model.definition.is_decoupled:
            raise HttpLayerError("HTTP end point doesn't support models with decoupled transaction policy", ErrorKind.UNSUPPORTED)
        return model

    def accepts(self, head: RequestHead) -> bool:
        """Whether a large body is worth receiving on the fast path: there is such a model."""
        try:
            self.find(head.model, head.version)
        except ProtocolError:
            return False
        return True

    async def respond_to(self, head: RequestHead, body: Buffer) -> HttpResponse:
        """The response to a complete request on the fast path. Never raises."""
        arrived_ns = time.monotonic_ns()
        trace = None
        if self._tracer.is_on:
            trace = self._tracer.start("HTTP", head.model, head.traceparent, head.received_ns or arrived_ns, arrived_ns)
        try:
            response = await self.respond(head.model, head.version, body, arrived_ns, head.header_length, trace=trace)
        except Exception as error:  # noqa: BLE001 - an error in one request must not end the server
            response = self._failed(error)
        if self._log.is_verbose:
            self._log.request("HTTP", head.request_line, str(response.status), time.monotonic_ns() - arrived_ns)
        return response if trace is None else response._replace(trace=trace)

    def answer_at_once(self, head: RequestHead, body: Buffer) -> HttpResponse | None:
        """Returns what `respond_to` would for a request like an answered one, if its model never waits.

        None for others, of which nothing has been done.
        """
        if head.header_length is None or self._tracer.is_on or self._log.is_verbose or self._regions:
            return None
        try:
            model = self._repository.find(head.model, head.version)
            json_length = _header_length(head.header_length, len(body))
        except ProtocolError:  # `respond_to` says what is wrong
            return None
        if not model.never_waits or (known := self._heads.find(model.definition.name, model.version, body, json_length)) is None:
            return None
        try:
            return model.infer_at_once(known, functools.partial(self._encode_repeated, known.template.request), self._write_repeated)
        except Exception as error:  # noqa: BLE001 - as in `respond_to`
            return self._failed(error)

    def _failed(self, error: Exception) -> HttpResponse:
        if not isinstance(error, ProtocolError):
            self._log.internal_error(error)
            error = ProtocolError(f"the server failed: {error}", ErrorKind.INTERNAL)
        return error_response(error)

    def end_trace(self, trace: RequestTrace, send_started_ns: int) -> None:
        """The response of a traced request on the fast path has been sent."""
        self._tracer.finish(trace, send_started_ns)

    async def respond(
        self,
        name: str,
        version: str,
        encoded: Buffer,
        arrived_ns: int,
        header_length: str | None,
        content_encoding: str = "",
        accept_encoding: str = "",
        trace: RequestTrace | None = None,
    ) -> HttpResponse:
        """The response to a body that arrived completely at `arrived_ns`. Raises ProtocolError.

        `header_length` and the encodings are header values.
        """
        model = self.find(name, version)
        try:
            body = decompress(bytes(encoded), content_encoding, MAX_JSON_BYTES) if content_encoding else encoded
            json_length = _header_length(header_length, len(body))
            json_bytes = json_length or len(body)  # without a header, or with 0, the whole body counts
            check_json_size(json_bytes)
        except ProtocolError as error:
            raise HttpLayerError(str(error), error.kind) from None
        body, json_length, shared = resolve_http_request(body, json_length, self._regions)
        model_name, model_version = model.definition.name, model.version
        request: AnyRequest
        is_new = False
        if json_length == 0 or not body:
            described = request = raw_request(model.definition, model_version, body)
        elif (known := self._heads.find(model_name, model_version, body, json_length)) is not None:
            described, request = known.template.request, known
        else:
            described = request = rest.decode_infer_request(model_name, model_version, body, json_length)
            is_new = True
        if shared.inputs:
            request = shared.fill(whole_request(request))
        encode = functools.partial(self._encode, described, accept_encoding, shared)
        response = await model.infer(request, arrived_ns, encode, trace)
        if is_new:
            self._heads.add(model_name, model_version, body, json_length, described)
        return response

    def _encode_repeated(self, request: InferRequest, response: AnyResponse) -> HttpResponse:
        if not isinstance(response, RepeatedResponse):
            return self._encode(request, "", NOT_SHARED, response)
        headers, head = response.written
        return HttpResponse(200, headers, [head, *response.data])

    def _write_repeated(self, request: InferRequest, response: InferResponse) -> tuple[tuple[Mapping[str, str], Buffer], int] | None:
        """The headers and the beginning of the body, if all outputs are binary; see `Write`."""
        encoded = self._encode(request, "", NOT_SHARED, response)
        head, *data = encoded.body
        return ((encoded.headers, head), len(head)) if len(data) == len(response.outputs) else None

    def _encode(self, request: InferRequest, accept_encoding: str, shared: SharedTensors, response: InferResponse) -> HttpResponse:
        response = shared.finish(response)
        if request.binary_output and not request.outputs:
            encoded = self._heads.encode(response)
        else:
            binary = {output.name: output.binary is True for output in reversed(request.outputs)}
            binary = {tensor.name: binary.get(tensor.name, request.binary_output) for tensor in response.outputs}
            encoded = self._heads.encode(response) if all(binary.values()) else rest.encode_infer_response(response, binary)
        headers, buffers = omit_shared_outputs(*encoded, shared.outputs)
        encoding = choose_encoding(accept_encoding) if accept_encoding else "identity"
        if encoding == "identity":
            return HttpResponse(200, headers, buffers)
        return HttpResponse(200, {**headers, "Content-Encoding": encoding}, [compress(buffers, encoding)])


def error_response(error: ProtocolError) -> HttpResponse:
    """`{"error": …}` with Triton's status codes."""
    # Triton's HTTP layer sends its JSON errors as text/plain
    headers = {"Content-Type": "text/plain" if isinstance(error, HttpLayerError) else rest.JSON_TYPE}
    if error.kind is ErrorKind.UNSUPPORTED and "compression" in str(error):
        headers["Accept-Encoding"] = ", ".join(ACCEPTED)
    return HttpResponse(_STATUS.get(error.kind, 400), headers, [rest.encode_error(str(error))])


def body_timeout_response(timeout_s: float) -> HttpResponse:
    """The response to a request whose body did not arrive in time. It closes the connection."""
    headers = {"Content-Type": rest.JSON_TYPE, "Connection": "close"}
    return HttpResponse(400, headers, [rest.encode_error(body_timeout_message(timeout_s))])


def body_timeout_message(timeout_s: float) -> str:
    """The error message for a body that did not arrive in time."""
    return f"the body of the request did not arrive within {timeout_s:g} s"


@functools.lru_cache(_MAX_LENGTHS)
def _header_length(text: str | None, body_bytes: int) -> int | None:
    if text is None:
        return None
    length = whole_number(text)
    if length is None and not (text.isascii() and text.removeprefix("-").isdigit()):
        raise ProtocolError(f"Unable to parse {rest.HEADER_LENGTH}, got: {text}")
    if length is None or length > body_bytes:
        raise ProtocolError(f"inference header size should be in range (0, {body_bytes}), got: {text}")
    return length
