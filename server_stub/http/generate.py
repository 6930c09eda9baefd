"""Triton's `generate` and `generate_stream`: one flat JSON object per request, and one per response."""

import contextlib
import json
import math
import time
from typing import Any

from aiohttp import web

from perfkit.errors import ErrorKind, ProtocolError
from perfkit.protocol import rest
from perfkit.protocol.message import InferRequest, InferResponse, Parameter
from perfkit.protocol.tensor import Tensor, check_received_as_json, check_sent_as_json, tensor_from_json, tensor_to_json
from server_stub.http.connections import MODEL_PATHS, TRACE, json_response
from server_stub.http.inference import check_json_size
from server_stub.inference.definition import ModelDefinition, TensorDefinition
from server_stub.inference.model import Model
from server_stub.repository.repository import Repository
from server_stub.tracing.request_trace import KEY, RequestTrace
from server_stub.tracing.tracer import Tracer

_EVENTS_TYPE = "text/event-stream; charset=utf-8"
# parameters with a meaning for infer requests, but not for generate
_IGNORED = {"binary_data_output", "sequence_id", "sequence_start", "sequence_end", "priority", "timeout"}


def read_generate(definition: ModelDefinition, version: str, body: bytes) -> InferRequest:
    """Parse a body: members named like inputs become tensors of batch 1, others parameters.

    Raises ProtocolError with Triton's messages.
    """
    document = rest.decode_object(body)
    inputs = {tensor.name: tensor for tensor in definition.inputs}
    tensors: list[Tensor] = []
    parameters: dict[str, Parameter] = {}
    name = document.pop("id", "")
    if not isinstance(name, str):
        raise ProtocolError("Unable to parse 'id': attempt to access JSON non-string as string", ErrorKind.INTERNAL)
    nested = document.pop("parameters", {}) if "parameters" not in inputs else {}
    if not isinstance(nested, dict):
        raise ProtocolError("attempt to get members for non-object", ErrorKind.INTERNAL)
    for key, value in [*document.items(), *nested.items()]:
        if key in inputs:
            tensors.append(_tensor(definition, inputs[key], value))
        elif not isinstance(value, bool | int | float | str):
            raise ProtocolError(f"parameter '{key}' has invalid type. It should be either 'int', 'bool', or 'string'.")
        elif key not in _IGNORED:
            parameters[key] = value
    return InferRequest(definition.name, tuple(tensors), version=version, id=name, parameters=parameters)


def encode_generate(response: InferResponse) -> dict[str, Any]:
    """A response as a flat object. Outputs with one element are scalars, others flat lists."""
    document: dict[str, Any] = {"model_name": response.model, "model_version": response.version}
    if response.id:
        document["id"] = response.id
    for tensor in response.outputs:
        check_sent_as_json(tensor)
        values = tensor_to_json(tensor)
        document[tensor.name] = values[0] if len(values) == 1 else values
    return document


class HttpGenerate:
    """The handlers of `generate` and `generate_stream`."""

    def __init__(self, repository: Repository, tracer: Tracer) -> None:
        self._repository, self._tracer = repository, tracer

    def routes(self) -> list[web.RouteDef]:
        """The routes to add to the application."""
        return [
            web.post(f"{path}/{action}", handler)
            for path in MODEL_PATHS
            for action, handler in (("generate", self._generate), ("generate_stream", self._stream))
        ]

    async def _generate(self, request: web.Request) -> web.Response:
        model, infer_request, arrived_ns, trace = await self._read(request)
        request[TRACE] = trace
        received: list[InferResponse] = []
        async with contextlib.aclosing(model.responses(infer_request, arrived_ns, trace)) as responses:
            async for response in responses:
                received.append(response)
                if len(received) > 1:
                    break
        if len(received) != 1:
            raise ProtocolError(
                "generate expects model to produce exactly 1 response, use generate stream for model that generates various number of responses",
                ErrorKind.INTERNAL,
            )
        return json_response(encode_generate(received[0]))

    async def _stream(self, request: web.Request) -> web.StreamResponse:
        model, infer_request, arrived_ns, trace = await self._read(request)
        stream = web.StreamResponse(headers={"Content-Type": _EVENTS_TYPE})
        stream.enable_chunked_encoding()
        try:
            async with contextlib.aclosing(model.responses(infer_request, arrived_ns, trace)) as responses:
                async for response in responses:
                    started_ns = time.monotonic_ns()
                    await _send(request, stream, encode_generate(response))
                    if trace is not None:
                        trace.sends.append((started_ns, time.monotonic_ns()))
        except ProtocolError as error:
            if not stream.prepared:
                request[TRACE] = trace
                raise
            await _send(request, stream, {"error": str(error)})  # the status has been sent already
        if not stream.prepared:
            await stream.prepare(request)
        await stream.write_eof()
        if trace is not None:
            self._tracer.finish(trace)
        return stream

    async def _read(self, request: web.Request) -> tuple[Model, InferRequest, int, RequestTrace | None]:
        started_ns = time.monotonic_ns()
        name, version = request.match_info["model"], request.match_info.get("version", "")
        self._repository.find(name, version)
        if request.headers.get("Content-Encoding", "identity") not in ("", "identity"):
            raise ProtocolError("Unsupported content-encoding, only 'identity' is supported.")
        body = await request.read()
        check_json_size(len(body))
        model = self._repository.find(name, version)  # it may have been reloaded while the body arrived
        arrived_ns = time.monotonic_ns()
        infer_request = read_generate(model.definition, model.version, body)
        trace = self._tracer.start("HTTP", name, request.headers.get(KEY, ""), started_ns, arrived_ns)
        return model, infer_request, arrived_ns, trace


def _tensor(model: ModelDefinition, definition: TensorDefinition, value: object) -> Tensor:
    values = value if isinstance(value, list) else [value]
    shape = [*((1,) if model.max_batch_size else ()), *definition.dims]
    fixed = math.prod(size for size in shape if size != -1)
    is_clear = shape.count(-1) <= 1 and not any(isinstance(element, list) for element in values)
    if is_clear and fixed and -1 in shape:
        shape[shape.index(-1)] = len(values) // fixed
    if not is_clear or math.prod(shape) != len(values):
        raise ProtocolError(f"The schema can not convert input '{definition.name}' to tensor with proper shape")
    check_received_as_json(definition.name, definition.datatype)
    return tensor_from_json(definition.name, definition.datatype, tuple(shape), values)


async def _send(request: web.Request, stream: web.StreamResponse, document: dict[str, Any]) -> None:
    if not stream.prepared:
        await stream.prepare(request)
    await stream.write(b"data: " + json.dumps(document, separators=(",", ":")).encode() + b"\n\n")
