"""How much of it clients may take: sizes, counts and times, all of which have an end."""

import dataclasses


@dataclasses.dataclass(frozen=True, slots=True)
class Limits:
    """What a server takes at most."""

    max_body_bytes: int = 2**30
    """Of a request's body over HTTP, and of a message over gRPC, also when unpacked."""
    max_connections: int = 1024
    """At a time, on each port."""
    max_calls: int = 4096
    """Over gRPC at a time, on all connections."""
    max_queue: int = 2**16
    """Requests that one model has at a time, waiting or being answered."""
    head_timeout_s: float = 30.0
    """From a connection's beginning, or from the first byte of a later request, to the end of the request's head."""
    body_timeout_s: float = 300.0
    """From the end of a request's head to the end of its body."""
    write_timeout_s: float = 60.0
    """For a client that reads nothing of its answer."""
    idle_timeout_s: float = 3600.0
    """For a connection between two requests."""
    stop_timeout_s: float = 5.0
    """For requests in flight when the server is told to end."""
