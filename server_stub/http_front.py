"""The server's HTTP side: v2 paths, with the binary data extension, on aiohttp."""

import contextlib
import functools
import json
import ssl
import time
from collections.abc import Iterator, Mapping

from aiohttp import web

from perfkit.errors import ErrorKind, ProtocolError
from perfkit.protocol import rest
from perfkit.protocol.compression import ACCEPTED, choose_encoding, compress, decompress
from perfkit.protocol.message import InferRequest, InferResponse
from server_stub import inference, shared_requests
from server_stub.http_administration import HttpAdministration
from server_stub.http_connections import Handler, HttpPort, SlowBodyError
from server_stub.http_generate import HttpGenerate, http_status
from server_stub.identity import server_metadata
from server_stub.limits import Limits
from server_stub.log import Log
from server_stub.model import Model
from server_stub.repository import Repository
from server_stub.settings import Settings
from server_stub.shared_memory import Regions, Slot, without_slots

# what has to be held twice, parsed or unpacked; binary tensors behind the JSON part may be larger
MAX_JSON_BYTES = 2**26
_MODEL = r"/v2/models/{model:[^{}/]+}"
_VERSIONS = ("", r"/versions/{version:[0-9]+}")


class HttpFront:
    """Answers v2 over HTTP from a repository of models."""

    def __init__(
        self, repository: Repository, regions: Regions, settings: Settings, *, limits: Limits | None = None, log: Log | None = None
    ) -> None:
        self._repository, self._regions, self._limits = repository, regions, limits or Limits()
        self._log = log or Log(settings)
        routes = [*self._routes(), *HttpGenerate(repository).routes(), *HttpAdministration(repository, regions, settings).routes()]
        self._port = HttpPort(routes, self._answer, self._limits)

    async def start(self, host: str, port: int, tls: ssl.SSLContext | None = None) -> int:
        """Listens, and gives the port; raises OSError where it cannot."""
        return await self._port.start(host, port, tls)

    async def stop(self) -> None:
        """Stops listening and returns when the requests in flight are answered, or the time for it has passed."""
        await self._port.stop()

    def _routes(self) -> list[web.RouteDef]:
        routes = [
            web.get("/v2/health/live", self._live, allow_head=False),
            web.get("/v2/health/ready", self._ready, allow_head=False),
            web.get("/v2", self._server, allow_head=False),
            web.get("/v2/models/stats", self._statistics, allow_head=False),
            web.post("/v2/repository/index", self._index),
        ]
        for version in _VERSIONS:
            path = _MODEL + version
            routes += [
                web.get(path, self._metadata, allow_head=False),
                web.get(f"{path}/ready", self._model_ready, allow_head=False),
                web.get(f"{path}/config", self._config, allow_head=False),
                web.get(f"{path}/stats", self._statistics, allow_head=False),
                web.post(f"{path}/infer", self._infer),
            ]
        return routes

    async def _answer(self, request: web.Request, handler: Handler) -> web.StreamResponse:
        arrived_ns = time.monotonic_ns()
        answer = await self._answered(request, handler)
        self._log.request("HTTP", f"{request.method} {request.path}", str(answer.status), time.monotonic_ns() - arrived_ns)
        return answer

    async def _answered(self, request: web.Request, handler: Handler) -> web.StreamResponse:
        """Turns failures into `{"error": …}` with Triton's codes."""
        try:
            return await handler(request)
        except ProtocolError as error:
            # Triton's own HTTP layer answers early refusals, and knows of no other type for its JSON
            content_type = "text/plain" if isinstance(error, _EarlyError) else rest.JSON_TYPE
            answer = _error(http_status(error), str(error), content_type)
            if error.kind is ErrorKind.UNSUPPORTED and "compression" in str(error):
                answer.headers["Accept-Encoding"] = ", ".join(ACCEPTED)
            return answer
        except web.HTTPRequestEntityTooLarge:
            # Triton answers 400 where others say 413
            return _error(400, f"request size exceeds the maximum allowed input size of {self._limits.max_body_bytes} bytes")
        except web.HTTPException as error:
            return _error(error.status, error.reason, "text/plain")
        except (SlowBodyError, web.RequestPayloadError) as error:
            return _error(400, str(error))
        except ConnectionError as error:
            return _error(400, f"the request ended early: {error}")  # nobody is there to read it, and nothing is wrong here
        except Exception as error:  # noqa: BLE001 - a fault in one request must not end the server
            self._log.fault(error)
            return _error(500, f"the server failed: {error}")

    def _model(self, request: web.Request) -> Model:
        return self._repository.find(request.match_info["model"], request.match_info.get("version", ""))

    async def _live(self, request: web.Request) -> web.Response:
        return web.Response()

    async def _ready(self, request: web.Request) -> web.Response:
        return web.Response(status=200 if self._repository.is_ready else 400)

    async def _model_ready(self, request: web.Request) -> web.Response:
        is_ready = self._repository.is_model_ready(request.match_info["model"], request.match_info.get("version", ""))
        return web.Response() if is_ready else _error(400, "Model version not ready", "text/plain")

    async def _server(self, request: web.Request) -> web.Response:
        metadata = server_metadata(is_shared_memory_allowed=self._regions.is_allowed)
        return _json({"name": metadata.name, "version": metadata.version, "extensions": metadata.extensions})

    async def _index(self, request: web.Request) -> web.Response:
        return _json(self._repository.index(ready=rest.decode_index_request(await request.read())))

    async def _metadata(self, request: web.Request) -> web.Response:
        return _json(rest.encode_model_metadata(self._model(request).definition.metadata()))

    async def _config(self, request: web.Request) -> web.Response:
        return _json(self._model(request).definition.config())

    async def _statistics(self, request: web.Request) -> web.Response:
        return _json(self._repository.statistics(request.match_info.get("model", ""), request.match_info.get("version", "")))

    async def _infer(self, request: web.Request) -> web.Response:
        with _early():
            model = self._model(request)
            if model.definition.is_decoupled:
                raise ProtocolError("HTTP end point doesn't support models with decoupled transaction policy", ErrorKind.UNSUPPORTED)
            if (request.content_length or 0) > self._limits.max_body_bytes:
                raise web.HTTPRequestEntityTooLarge(self._limits.max_body_bytes)
            encoded = await request.read()
            arrived_ns = time.monotonic_ns()
            body = decompress(encoded, request.headers.get("Content-Encoding", ""), MAX_JSON_BYTES)
            header_length = _header_length(request, len(body))
            json_bytes = header_length or len(body)  # without a header, or with 0, it is all of the body
            if json_bytes > MAX_JSON_BYTES:
                raise ProtocolError(
                    f"request JSON size of {json_bytes} bytes exceeds the maximum allowed input size of {MAX_JSON_BYTES} bytes"
                )
        model = self._model(request)  # while the body came, another one may have taken its place
        body, header_length, slots = shared_requests.read_http(body, header_length, self._regions)
        if header_length == 0 or not body:
            asked = inference.raw_request(model.definition, model.version, body)
        else:
            asked = rest.decode_infer_request(model.definition.name, model.version, body, header_length)
        encoding = choose_encoding(request.headers.get("Accept-Encoding", ""))
        return await model.infer(asked, arrived_ns, functools.partial(_encoded, asked, encoding, slots))


