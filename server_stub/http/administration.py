"""The service's paths over HTTP besides inference: health, metadata, loading models, shared memory regions, and trace and log settings."""

import base64
import functools
import inspect
from collections.abc import Callable
from typing import Any

from aiohttp import web

from perfkit.errors import ErrorKind, ProtocolError
from perfkit.protocol import rest, rest_models
from server_stub.http.connections import MODEL_PATHS, Handler, error_answer, json_response
from server_stub.http.inference import check_json_size
from server_stub.service import Service
from server_stub.settings import read_text, read_unsigned


class HttpAdministration:
    """The handlers of the administrative paths."""

    def __init__(self, service: Service) -> None:
        self._service, self._repository, self._regions = service, service.repository, service.regions
        self._settings = service.log.settings

    def routes(self) -> list[web.RouteDef]:
        """The routes to add to the application."""
        repository, settings = self._repository, self._settings
        routes = [
            _get("/v2/health/live", lambda _: web.Response()),
            _get("/v2/health/ready", lambda _: web.Response(status=200 if repository.is_ready else 400)),
            _get("/v2", lambda _: self._service.metadata()),
            _get("/v2/models/stats", lambda _: repository.statistics()),
            _post("/v2/repository/index", self._index),
            _post(r"/v2/repository/models/{model:[^{}/]+}/load", self._load),
            _post(r"/v2/repository/models/{model:[^{}/]+}/unload", self._unload),
            _get("/v2/logging", lambda _: settings.log),
            _post("/v2/logging", self._set_log),
        ]
        for path in MODEL_PATHS:
            routes += [
                _get(path, lambda request: self._service.model_metadata(*model_of(request))),
                _get(f"{path}/ready", self._model_ready),
                _get(f"{path}/config", lambda request: repository.find(*model_of(request)).definition.config()),
                _get(f"{path}/stats", lambda request: repository.statistics(*model_of(request))),
            ]
        for path in ("/v2/trace/setting", f"{MODEL_PATHS[0]}/trace/setting"):
            routes += [
                _get(path, lambda request: self._service.trace_settings(model_of(request)[0], {})),
                _post(path, self._set_traces),
            ]
        for kind, register in (("system", self._register), ("cuda", self._register_cuda)):
            status, unregister = (
                functools.partial(_for_region, function, is_cuda=kind == "cuda")
                for function in (self._regions.status, self._regions.unregister)
            )
            for path in (f"/v2/{kind}sharedmemory", f"/v2/{kind}sharedmemory/region/{{region:[^{{}}/]+}}"):
                routes += [_get(f"{path}/status", status), _post(f"{path}/register", register), _post(f"{path}/unregister", unregister)]
        return routes

    def _model_ready(self, request: web.Request) -> web.Response:
        is_ready = self._repository.is_model_ready(*model_of(request))
        return web.Response() if is_ready else error_answer(400, "Model version not ready", "text/plain")

    async def _index(self, request: web.Request) -> object:
        body = await request.read()
        check_json_size(len(body))
        return self._repository.index(ready=rest_models.decode_index_request(body))

    async def _load(self, request: web.Request) -> None:
        parameters = await _parameters(request)
        await self._service.load(request.match_info["model"], parameters, lambda _, value: read_text(value), _read_file)

    async def _unload(self, request: web.Request) -> None:
        await _parameters(request)  # unload_dependents has no effect, since no model depends on another
        await self._repository.unload_model(request.match_info["model"])

    async def _set_log(self, request: web.Request) -> object:
        return self._settings.set_log(await _document(request))

    async def _set_traces(self, request: web.Request) -> object:
        self._service.trace_settings(model := model_of(request)[0], {})  # an unknown model is the first error
        return self._service.trace_settings(model, await _document(request))

    async def _register(self, request: web.Request) -> None:
        name, document = await _registration(request, "system", ("key", "byte_size"))
        key = read_text(document["key"])
        self._regions.register(name, key, read_unsigned(document.get("offset", 0)), read_unsigned(document["byte_size"]))

    async def _register_cuda(self, request: web.Request) -> None:
        name, document = await _registration(request, "cuda", ("raw_handle", "device_id", "byte_size"))
        raw = document["raw_handle"]
        encoded = read_text(raw.get("b64") if isinstance(raw, dict) else None)
        sizes = [read_unsigned(document[key]) for key in ("device_id", "byte_size")]
        try:
            handle = base64.b64decode(encoded)
        except ValueError as error:
            raise ProtocolError(f"failed to register CUDA shared memory region: '{name}', its handle is not base64: {error}") from None
        self._regions.register_cuda(name, handle, *sizes)


def model_of(request: web.Request) -> tuple[str, str]:
    """The name and the version of the model in a request's path, empty where it has none."""
    return request.match_info.get("model", ""), request.match_info.get("version", "")


def _get(path: str, answer: Callable[[web.Request], object]) -> web.RouteDef:
    return web.get(path, _handler(answer), allow_head=False)


def _post(path: str, answer: Callable[[web.Request], object]) -> web.RouteDef:
    return web.post(path, _handler(answer))


def _handler(answer: Callable[[web.Request], object]) -> Handler:
    """A handler that responds with what `answer` returns or awaits: a document, None for an empty body, or a response."""

    async def handle(request: web.Request) -> web.StreamResponse:
        answered = answer(request)
        answered = await answered if inspect.isawaitable(answered) else answered
        return answered if isinstance(answered, web.StreamResponse) else json_response(answered)

    return handle


def _for_region(function: Callable[..., object], request: web.Request, *, is_cuda: bool) -> object:
    return function(request.match_info.get("region", ""), is_cuda=is_cuda)


def _read_file(key: str, value: object) -> bytes:
    try:
        return base64.b64decode(read_text(value), validate=True)
    except ValueError:
        raise ProtocolError(f"the load parameter '{key}' is not base64") from None


async def _registration(request: web.Request, kind: str, required: tuple[str, ...]) -> tuple[str, dict[str, Any]]:
    """The region's name and the document of a register request."""
    if "region" not in request.match_info:
        raise ProtocolError(f"'region name' is necessary to register {kind} shared memory region")
    document = await _document(request)
    for key in required:
        if key not in document:
            raise ProtocolError(f"Shared memory register request has no '{key}' field")
    return request.match_info["region"], document


async def _parameters(request: web.Request) -> dict[str, Any]:
    """The parameters of a load or unload request. The JSON limit does not apply, since it may contain model files."""
    parameters = (rest.decode_object(await request.read()) if request.can_read_body else {}).get("parameters", {})
    if not isinstance(parameters, dict):
        raise ProtocolError("attempt to get members for non-object", ErrorKind.INTERNAL)
    return parameters


async def _document(request: web.Request) -> dict[str, Any]:
    body = await request.read()
    check_json_size(len(body))
    return rest.decode_object(body)
