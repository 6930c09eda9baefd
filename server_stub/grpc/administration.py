"""Administration over gRPC: loading models, shared memory regions, and trace and log settings."""

from collections.abc import Awaitable, Callable, Mapping
from typing import Any, TypeAlias

from google.protobuf import json_format
from google.protobuf.message import Message

from perfkit.errors import ErrorKind, ProtocolError
from perfkit.protocol import v2_pb2
from server_stub.repository.repository import Repository
from server_stub.settings import Settings
from server_stub.shared_memory.regions import SharedMemoryRegions
from server_stub.tracing.trace_settings import TraceSettings

Method: TypeAlias = Callable[[Any], Awaitable[Message]]
"""Takes the message `NAMERequest` of `v2_pb2`, where NAME is the method's, and returns its `NAMEResponse`."""

_FILE_PREFIX = "file:"


class GrpcAdministration:
    """The administrative methods of the service."""

    def __init__(self, repository: Repository, regions: SharedMemoryRegions, settings: Settings, traces: TraceSettings) -> None:
        self._repository, self._regions, self._settings, self._traces = repository, regions, settings, traces

    def methods(self) -> Mapping[str, Method]:
        """The methods by name."""
        return {
            "RepositoryModelLoad": self._load,
            "RepositoryModelUnload": self._unload,
            "SystemSharedMemoryStatus": self._system_status,
            "SystemSharedMemoryRegister": self._system_register,
            "SystemSharedMemoryUnregister": self._system_unregister,
            "CudaSharedMemoryStatus": self._cuda_status,
            "CudaSharedMemoryRegister": self._cuda_register,
            "CudaSharedMemoryUnregister": self._cuda_unregister,
            "TraceSetting": self._trace,
            "LogSettings": self._log,
        }

    async def _load(self, request: v2_pb2.RepositoryModelLoadRequest) -> Message:
        config, files = None, {}
        for key, value in request.parameters.items():
            if key.startswith(_FILE_PREFIX):
                if value.WhichOneof("parameter_choice") != "bytes_param":
                    raise ProtocolError(f"invalid value type for load parameter '{key}', expected bytes_param.")
                files[key.removeprefix(_FILE_PREFIX)] = value.bytes_param
            elif key != "config":
                raise ProtocolError(f"load parameter '{key}' is not supported: config, and file:PATH are", ErrorKind.UNSUPPORTED)
        if "config" in request.parameters:
            if request.parameters["config"].WhichOneof("parameter_choice") != "string_param":
                raise ProtocolError("invalid value type for load parameter 'config', expected string_param.")
            config = request.parameters["config"].string_param
        await self._repository.load_model(request.model_name, config, files)
        return v2_pb2.RepositoryModelLoadResponse()

    async def _unload(self, request: v2_pb2.RepositoryModelUnloadRequest) -> Message:
        await self._repository.unload_model(request.model_name)
        return v2_pb2.RepositoryModelUnloadResponse()

    async def _system_status(self, request: v2_pb2.SystemSharedMemoryStatusRequest) -> Message:
        return _status(self._regions.status(request.name), v2_pb2.SystemSharedMemoryStatusResponse())

    async def _system_register(self, request: v2_pb2.SystemSharedMemoryRegisterRequest) -> Message:
        self._regions.register(request.name, request.key, request.offset, request.byte_size)
        return v2_pb2.SystemSharedMemoryRegisterResponse()

    async def _system_unregister(self, request: v2_pb2.SystemSharedMemoryUnregisterRequest) -> Message:
        self._regions.unregister(request.name)
        return v2_pb2.SystemSharedMemoryUnregisterResponse()

    async def _cuda_status(self, request: v2_pb2.CudaSharedMemoryStatusRequest) -> Message:
        return _status(self._regions.cuda_status(request.name), v2_pb2.CudaSharedMemoryStatusResponse())

    async def _cuda_register(self, request: v2_pb2.CudaSharedMemoryRegisterRequest) -> Message:
        self._regions.register_cuda(request.name, request.raw_handle, request.device_id, request.byte_size)
        return v2_pb2.CudaSharedMemoryRegisterResponse()

    async def _cuda_unregister(self, request: v2_pb2.CudaSharedMemoryUnregisterRequest) -> Message:
        self._regions.unregister_cuda(request.name)
        return v2_pb2.CudaSharedMemoryUnregisterResponse()

    async def _trace(self, request: v2_pb2.TraceSettingRequest) -> Message:
        if request.model_name and request.model_name not in self._repository.names:
            raise ProtocolError(f"Request for unknown model : {request.model_name}")
        changes: dict[str, Any] = {
            key: list(setting.value) if key == "trace_level" else setting.value[0] if setting.value else None
            for key, setting in request.settings.items()
        }
        if not changes.get("trace_level", True):
            changes["trace_level"] = None  # no values: reset to the default
        message = v2_pb2.TraceSettingResponse()
        for key, value in self._traces.update(request.model_name, changes).items():
            message.settings[key].value.extend(value if isinstance(value, list) else [value])
        return message

    async def _log(self, request: v2_pb2.LogSettingsRequest) -> Message:
        changes = {key: getattr(setting, setting.WhichOneof("parameter_choice") or "", None) for key, setting in request.settings.items()}
        message = v2_pb2.LogSettingsResponse()
        for key, value in self._settings.set_log(changes).items():
            field = "bool_param" if isinstance(value, bool) else "uint32_param" if isinstance(value, int) else "string_param"
            setattr(message.settings[key], field, value)
        return message


def _status(entries: list[dict[str, Any]], message: Message) -> Message:
    return json_format.ParseDict({"regions": {entry["name"]: entry for entry in entries}}, message)
