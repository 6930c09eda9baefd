"""The service's methods over gRPC besides inference, each as a function from its request to the document of its response."""

from collections.abc import Callable, Mapping
from typing import Any, TypeAlias

from perfkit.errors import ProtocolError
from server_stub.service import Service

Method: TypeAlias = Callable[[Any], Any]
"""Takes the message `NAMERequest` of `v2_pb2`, where NAME is the method's. Returns or awaits `NAMEResponse` as a document; None if it is empty."""


def administrative_methods(service: Service) -> Mapping[str, Method]:
    """The methods by name."""
    repository, regions, settings = service.repository, service.regions, service.log.settings
    return {
        "ServerLive": lambda _: {"live": True},
        "ServerReady": lambda _: {"ready": repository.is_ready},
        "ServerMetadata": lambda _: service.metadata(),
        "ModelReady": lambda request: {"ready": repository.is_model_ready(request.name, request.version)},
        "ModelMetadata": lambda request: service.model_metadata(request.name, request.version),
        "ModelConfig": lambda request: {"config": repository.find(request.name, request.version).definition.config()},
        "ModelStatistics": lambda request: repository.statistics(request.name, request.version),
        "RepositoryIndex": lambda request: {"models": repository.index(ready=request.ready)},
        "RepositoryModelLoad": lambda request: service.load(
            request.model_name, request.parameters, _parameter_reader("string_param"), _parameter_reader("bytes_param")
        ),
        "RepositoryModelUnload": lambda request: repository.unload_model(request.model_name),
        "SystemSharedMemoryStatus": lambda request: _by_name(regions.status(request.name)),
        "SystemSharedMemoryRegister": lambda request: regions.register(request.name, request.key, request.offset, request.byte_size),
        "SystemSharedMemoryUnregister": lambda request: regions.unregister(request.name),
        "CudaSharedMemoryStatus": lambda request: _by_name(regions.status(request.name, is_cuda=True)),
        "CudaSharedMemoryRegister": lambda request: regions.register_cuda(
            request.name, request.raw_handle, request.device_id, request.byte_size
        ),
        "CudaSharedMemoryUnregister": lambda request: regions.unregister(request.name, is_cuda=True),
        "TraceSetting": lambda request: _trace_document(service.trace_settings(request.model_name, _trace_changes(request.settings))),
        "LogSettings": lambda request: _log_document(settings.set_log({key: _value(value) for key, value in request.settings.items()})),
    }


def _parameter_reader(kind: str) -> Callable[[str, Any], Any]:
    def read(key: str, parameter: Any) -> Any:
        if parameter.WhichOneof("parameter_choice") != kind:
            raise ProtocolError(f"invalid value type for load parameter '{key}', expected {kind}.")
        return getattr(parameter, kind)

    return read


def _by_name(regions: list[dict[str, Any]]) -> dict[str, Any]:
    return {"regions": {region["name"]: region for region in regions}}


def _trace_changes(settings: Mapping[str, Any]) -> dict[str, Any]:
    """The changes of `TraceSettings.update`. No values reset a setting to its default."""
    values = {key: list(setting.value) or None for key, setting in settings.items()}
    return {key: value if value is None or key == "trace_level" else value[0] for key, value in values.items()}


def _trace_document(settings: Mapping[str, Any]) -> dict[str, Any]:
    return {"settings": {key: {"value": value if isinstance(value, list) else [value]} for key, value in settings.items()}}


def _value(setting: Any) -> Any:
    return getattr(setting, setting.WhichOneof("parameter_choice") or "", None)


def _log_document(settings: Mapping[str, Any]) -> dict[str, Any]:
    fields = {bool: "bool_param", int: "uint32_param", str: "string_param"}
    return {"settings": {key: {fields[type(value)]: value} for key, value in settings.items()}}
