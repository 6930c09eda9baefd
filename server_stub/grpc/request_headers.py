"""The headers of a gRPC request."""

import dataclasses
from collections.abc import Mapping

from perfkit.protocol.grpc_call import parse_timeout
from perfkit.protocol.http2 import Headers

_CONTENT_TYPE = "application/grpc"


@dataclasses.dataclass(frozen=True, slots=True)
class RequestHeaders:
    """The parsed headers of a request. They are shared by requests whose headers are equal."""

    path: str
    timeout_ns: int | None
    encoding: str
    """Of the compressed messages."""
    metadata: Mapping[str, str]
    http_status: int
    """The status of the response: 200, or another for a request that is not a gRPC call."""


def parse_request_headers(headers: Headers) -> RequestHeaders:
    """Parse a request's headers, or its trailers; accepts whatever a client sends."""
    values = dict(headers)
    content_type = values.get("content-type", "")
    http_status = 200
    if ":path" not in values or any(name != name.lower() for name in values):
        http_status = 400
    elif values.get(":method") != "POST":
        http_status = 405
    elif not content_type.startswith(_CONTENT_TYPE) or content_type[len(_CONTENT_TYPE) :][:1] not in ("", "+", ";"):
        http_status = 415
    metadata = {name: value for name, value in values.items() if not name.startswith((":", "grpc-"))}
    timeout = values.get("grpc-timeout")
    return RequestHeaders(
        path=values.get(":path", ""),
        timeout_ns=None if timeout is None else parse_timeout(timeout),
        encoding=values.get("grpc-encoding", "identity"),
        metadata=metadata,
        http_status=http_status,
    )
