"""What the server says of itself."""

import importlib.metadata

from perfkit.protocol.message import ServerMetadata

# tritonclient's examples insist on this name
_NAME = "triton"
_EXTENSIONS = ("classification", "sequence", "schedule_policy", "model_configuration", "binary_tensor_data", "parameters", "statistics")


def server_metadata() -> ServerMetadata:
    """Name, version and the protocol extensions on offer."""
    return ServerMetadata(_NAME, importlib.metadata.version("perfkit"), _EXTENSIONS)
