"""When a load point warms up, is measured and drains."""

import dataclasses


@dataclasses.dataclass(frozen=True, slots=True)
class Phases:
    """The phases of one load point as instants of the monotonic clock.

    Load is sent from `start_ns` on. Requests belong to the window if they start, or are meant to, in `[window_start_ns, window_end_ns)`; what starts before is warm-up.
    With `requests` the window ends with the last of that many, and `window_end_ns` is None. With `finds_warm_up` the window
    may turn out to begin later, where what was recorded shows a longer warm-up.
    """

    start_ns: int
    window_start_ns: int
    window_end_ns: int | None
    requests: int | None
    drain_ns: int
    finds_warm_up: bool = False

    @classmethod
    def plan(
        cls, now_ns: int, *, warmup_ns: int, window_ns: int | None, requests: int | None, drain_ns: int, finds_warm_up: bool = False
    ) -> "Phases":
        """Phases that begin now."""
        start_ns = now_ns + warmup_ns
        return cls(now_ns, start_ns, None if window_ns is None else start_ns + window_ns, requests, drain_ns, finds_warm_up)
