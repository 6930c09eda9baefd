"""What a server's spans say of one request."""

import dataclasses


@dataclasses.dataclass(frozen=True, slots=True)
class ServerTimes:
    """When a server had one request, and for how long each of its stages: instants of its Unix time and durations, in nanoseconds.

    A server that reports a single span of a request gives `received_ns` and `answered_ns` alone. Of an ensemble, the durations are the
    sums over its composing models.
    """

    received_ns: int
    """The start of the outer span."""
    answered_ns: int
    """The end of the outer span."""
    work_began_ns: int | None = None
    """The first entry into a queue; None if the server does not report it, as are the next."""
    work_ended_ns: int | None = None
    """The last end of a computation."""
    queue_ns: int | None = None
    compute_input_ns: int | None = None
    compute_infer_ns: int | None = None
    compute_output_ns: int | None = None
