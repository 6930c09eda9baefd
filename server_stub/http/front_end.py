"""The HTTP front end: the v2 paths with the binary data extension, on aiohttp."""

import ssl
import time

from aiohttp import web

from perfkit.errors import ErrorKind, ProtocolError
from perfkit.protocol import rest
from perfkit.protocol.tensor import Buffer
from server_stub.devices.host_memory import HostMemory
from server_stub.http.administration import HttpAdministration
from server_stub.http.connections import MODEL_PATHS, BodyTimeoutError, Handler, HttpPort, json_response
from server_stub.http.fast_path import RequestHead
from server_stub.http.generate import HttpGenerate
from server_stub.http.inference import TRACE, HttpInference, HttpResponse, check_json_size, error_response
from server_stub.inference.model import Model
from server_stub.log import Log
from server_stub.options import Limits
from server_stub.receiving import ReceivingThreads
from server_stub.repository.repository import Repository
from server_stub.settings import Settings, server_metadata
from server_stub.shared_memory.regions import SharedMemoryRegions
from server_stub.tracing.request_trace import RequestTrace
from server_stub.tracing.traceparent import KEY
from server_stub.tracing.tracer import Tracer


class HttpFrontEnd:
    """Serves the models of a repository over HTTP."""

    def __init__(
        self,
        repository: Repository,
        regions: SharedMemoryRegions,
        settings: Settings,
        *,
        limits: Limits | None = None,
        log: Log | None = None,
        tracer: Tracer | None = None,
        memory: HostMemory | None = None,
        threads: ReceivingThreads | None = None,
    ) -> None:
        self._repository, self._regions, self._limits = repository, regions, limits or Limits()
        self._log, self._tracer = log or Log(settings), tracer or Tracer()
        administration = HttpAdministration(repository, regions, settings, self._tracer.settings)
        routes = [*self._routes(), *HttpGenerate(repository, self._tracer).routes(), *administration.routes()]
        self._inference = HttpInference(repository, regions)
        fast_path = _FastPathInference(self._inference, self._log, self._tracer)
        self._port = HttpPort(routes, self._handle, self._limits, fast_path, memory, threads)

    async def start(self, host: str, port: int, tls: ssl.SSLContext | None = None) -> int:
        """Listen, and return the port. Raises OSError if that fails."""
        return await self._port.start(host, port, tls)

    async def stop(self) -> None:
        """Stop listening, and wait until the requests in flight are answered or `stop_timeout_s` has passed."""
        await self._port.stop()

    def _routes(self) -> list[web.RouteDef]:
        routes = [
            web.get("/v2/health/live", self._live, allow_head=False),
            web.get("/v2/health/ready", self._ready, allow_head=False),
            web.get("/v2", self._server, allow_head=False),
            web.get("/v2/models/stats", self._statistics, allow_head=False),
            web.post("/v2/repository/index", self._index),
        ]
        for path in MODEL_PATHS:
            routes += [
                web.get(path, self._metadata, allow_head=False),
                web.get(f"{path}/ready", self._model_ready, allow_head=False),
                web.get(f"{path}/config", self._config, allow_head=False),
                web.get(f"{path}/stats", self._statistics, allow_head=False),
                web.post(f"{path}/infer", self._infer),
            ]
        return routes

    async def _handle(self, request: web.Request, handler: Handler) -> web.StreamResponse:
        arrived_ns = time.monotonic_ns()
        response = await self._call(request, handler)
        if self._tracer.is_on and (trace := request.get(TRACE)) is not None:
            await self._send_traced(request, response, trace)
        self._log.request("HTTP", f"{request.method} {request.path}", str(response.status), time.monotonic_ns() - arrived_ns)
        return response

    async def _send_traced(self, request: web.Request, response: web.StreamResponse, trace: RequestTrace) -> None:
        """Send the response, which aiohttp would otherwise do once the handler has returned."""
        started_ns = time.monotonic_ns()
        try:
            await response.prepare(request)
            await response.write_eof()
        finally:
            self._tracer.finish(trace, started_ns)

    async def _call(self, request: web.Request, handler: Handler) -> web.StreamResponse:
        """Call a handler, and turn its exceptions into `{"error": …}` with Triton's status codes."""
        try:
            return await handler(request)
        except ProtocolError as error:
            return _response(error_response(error))
        except web.HTTPRequestEntityTooLarge:
            # Triton responds with 400 instead of the usual 413
            return _error(400, f"request size exceeds the maximum allowed input size of {self._limits.max_body_bytes} bytes")
        except web.HTTPException as error:
            return _error(error.status, error.reason, "text/plain")
        except (BodyTimeoutError, web.RequestPayloadError) as error:
            return _error(400, str(error))
        except ConnectionError as error:
            return _error(400, f"the request ended early: {error}")  # the client has left, so nobody reads this
        except Exception as error:  # noqa: BLE001 - an error in one request must not end the server
            self._log.internal_error(error)
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
        return json_response({"name": metadata.name, "version": metadata.version, "extensions": metadata.extensions})

    async def _index(self, request: web.Request) -> web.Response:
        body = await request.read()
        check_json_size(len(body))
        return json_response(self._repository.index(ready=rest.decode_index_request(body)))

    async def _metadata(self, request: web.Request) -> web.Response:
        return json_response(rest.encode_model_metadata(self._model(request).definition.metadata()))

    async def _config(self, request: web.Request) -> web.Response:
        return json_response(self._model(request).definition.config())

    async def _statistics(self, request: web.Request) -> web.Response:
        return json_response(self._repository.statistics(request.match_info.get("model", ""), request.match_info.get("version", "")))

    async def _infer(self, request: web.Request) -> web.Response:
        started_ns = time.monotonic_ns()
        model, version, headers = request.match_info["model"], request.match_info.get("version", ""), request.headers
        self._inference.find(model, version)  # before waiting for the body
        if (request.content_length or 0) > self._limits.max_body_bytes:
            raise web.HTTPRequestEntityTooLarge(self._limits.max_body_bytes)
        encodings = headers.get("Content-Encoding", ""), headers.get("Accept-Encoding", "")
        body, arrived_ns, trace = await request.read(), time.monotonic_ns(), None
        if self._tracer.is_on:
            trace = self._tracer.start("HTTP", model, headers.get(KEY, ""), started_ns, arrived_ns)
            request[TRACE] = trace
        header_length = headers.get(rest.HEADER_LENGTH)
        return _response(await self._inference.respond(model, version, body, arrived_ns, header_length, *encodings, trace=trace))


