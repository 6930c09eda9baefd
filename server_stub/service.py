"""What the front ends serve, and the administrative calls that have the same answer over each of them."""

import dataclasses
import importlib.metadata
from collections.abc import Callable, Mapping
from typing import Any

from perfkit.errors import ErrorKind, ProtocolError
from perfkit.protocol import rest_models
from server_stub.devices.host_memory import HostMemory
from server_stub.log import Log
from server_stub.options import Limits
from server_stub.receiving import ReceivingThreads
from server_stub.repository.repository import Repository
from server_stub.shared_memory.regions import SharedMemoryRegions
from server_stub.tracing.tracer import Tracer

_NAME = "triton"  # tritonclient's examples require this name
_EXTENSIONS = (
    "classification", "sequence", "model_repository", "model_repository(unload_dependents)", "schedule_policy", "model_configuration",
    "system_shared_memory", "binary_tensor_data", "parameters", "statistics", "trace", "logging",
)  # fmt: skip
_FILE_PREFIX = "file:"


@dataclasses.dataclass(frozen=True)
class Service:
    """The models, regions and settings of a server, and what its front ends share. Documents are JSON, and protobuf's `ParseDict` accepts them."""

    repository: Repository
    regions: SharedMemoryRegions
    log: Log
    limits: Limits = dataclasses.field(default_factory=Limits)
    tracer: Tracer = dataclasses.field(default_factory=Tracer)
    memory: HostMemory = dataclasses.field(default_factory=HostMemory)
    """What requests are received into."""
    threads: ReceivingThreads = dataclasses.field(default_factory=lambda: ReceivingThreads(0))

    def metadata(self) -> dict[str, Any]:
        """The server's name, version and protocol extensions."""
        extensions = [extension for extension in _EXTENSIONS if self.regions.is_allowed or extension != "system_shared_memory"]
        return {"name": _NAME, "version": importlib.metadata.version("perfkit"), "extensions": extensions}

    def model_metadata(self, name: str, version: str) -> dict[str, Any]:
        """The metadata of a model. Raises ProtocolError if there is none."""
        return rest_models.encode_model_metadata(self.repository.find(name, version).definition.metadata())

    async def load(
        self, name: str, parameters: Mapping[str, Any], read_config: Callable[[str, Any], str], read_file: Callable[[str, Any], bytes]
    ) -> None:
        """Load a model. The functions read a parameter, given its key and its value. Raises ProtocolError."""
        config, files = None, {}
        for key, value in parameters.items():
            if key.startswith(_FILE_PREFIX):
                files[key.removeprefix(_FILE_PREFIX)] = read_file(key, value)
            elif key != "config":
                raise ProtocolError(f"load parameter '{key}' is not supported: config, and file:PATH are", ErrorKind.UNSUPPORTED)
            elif value is not None:
                config = read_config(key, value)
        await self.repository.load_model(name, config, files)

    def trace_settings(self, model: str, changes: Mapping[str, Any]) -> dict[str, Any]:
        """Change the trace settings of a model, or without a name the server's, and return all. Raises ProtocolError."""
        if model and model not in self.repository.names:
            raise ProtocolError(f"Request for unknown model : {model}")
        return self.tracer.settings.update(model, changes)
