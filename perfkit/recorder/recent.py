"""What a worker did in the last second, for the live view: taken once a second, so that a request costs nothing more."""

import dataclasses
from collections.abc import Collection, Sequence

import numpy as np

from perfkit.recorder.series import Instants
from perfkit.transport.base import Outcome, Reply

_MOST_TIMES = 4096


@dataclasses.dataclass(frozen=True, slots=True)
class LiveFigures:
    """One worker's figures of about a second; the counts are totals since the load point's first request."""

    worker: int
    at_ns: int
    replies: int
    failed: int
    in_flight: int
    times_ns: Instants
    """Response times (closed loop: service times) since the previous figures; at most some thousand of them."""
    delays_ns: Instants
    """Start delays of the same requests; empty in a closed loop."""


class RecentReplies:
    """The replies since the last `take`. It holds references to the recorder's own arrays; `timed` are the outcomes whose times count."""

    def __init__(self, *, is_open: bool, timed: Collection[Outcome]) -> None:
        self._is_open, self._timed = is_open, timed
        self._parts: list[tuple[int, Instants, Instants, Instants, Instants]] = []
        self._counted = self._told = 0

    def add(self, intended_ns: Instants, started_ns: Instants, finished_ns: Instants, is_timed: Instants) -> None:
        """Takes the arrays of one batch, in the order of the batches."""
        self._parts.append((self._counted, intended_ns, started_ns, finished_ns, is_timed))
        self._counted += finished_ns.size

    def take(self, pending: Sequence[Reply], recorded: int) -> tuple[Instants, Instants]:
        """Times and start delays of the replies since the last call; `pending` are those after the first `recorded` ones.

        While a batch is being recorded between the two, the pending replies wait for the next call.
        """
        parts, self._parts = self._parts, []
        rows = [np.zeros((3, 0), dtype=np.int64)]
        for first, intended_ns, started_ns, finished_ns, is_timed in parts:
            rest = slice(max(self._told - first, 0), None)
            rows.append(np.stack((intended_ns[rest], started_ns[rest], finished_ns[rest]))[:, is_timed[rest]])
        self._told = max(self._told, self._counted)
        if self._counted == recorded:
            new = [reply for reply in pending[self._told - recorded :] if reply.outcome in self._timed]
            instants = [(reply.intended_ns if self._is_open else reply.started_ns, reply.started_ns, reply.finished_ns) for reply in new]
            rows.append(np.array(instants, dtype=np.int64).reshape(-1, 3).T)
            self._told = recorded + len(pending)
        intended, started, finished = np.concatenate(rows, axis=1)
        every = -(-finished.size // _MOST_TIMES) or 1
        return (finished - intended)[::every], (started - intended)[::every] if self._is_open else intended[:0]