class _FastPathInference:
    """Responds to infer requests that did not come by aiohttp."""

    def __init__(self, inference: HttpInference, log: Log, tracer: Tracer) -> None:
        self._inference, self._log, self._tracer = inference, log, tracer

    def accepts(self, head: RequestHead) -> bool:
        """See `FastPathHandler.accepts`."""
        try:
            self._inference.find(head.model, head.version)
        except ProtocolError:
            return False
        return True

    async def respond(self, head: RequestHead, body: Buffer) -> HttpResponse:
        """See `FastPathHandler.respond`."""
        arrived_ns, trace = time.monotonic_ns(), None
        if self._tracer.is_on:
            trace = self._tracer.start("HTTP", head.model, head.traceparent, head.received_ns or arrived_ns, arrived_ns)
        try:
            response = await self._inference.respond(head.model, head.version, body, arrived_ns, head.header_length, trace=trace)
        except ProtocolError as error:
            response = error_response(error)
        except Exception as error:  # noqa: BLE001 - an error in one request must not end the server
            self._log.internal_error(error)
            response = error_response(ProtocolError(f"the server failed: {error}", ErrorKind.INTERNAL))
        self._log.request("HTTP", head.request_line, str(response.status), time.monotonic_ns() - arrived_ns)
        return response if trace is None else response._replace(trace=trace)

    def end_trace(self, trace: RequestTrace, send_started_ns: int) -> None:
        """See `FastPathHandler.end_trace`."""
        self._tracer.finish(trace, send_started_ns)


def _response(response: HttpResponse) -> web.Response:
    return web.Response(status=response.status, body=b"".join(response.body), headers=response.headers)


def _error(status: int, message: str, content_type: str = rest.JSON_TYPE) -> web.Response:
    return web.Response(status=status, body=rest.encode_error(message), content_type=content_type)
