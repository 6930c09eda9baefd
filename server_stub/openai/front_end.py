"""The OpenAI API's paths on the HTTP front end, for the model `synthetic`."""

import itertools
import time
from collections.abc import Awaitable, Callable, Mapping
from typing import Any

from aiohttp import web

from perfkit.errors import ErrorKind, ProtocolError
from perfkit.protocol import rest
from server_stub.http.connections import TRACE, BodyTimeoutError, Handler, json_response
from server_stub.http.inference import check_json_size
from server_stub.openai.answers import STREAM_FAILURE, Answer, embeddings_document, error_document
from server_stub.openai.requests import RequestError, TextRequest, read_chat, read_completions, read_embeddings, read_model
from server_stub.service import Service
from server_stub.synthetic.model import NAME, SyntheticModel
from server_stub.tracing.request_trace import KEY

_STATUS = {ErrorKind.INTERNAL: 500, ErrorKind.UNAVAILABLE: 503}


class OpenAiFrontEnd:
    """The handlers of the paths."""

    def __init__(self, service: Service, now_ns: Callable[[], int] = time.monotonic_ns, unix_s: Callable[[], float] = time.time) -> None:
        self._repository, self._tracer = service.repository, service.tracer
        self._now_ns, self._unix_s, self._started_s = now_ns, unix_s, int(unix_s())
        self._numbers = itertools.count(1)

    def routes(self) -> list[web.RouteDef]:
        """The routes to add to the application."""
        posts: Mapping[str, Handler] = {
            "chat/completions": lambda request: self._text(request, read_chat, "chatcmpl"),
            "completions": lambda request: self._text(request, read_completions, "cmpl"),
            "embeddings": self._embeddings,
        }
        return [
            web.get("/health", self._handler(self._health), allow_head=False),
            web.get("/v1/models", self._handler(self._list), allow_head=False),
            web.get("/v1/models/{model}", self._handler(self._describe), allow_head=False),
            *(web.post(f"/v1/{path}", self._handler(answer)) for path, answer in posts.items()),
            web.route("*", "/v1/{path:.*}", self._handler(_refuse)),
        ]

    def _handler(self, answer: Handler) -> Handler:
        """A handler that turns exceptions into errors in OpenAI's form, unless the response has begun."""

        async def handle(request: web.Request) -> web.StreamResponse:
            try:
                return await answer(request)
            except RequestError as error:
                return _error(error.status, str(error), error.param, error.code)
            except ProtocolError as error:
                return _error(_STATUS.get(error.kind, 400), str(error))
            except web.HTTPRequestEntityTooLarge as error:
                return _error(413, error.text or error.reason)
            except BodyTimeoutError as error:
                return _error(408, str(error))

        return handle

    async def _health(self, request: web.Request) -> web.Response:
        return web.Response(status=200 if self._repository.is_ready else 503)

    async def _list(self, request: web.Request) -> web.Response:
        models = [model for model in self._repository.loaded if isinstance(model, SyntheticModel)]
        return json_response({"object": "list", "data": [self._entry() for _ in models]})

    async def _describe(self, request: web.Request) -> web.Response:
        self._find(request.match_info["model"])
        return json_response(self._entry())

    def _entry(self) -> dict[str, Any]:
        return {"id": NAME, "object": "model", "created": self._started_s, "owned_by": "perfkit"}

    def _find(self, name: str) -> SyntheticModel:
        """The model. Raises RequestError if there is no such model, ProtocolError if it is not ready."""
        try:
            model = self._repository.find(name)
        except ProtocolError as error:
            if error.kind is not ErrorKind.NOT_FOUND:
                raise
            model = None
        if not isinstance(model, SyntheticModel):
            raise RequestError(f"The model `{name}` does not exist", "model", status=404, code="model_not_found")
        return model

    async def _read(self, request: web.Request) -> tuple[dict[str, Any], SyntheticModel, int]:
        """The body, the model, and when the whole request had been received. The request gets its trace."""
        started_ns = self._now_ns()
        if request.headers.get("Content-Encoding", "identity") not in ("", "identity"):
            raise RequestError("compressed requests are not supported", status=415)
        body, arrived_ns = await request.read(), self._now_ns()
        try:
            check_json_size(len(body))
            document = rest.decode_object(body)
        except ProtocolError as error:
            raise RequestError(f"the body of the request is not a JSON object that can be read: {error}") from None
        model = self._find(read_model(document))
        request[TRACE] = self._tracer.start("HTTP", NAME, request.headers.get(KEY, ""), started_ns, arrived_ns)
        return document, model, arrived_ns

    async def _text(self, request: web.Request, read: Callable[[Mapping[str, Any]], TextRequest], prefix: str) -> web.StreamResponse:
        document, model, arrived_ns = await self._read(request)
        answer = Answer(read(document), model.text, NAME, f"{prefix}-{next(self._numbers)}", int(self._unix_s()))
        with model.in_flight:
            served = await model.serve(arrived_ns, 1, answer.id, request[TRACE])
            if answer.request.is_streamed:
                return await self._stream(request, answer, lambda number: model.wait_for_response(served, number))
            await model.wait_for_response(served, answer.last_event)
        if answer.is_cut:
            raise ProtocolError(STREAM_FAILURE, ErrorKind.INTERNAL)
        return json_response(answer.document())

    async def _stream(self, request: web.Request, answer: Answer, wait_for: Callable[[int], Awaitable[None]]) -> web.StreamResponse:
        trace, request[TRACE] = request[TRACE], None  # it is finished here
        stream = web.StreamResponse(headers={"Content-Type": "text/event-stream; charset=utf-8", "Cache-Control": "no-cache"})
        stream.enable_chunked_encoding()
        await stream.prepare(request)
        for number, event in enumerate(answer.events()):
            await wait_for(number)
            started_ns = self._now_ns()
            # the last one together with the end of the body, which would otherwise be a packet of its own
            await (stream.write_eof if number == answer.last_event else stream.write)(event)
            if trace is not None:
                trace.sends.append((started_ns, self._now_ns()))
        if trace is not None:
            self._tracer.finish(trace)
        return stream

    async def _embeddings(self, request: web.Request) -> web.Response:
        document, model, arrived_ns = await self._read(request)
        asked = read_embeddings(document)
        with model.in_flight:
            await model.serve(arrived_ns, len(asked.input_tokens), f"embd-{next(self._numbers)}", request[TRACE])
        return json_response(embeddings_document(asked, NAME, has_usage=model.text.usage != "off"))


async def _refuse(request: web.Request) -> web.StreamResponse:
    raise RequestError(f"Invalid URL ({request.method} {request.path})", status=404)


def _error(status: int, message: str, param: str | None = None, code: str | None = None) -> web.Response:
    kind = "server_error" if status >= 500 else "invalid_request_error"
    response = json_response(error_document(message, kind, param, code))
    response.set_status(status)
    return response
