"""A worker's figures of the last second, as they are sent to the live view."""

import dataclasses
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from perfkit.recorder.series import Instants


@dataclasses.dataclass(frozen=True, slots=True)
class LiveFigures:
    """One worker's figures of about one second; `replies` and `failed` are totals since the load point's first request."""

    worker: int
    at_ns: int
    replies: int
    failed: int
    in_flight: int
    times_ns: "Instants"
    """Response times (closed loop: service times) since the previous figures; at most about a thousand of them."""
    delays_ns: "Instants"
    """Start delays of the same requests; empty in a closed loop."""
    responses: int | None = None
    """Responses to streamed requests since the load point's first request; None in other loads."""
    output_tokens: int | None = None
    """The tokens that ok answers have reported since then; None for an API without tokens, and without any."""
    first_ns: "Instants | None" = None
    """Times to the first response, or the first event with content, of the streams recorded since the previous figures; None in other loads."""
