"""The server's HTTP side: v2 paths, with the binary data extension, on aiohttp."""

import json
import ssl
import time

from aiohttp import web

from perfkit.errors import ErrorKind, ProtocolError
from perfkit.protocol import rest
from server_stub.http_administration import HttpAdministration
from server_stub.http_brief import Head
from server_stub.http_connections import Handler, HttpPort, SlowBodyError
from server_stub.http_generate import HttpGenerate
from server_stub.http_inference import HttpAnswer, HttpInference, check_json_size, refusal
from server_stub.identity import server_metadata
from server_stub.limits import Limits
from server_stub.log import Log
from server_stub.model import Model
from server_stub.repository import Repository
from server_stub.settings import Settings
from server_stub.shared_memory import Regions

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
        self._inference = HttpInference(repository, regions)
        self._port = HttpPort(routes, self._answer, self._limits, self._answer_brief)

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
            return _response(refusal(error))
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
        body = await request.read()
        check_json_size(len(body))
        return _json(self._repository.index(ready=rest.decode_index_request(body)))

    async def _metadata(self, request: web.Request) -> web.Response:
        return _json(rest.encode_model_metadata(self._model(request).definition.metadata()))

    async def _config(self, request: web.Request) -> web.Response:
        return _json(self._model(request).definition.config())

    async def _statistics(self, request: web.Request) -> web.Response:
        return _json(self._repository.statistics(request.match_info.get("model", ""), request.match_info.get("version", "")))

    async def _infer(self, request: web.Request) -> web.Response:
        self._inference.find(request.match_info["model"], request.match_info.get("version", ""))  # before its body is waited for
        if (request.content_length or 0) > self._limits.max_body_bytes:
            raise web.HTTPRequestEntityTooLarge(self._limits.max_body_bytes)
        answer = await self._inference.answer(
            request.match_info["model"],
            request.match_info.get("version", ""),
            await request.read(),
            request.headers.get(rest.HEADER_LENGTH),
            request.headers.get("Content-Encoding", ""),
            request.headers.get("Accept-Encoding", ""),
        )
        return _response(answer)

    async def _answer_brief(self, head: Head, body: bytes) -> HttpAnswer:
        arrived_ns = time.monotonic_ns()
        try:
            answer = await self._inference.answer(head.model, head.version, body, head.header_length)
        except ProtocolError as error:
            answer = refusal(error)
        except Exception as error:  # noqa: BLE001 - a fault in one request must not end the server
            self._log.fault(error)
            answer = refusal(ProtocolError(f"the server failed: {error}", ErrorKind.INTERNAL))
        self._log.request("HTTP", head.line, str(answer.status), time.monotonic_ns() - arrived_ns)
        return answer


def _response(answer: HttpAnswer) -> web.Response:
    return web.Response(status=answer.status, body=answer.body, headers=answer.headers)


def _json(document: object) -> web.Response:
    return web.Response(body=json.dumps(document, separators=(",", ":")).encode(), content_type=rest.JSON_TYPE)


def _error(status: int, message: str, content_type: str = rest.JSON_TYPE) -> web.Response:
    return web.Response(status=status, body=rest.encode_error(message), content_type=content_type)
