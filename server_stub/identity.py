"""What the server says of itself."""

import importlib.metadata

from perfkit.protocol.message import ServerMetadata

# tritonclient's examples insist on this name
_NAME = "triton"
_EXTENSIONS = (
    "classification",
    "sequence",
    "model_repository",
    "model_repository(unload_dependents)",
    "schedule_policy",
    "model_configuration",
    "system_shared_memory",
    "binary_tensor_data",
    "parameters",
    "statistics",
    "trace",
    "logging",
)


def server_metadata(*, is_shared_memory_allowed: bool) -> ServerMetadata:
    """Name, version and the protocol extensions on offer."""
    extensions = tuple(one for one in _EXTENSIONS if is_shared_memory_allowed or one != "system_shared_memory")
    return ServerMetadata(_NAME, importlib.metadata.version("perfkit"), extensions)
