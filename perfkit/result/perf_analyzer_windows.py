"""The measured time of a profile export's load point, whose list of boundaries does not say which spans are windows."""

import dataclasses
from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from perfkit.units import NS_PER_S, format_duration_ns, format_rate_per_s

_Instants = npt.NDArray[np.int64]
_IDLE_SHARE, _IDLE_REQUESTS = 0.05, 3


@dataclasses.dataclass(frozen=True, slots=True)
class Windows:
    """Spans that do not overlap, in their order; windows that touch are one span."""

    starts_ns: _Instants
    ends_ns: _Instants
    note: str = ""
    """What was left out, as the end of a sentence; empty for nothing."""

    @property
    def length_ns(self) -> int:
        """Of all spans together."""
        return int((self.ends_ns - self.starts_ns).sum())

    def count_inside(self, instants_ns: _Instants) -> int:
        """How many instants lie in a span."""
        span = np.searchsorted(self.starts_ns, instants_ns, side="right") - 1
        return int(((span >= 0) & (instants_ns <= self.ends_ns[span])).sum())

    def positions_ns(self, instants_ns: _Instants) -> _Instants:
        """The measured time before each instant."""
        lengths_ns = self.ends_ns - self.starts_ns
        span = np.maximum(np.searchsorted(self.starts_ns, instants_ns, side="right") - 1, 0)
        before_ns = np.cumsum(lengths_ns) - lengths_ns
        positions_ns: _Instants = before_ns[span] + np.clip(instants_ns - self.starts_ns[span], 0, lengths_ns[span])
        return positions_ns


def measured_windows(boundaries_ns: Sequence[int], started_ns: _Instants, last_ns: _Instants) -> Windows:
    """The windows of requests that began and were answered then; without usable boundaries one from the first request to the last response.

    Two kinds of time in which nothing was measured are left out. With `--request-count` perf_analyzer's only window ends up to a second
    after the last response, when it comes to look. And where windows do not touch, a start is listed between two ends: every second span is
    such a gap if no request was in flight in any of them, although three or more would have been expected.
    """
    latest_ns = int(last_ns.max())
    if len(boundaries_ns) < 2 or boundaries_ns[0] >= min(boundaries_ns[-1], latest_ns):
        earliest_ns = int(started_ns.min())
        return _one(earliest_ns, max(latest_ns, earliest_ns + 1))
    start_ns, end_ns = boundaries_ns[0], boundaries_ns[-1]
    if len(boundaries_ns) == 2:
        idle_ns, apart_ns = end_ns - latest_ns, (latest_ns - int(last_ns.min())) / max(last_ns.size - 1, 1)
        if idle_ns > max(_IDLE_SHARE * (end_ns - start_ns), _IDLE_REQUESTS * apart_ns):
            told, idle = format_rate_per_s(last_ns.size * NS_PER_S / (end_ns - start_ns)), format_duration_ns(idle_ns)
            note = f"the throughput is that until the last response: perf_analyzer's window goes on for {idle} after it, as with --request-count"
            return _one(start_ns, latest_ns, f"{note}, so that it reported {told}")
    elif len(boundaries_ns) % 2 == 0:
        edges_ns = np.array(boundaries_ns, dtype=np.int64)
        apart = Windows(edges_ns[::2], edges_ns[1::2])
        gaps_ns = apart.starts_ns[1:] - apart.ends_ns[:-1]
        expected = last_ns.size * int(gaps_ns.sum()) / max(apart.length_ns, 1)
        # a request in flight in a gap began before its end and ended after its start
        begun = np.searchsorted(np.sort(started_ns), apart.starts_ns[1:])
        answered = np.searchsorted(np.sort(last_ns), apart.ends_ns[:-1], side="right")
        if apart.length_ns and expected >= _IDLE_REQUESTS and bool((begun == answered).all()):
            idle = format_duration_ns(int(gaps_ns.sum()))
            return dataclasses.replace(apart, note=f"the windows do not touch, and the {idle} between them are left out")
    return _one(start_ns, end_ns)


def _one(start_ns: int, end_ns: int, note: str = "") -> Windows:
    return Windows(np.array([start_ns], dtype=np.int64), np.array([end_ns], dtype=np.int64), note)
