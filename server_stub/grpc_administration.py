"""What the server is told over gRPC beside inference: models to load, shared memory regions, trace and log settings."""

from collections.abc import Awaitable, Callable, Mapping
from typing import Any, TypeAlias

from perfkit.errors import ErrorKind, ProtocolError
from perfkit.protocol import v2_pb2
from server_stub.repository import Repository
from server_stub.settings import Settings
from server_stub.shared_memory import Regions

Method: TypeAlias = Callable[[bytes], Awaitable[bytes]]


_FILE_PREFIX = "file:"


class GrpcAdministration:
    """The methods, by the names of their calls."""

    def __init__(self, repository: Repository, regions: Regions, settings: Settings) -> None:
        self._repository, self._regions, self._settings = repository, regions, settings

    def methods(self) -> Mapping[str, Method]:
        """What a service adds."""
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
        asked = v2_pb2.RepositoryModelLoadRequest.FromString(encoded)
        config, files = None, {}
        for key, value in asked.parameters.items():
            if key.startswith(_FILE_PREFIX):
                if value.WhichOneof("parameter_choice") != "bytes_param":
                    raise ProtocolError(f"invalid value type for load parameter '{key}', expected bytes_param.")
                files[key.removeprefix(_FILE_PREFIX)] = value.bytes_param
            elif key != "config":
                raise ProtocolError(f"load parameter '{key}' is not supported: config, and file:PATH are", ErrorKind.UNSUPPORTED)
        if "config" in asked.parameters:
            if asked.parameters["config"].WhichOneof("parameter_choice") != "string_param":
                raise ProtocolError("invalid value type for load parameter 'config', expected string_param.")
            config = asked.parameters["config"].string_param
        await self._repository.load_model(asked.model_name, config, files)
        return b""

    async def _unload(self, encoded: bytes) -> bytes:
        await self._repository.unload_model(v2_pb2.RepositoryModelUnloadRequest.FromString(encoded).model_name)
        return b""

    async def _system_status(self, encoded: bytes) -> bytes:
        asked = v2_pb2.SystemSharedMemoryStatusRequest.FromString(encoded)
        message = v2_pb2.SystemSharedMemoryStatusResponse()
        for one in self._regions.status(asked.name):
            region = message.regions[one["name"]]
            region.name, region.key, region.offset, region.byte_size = one["name"], one["key"], one["offset"], one["byte_size"]
        return message.SerializeToString()

    async def _system_register(self, encoded: bytes) -> bytes:
        asked = v2_pb2.SystemSharedMemoryRegisterRequest.FromString(encoded)
        self._regions.register(asked.name, asked.key, asked.offset, asked.byte_size)
        return b""

    async def _system_unregister(self, encoded: bytes) -> bytes:
        self._regions.unregister(v2_pb2.SystemSharedMemoryUnregisterRequest.FromString(encoded).name)
        return b""

    async def _cuda_status(self, encoded: bytes) -> bytes:
        asked = v2_pb2.CudaSharedMemoryStatusRequest.FromString(encoded)
        message = v2_pb2.CudaSharedMemoryStatusResponse()
        for one in self._regions.cuda_status(asked.name):
            region = message.regions[one["name"]]
            region.name, region.device_id, region.byte_size = one["name"], one["device_id"], one["byte_size"]
        return message.SerializeToString()

    async def _cuda_register(self, encoded: bytes) -> bytes:
        asked = v2_pb2.CudaSharedMemoryRegisterRequest.FromString(encoded)
        self._regions.register_cuda(asked.name, asked.raw_handle, asked.device_id, asked.byte_size)
        return b""

    async def _cuda_unregister(self, encoded: bytes) -> bytes:
        self._regions.unregister_cuda(v2_pb2.CudaSharedMemoryUnregisterRequest.FromString(encoded).name)
        return b""

    async def _trace(self, encoded: bytes) -> bytes:
        asked = v2_pb2.TraceSettingRequest.FromString(encoded)
        if asked.model_name and asked.model_name not in self._repository.names:
            raise ProtocolError(f"Request for unknown model : {asked.model_name}")
        given: dict[str, Any] = {
            key: list(one.value) if key == "trace_level" else one.value[0] if one.value else None for key, one in asked.settings.items()
        }
        if not given.get("trace_level", True):
            given["trace_level"] = None  # without values: what holds otherwise
        message = v2_pb2.TraceSettingResponse()
        for key, value in self._settings.set_trace(asked.model_name, given).items():
            message.settings[key].value.extend(value if isinstance(value, list) else [value])
        return message.SerializeToString()

    async def _log(self, encoded: bytes) -> bytes:
        asked = v2_pb2.LogSettingsRequest.FromString(encoded)
        given = {key: getattr(one, one.WhichOneof("parameter_choice") or "", None) for key, one in asked.settings.items()}
        message = v2_pb2.LogSettingsResponse()
        for key, value in self._settings.set_log(given).items():
            field = "bool_param" if isinstance(value, bool) else "uint32_param" if isinstance(value, int) else "string_param"
            setattr(message.settings[key], field, value)
        return message.SerializeToString()
