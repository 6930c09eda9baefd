"""Administration over HTTP: loading models, shared memory regions, and trace and log settings."""

import base64
from typing import Any

from aiohttp import web

from perfkit.errors import ErrorKind, ProtocolError
from perfkit.protocol import rest
from server_stub.http.connections import MODEL_PATHS, json_response
from server_stub.http.inference import check_json_size
from server_stub.repository.repository import Repository
from server_stub.settings import Settings, read_text, read_unsigned
from server_stub.shared_memory.regions import SharedMemoryRegions
from server_stub.tracing.trace_settings import TraceSettings

_FILE_PREFIX = "file:"


class HttpAdministration:
    """The handlers of the administrative paths."""

    def __init__(self, repository: Repository, regions: SharedMemoryRegions, settings: Settings, traces: TraceSettings) -> None:
        self._repository, self._regions, self._settings, self._traces = repository, regions, settings, traces

    def routes(self) -> list[web.RouteDef]:
        """The routes to add to the application."""
        routes = [
            web.post(r"/v2/repository/models/{model:[^{}/]+}/load", self._load),
            web.post(r"/v2/repository/models/{model:[^{}/]+}/unload", self._unload),
            web.get("/v2/logging", self._log, allow_head=False),
            web.post("/v2/logging", self._set_log),
        ]
        for path in ("/v2/trace/setting", f"{MODEL_PATHS[0]}/trace/setting"):
            routes += [web.get(path, self._trace, allow_head=False), web.post(path, self._set_trace)]
        for kind, status, register, unregister in (
            ("system", self._system_status, self._system_register, self._system_unregister),
            ("cuda", self._cuda_status, self._cuda_register, self._cuda_unregister),
        ):
            for path in (f"/v2/{kind}sharedmemory", f"/v2/{kind}sharedmemory/region/{{region:[^{{}}/]+}}"):
                routes += [
                    web.get(f"{path}/status", status, allow_head=False),
                    web.post(f"{path}/register", register),
                    web.post(f"{path}/unregister", unregister),
                ]
        return routes

    async def _load(self, request: web.Request) -> web.Response:
        parameters = await _parameters(request)
        files = {}
        for key, value in parameters.items():
            if key.startswith(_FILE_PREFIX):
                files[key.removeprefix(_FILE_PREFIX)] = _file(key, value)
            elif key != "config":
                raise ProtocolError(f"load parameter '{key}' is not supported: config, and file:PATH are", ErrorKind.UNSUPPORTED)
        config = parameters.get("config")
        await self._repository.load_model(request.match_info["model"], None if config is None else read_text(config), files)
        return json_response(None)

    async def _unload(self, request: web.Request) -> web.Response:
        await _parameters(request)  # unload_dependents has no effect, since no model depends on another
        await self._repository.unload_model(request.match_info["model"])
        return json_response(None)

    async def _system_status(self, request: web.Request) -> web.Response:
        return json_response(self._regions.status(request.match_info.get("region", "")))

    async def _system_register(self, request: web.Request) -> web.Response:
        name, document = await _registration(request, "system", ("key", "byte_size"))
        key = read_text(document["key"])
        self._regions.register(name, key, read_unsigned(document.get("offset", 0)), read_unsigned(document["byte_size"]))
        return json_response(None)

    async def _system_unregister(self, request: web.Request) -> web.Response:
        self._regions.unregister(request.match_info.get("region", ""))
        return json_response(None)

    async def _cuda_status(self, request: web.Request) -> web.Response:
        return json_response(self._regions.cuda_status(request.match_info.get("region", "")))

    async def _cuda_register(self, request: web.Request) -> web.Response:
        name, document = await _registration(request, "cuda", ("raw_handle", "device_id", "byte_size"))
        raw = document["raw_handle"]
        encoded = read_text(raw.get("b64") if isinstance(raw, dict) else None)
        sizes = [read_unsigned(document[key]) for key in ("device_id", "byte_size")]
        try:
            handle = base64.b64decode(encoded)
        except ValueError as error:
            raise ProtocolError(f"failed to register CUDA shared memory region: '{name}', its handle is not base64: {error}") from None
        self._regions.register_cuda(name, handle, *sizes)
        return json_response(None)

    async def _cuda_unregister(self, request: web.Request) -> web.Response:
        self._regions.unregister_cuda(request.match_info.get("region", ""))
        return json_response(None)

    async def _trace(self, request: web.Request) -> web.Response:
        return json_response(self._traces.document(self._traced_model(request)))

    async def _set_trace(self, request: web.Request) -> web.Response:
        return json_response(self._traces.update(self._traced_model(request), await _document(request)))

    async def _log(self, request: web.Request) -> web.Response:
        return json_response(self._settings.log)

    async def _set_log(self, request: web.Request) -> web.Response:
        return json_response(self._settings.set_log(await _document(request)))

    def _traced_model(self, request: web.Request) -> str:
        name = request.match_info.get("model", "")
        if name and name not in self._repository.names:
            raise ProtocolError(f"Request for unknown model : {name}")
        return name


def _file(key: str, value: object) -> bytes:
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
