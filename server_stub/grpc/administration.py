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

Method: TypeAlias = Callable[[bytes], Awaitable[bytes]]

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

    async def _load(self, encoded: bytes) -> bytes:
        request = v2_pb2.RepositoryModelLoadRequest.FromString(encoded)
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
        return b""

    async def _unload(self, encoded: bytes) -> bytes:
        await self._repository.unload_model(v2_pb2.RepositoryModelUnloadRequest.FromString(encoded).model_name)
        return b""

    async def _system_status(self, encoded: bytes) -> bytes:
        entries = self._regions.status(v2_pb2.SystemSharedMemoryStatusRequest.FromString(encoded).name)
        return _encoded({"regions": {entry["name"]: entry for entry in entries}}, v2_pb2.SystemSharedMemoryStatusResponse())

    async def _system_register(self, encoded: bytes) -> bytes:
        request = v2_pb2.SystemSharedMemoryRegisterRequest.FromString(encoded)
        self._regions.register(request.name, request.key, request.offset, request.byte_size)
        return b""

    async def _system_unregister(self, encoded: bytes) -> bytes:
        self._regions.unregister(v2_pb2.SystemSharedMemoryUnregisterRequest.FromString(encoded).name)
        return b""

    async def _cuda_status(self, encoded: bytes) -> bytes:
        entries = self._regions.cuda_status(v2_pb2.CudaSharedMemoryStatusRequest.FromString(encoded).name)
        return _encoded({"regions": {entry["name"]: entry for entry in entries}}, v2_pb2.CudaSharedMemoryStatusResponse())

    async def _cuda_register(self, encoded: bytes) -> bytes:
        request = v2_pb2.CudaSharedMemoryRegisterRequest.FromString(encoded)
        self._regions.register_cuda(request.name, request.raw_handle, request.device_id, request.byte_size)
        return b""

    async def _cuda_unregister(self, encoded: bytes) -> bytes:
        self._regions.unregister_cuda(v2_pb2.CudaSharedMemoryUnregisterRequest.FromString(encoded).name)
        return b""

    async def _trace(self, encoded: bytes) -> bytes:
        request = v2_pb2.TraceSettingRequest.FromString(encoded)
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
        return message.SerializeToString()

    async def _log(self, encoded: bytes) -> bytes:
        request = v2_pb2.LogSettingsRequest.FromString(encoded)
        changes = {key: getattr(setting, setting.WhichOneof("parameter_choice") or "", None) for key, setting in request.settings.items()}
        message = v2_pb2.LogSettingsResponse()
        for key, value in self._settings.set_log(changes).items():
            field = "bool_param" if isinstance(value, bool) else "uint32_param" if isinstance(value, int) else "string_param"
            setattr(message.settings[key], field, value)
        return message.SerializeToString()


def _encoded(document: dict[str, Any], message: Message) -> bytes:
    json_format.ParseDict(document, message)
    return message.SerializeToString()