class _EarlyError(ProtocolError):
    """A refusal before the request itself is looked at."""


@contextlib.contextmanager
def _early() -> Iterator[None]:
    try:
        yield
    except ProtocolError as error:
        raise _EarlyError(str(error), error.kind) from None


def _header_length(request: web.Request, body_bytes: int) -> int | None:
    text = request.headers.get(rest.HEADER_LENGTH)
    if text is None:
        return None
    if not (text.isascii() and text.removeprefix("-").isdigit()):
        raise ProtocolError(f"Unable to parse {rest.HEADER_LENGTH}, got: {text}")
    length = int(text)
    if not 0 <= length <= body_bytes:
        raise ProtocolError(f"inference header size should be in range (0, {body_bytes}), got: {length}")
    return length


def _encoded(asked: InferRequest, encoding: str, slots: Mapping[str, Slot], response: InferResponse) -> web.Response:
    response = without_slots(response, slots)
    listed = {output.name: output.binary is True for output in reversed(asked.outputs)}
    encoded = rest.encode_infer_response(
        response, {tensor.name: listed.get(tensor.name, asked.binary_output) for tensor in response.outputs}
    )
    headers, buffers = shared_requests.write_http(*encoded, slots)
    if encoding == "identity":
        return web.Response(body=b"".join(buffers), headers=headers)
    return web.Response(body=compress(buffers, encoding), headers={**headers, "Content-Encoding": encoding})


def _json(document: object) -> web.Response:
    return web.Response(body=json.dumps(document, separators=(",", ":")).encode(), content_type=rest.JSON_TYPE)


def _error(status: int, message: str, content_type: str = rest.JSON_TYPE) -> web.Response:
    return web.Response(status=status, body=rest.encode_error(message), content_type=content_type)
