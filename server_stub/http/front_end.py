"""The HTTP front end: the v2 paths with the binary data extension, on aiohttp."""

import time
from collections.abc import Sequence

from aiohttp import web

from perfkit.errors import ProtocolError
from perfkit.protocol import rest
from server_stub.http.administration import HttpAdministration, model_of
from server_stub.http.connections import MODEL_PATHS, TRACE, BodyTimeoutError, Handler, HttpPort, error_answer
from server_stub.http.generate import HttpGenerate
from server_stub.http.inference import HttpInference, HttpResponse, error_response
from server_stub.service import Service
from server_stub.tracing.request_trace import KEY, RequestTrace


class HttpFrontEnd(HttpPort):
    """Serves the models of a repository over HTTP."""

    def __init__(self, service: Service, more_routes: Sequence[web.RouteDef] = ()) -> None:
        self._log, self._tracer = service.log, service.tracer
        self._inference = HttpInference(service)
        infer = [web.post(f"{path}/infer", self._infer) for path in MODEL_PATHS]
        generate, administration = HttpGenerate(service.repository, service.tracer), HttpAdministration(service)
        routes = [*infer, *generate.routes(), *administration.routes(), *more_routes]
        super().__init__(routes, self._respond, service.limits, self._inference, service.memory, service.threads)

    async def _respond(self, request: web.Request, handler: Handler) -> web.StreamResponse:
        arrived_ns = time.monotonic_ns()
        response = await self._call(request, handler)
        if (trace := request.get(TRACE)) is not None:
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
            return error_answer(400, f"request size exceeds the maximum allowed input size of {self.limits.max_body_bytes} bytes")
        except web.HTTPException as error:
            return error_answer(error.status, error.reason, "text/plain")
        except (BodyTimeoutError, web.RequestPayloadError) as error:
            return error_answer(400, str(error))
        except ConnectionError as error:
            return error_answer(400, f"the request ended early: {error}")  # the client has left, so nobody reads this
        except Exception as error:  # noqa: BLE001 - an error in one request must not end the server
            self._log.internal_error(error)
            return error_answer(500, f"the server failed: {error}")

    async def _infer(self, request: web.Request) -> web.Response:
        started_ns = time.monotonic_ns()
        (model, version), headers = model_of(request), request.headers
        self._inference.find(model, version)  # before waiting for the body
        if (request.content_length or 0) > self.limits.max_body_bytes:
            raise web.HTTPRequestEntityTooLarge(self.limits.max_body_bytes)
        encodings = headers.get("Content-Encoding", ""), headers.get("Accept-Encoding", "")
        body, arrived_ns = await request.read(), time.monotonic_ns()
        request[TRACE] = trace = self._tracer.start("HTTP", model, headers.get(KEY, ""), started_ns, arrived_ns)
        header_length = headers.get(rest.HEADER_LENGTH)
        return _response(await self._inference.respond(model, version, body, arrived_ns, header_length, *encodings, trace=trace))


def _response(response: HttpResponse) -> web.Response:
    return web.Response(status=response.status, body=b"".join(response.body), headers=response.headers)
