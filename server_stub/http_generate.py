"""`generate` and `generate_stream`: Triton's extension with one flat JSON object for a request, and one for each response."""

import contextlib
import json
import math
import time
from typing import Any

from aiohttp import web

from perfkit.errors import ErrorKind, ProtocolError
from perfkit.protocol import rest
from perfkit.protocol.message import InferRequest, InferResponse, Parameter
from perfkit.protocol.tensor import Tensor, tensor_from_json, tensor_to_json
from server_stub.definition import ModelDefinition, TensorDefinition
from server_stub.http_inference import check_json_size
from server_stub.model import Model
from server_stub.repository import Repository

_EVENTS_TYPE = "text/event-stream; charset=utf-8"
# of inference alone: here they are parameters like others, which no model looks at
_MEANINGLESS = {"binary_data_output", "sequence_id", "sequence_start", "sequence_end", "priority", "timeout"}


def read_generate(definition: ModelDefinition, version: str, body: bytes) -> InferRequest:
    """The request that a body stands for: members named as inputs are tensors, of batch 1, and others parameters.

    Raises ProtocolError with Triton's texts.
    """
    document = rest.decode_object(body)
    inputs = {one.name: one for one in definition.inputs}
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
        elif key not in _MEANINGLESS:
            parameters[key] = value
    return InferRequest(definition.name, tuple(tensors), version=version, id=name, parameters=parameters)


def generated(response: InferResponse) -> dict[str, Any]:
    """A response as a flat object: outputs of one element are scalars, others flat lists."""
    document: dict[str, Any] = {"model_name": response.model, "model_version": response.version}
    if response.id:
        document["id"] = response.id
    for tensor in response.outputs:
        values = tensor_to_json(tensor)
        document[tensor.name] = values[0] if len(values) == 1 else values
    return document


class HttpGenerate:
    """The handlers, and the paths that they stand behind."""

    def __init__(self, repository: Repository) -> None:
        self._repository = repository

    def routes(self) -> list[web.RouteDef]:
        """What an application adds."""
        paths = [rf"/v2/models/{{model:[^{{}}/]+}}{version}" for version in ("", r"/versions/{version:[0-9]+}")]
        return [
            web.post(f"{path}/{action}", handler)
            for path in paths
            for action, handler in (("generate", self._generate), ("generate_stream", self._stream))
        ]

    async def _generate(self, request: web.Request) -> web.Response:
        model, asked, arrived_ns = await self._open(request)
        found: list[InferResponse] = []
        async with contextlib.aclosing(model.responses(asked, arrived_ns)) as responses:
            async for response in responses:
                found.append(response)
                if len(found) > 1:
                    break
        if len(found) != 1:
            raise ProtocolError(
                "generate expects model to produce exactly 1 response, use generate stream for model that generates various number of responses",
                ErrorKind.INTERNAL,
            )
        return web.Response(body=_encoded(generated(found[0])), content_type=rest.JSON_TYPE)

    async def _stream(self, request: web.Request) -> web.StreamResponse:
        model, asked, arrived_ns = await self._open(request)
        answer = web.StreamResponse(headers={"Content-Type": _EVENTS_TYPE})
        answer.enable_chunked_encoding()
        try:
            async with contextlib.aclosing(model.responses(asked, arrived_ns)) as responses:
                async for response in responses:
                    await _send(request, answer, generated(response))
        except ProtocolError as error:
            if not answer.prepared:
                raise
            await _send(request, answer, {"error": str(error)})  # the status has gone out already
        if not answer.prepared:
            await answer.prepare(request)
        await answer.write_eof()
        return answer

    async def _open(self, request: web.Request) -> tuple[Model, InferRequest, int]:
        name, version = request.match_info["model"], request.match_info.get("version", "")
        self._repository.find(name, version)
        if request.headers.get("Content-Encoding", "identity") not in ("", "identity"):
            raise ProtocolError("Unsupported content-encoding, only 'identity' is supported.")
        body = await request.read()
        check_json_size(len(body))
        model = self._repository.find(name, version)  # while the body came, another one may have taken its place
        return model, read_generate(model.definition, model.version, body), time.monotonic_ns()


def _tensor(definition: ModelDefinition, one: TensorDefinition, value: object) -> Tensor:
    values = value if isinstance(value, list) else [value]
    shape = [*((1,) if definition.max_batch_size else ()), *one.dims]
    fixed = math.prod(size for size in shape if size != -1)
    is_clear = shape.count(-1) <= 1 and not any(isinstance(element, list) for element in values)
    if is_clear and fixed and -1 in shape:
        shape[shape.index(-1)] = len(values) // fixed
    if not is_clear or math.prod(shape) != len(values):
        raise ProtocolError(f"The schema can not convert input '{one.name}' to tensor with proper shape")
    return tensor_from_json(one.name, one.datatype, tuple(shape), values)


async def _send(request: web.Request, answer: web.StreamResponse, document: dict[str, Any]) -> None:
    if not answer.prepared:
        await answer.prepare(request)
    await answer.write(b"data: " + _encoded(document) + b"\n\n")


def _encoded(document: dict[str, Any]) -> bytes:
    return json.dumps(document, separators=(",", ":")).encode()
