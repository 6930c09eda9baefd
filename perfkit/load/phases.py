"""When a load point warms up, is measured and drains."""

import dataclasses


@dataclasses.dataclass(frozen=True, slots=True)
class Phases:
    """The phases of one load point as instants of the monotonic clock.

    Requests belong to the window if they start in `[window_start_ns, window_end_ns)`; what starts before is warm-up.
    With `requests` the window ends with the last of that many, and `window_end_ns` is None.
    """

    window_start_ns: int
    window_end_ns: int | None
    requests: int | None
    drain_ns: int

    @classmethod
    def plan(cls, now_ns: int, *, warmup_ns: int, window_ns: int | None, requests: int | None, drain_ns: int) -> "Phases":
        """Phases that begin now."""
        start_ns = now_ns + warmup_ns
        return cls(start_ns, None if window_ns is None else start_ns + window_ns, requests, drain_ns)
