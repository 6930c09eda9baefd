"""A worker's figures of the last second, for the live view; computed once a second, so that no request costs more."""

import dataclasses
from collections.abc import Collection, Sequence

import numpy as np
import numpy.typing as npt

from perfkit.recorder.series import Instants
from perfkit.transport.base import Outcome, Reply

_MOST_TIMES, _MOST_BATCHES, _MOST_PENDING = 1024, 8, 256


@dataclasses.dataclass(frozen=True, slots=True)
class LiveFigures:
    """One worker's figures of about one second; `replies` and `failed` are totals since the load point's first request."""

    worker: int
    at_ns: int
    replies: int
    failed: int
    in_flight: int
    times_ns: Instants
    """Response times (closed loop: service times) since the previous figures; at most about a thousand of them."""
    delays_ns: Instants
    """Start delays of the same requests; empty in a closed loop."""
    responses: int | None = None
    """Responses to streamed requests since the load point's first request; None in other loads."""
    output_tokens: int | None = None
    """The tokens that ok answers have reported since then; None for an API without tokens, and without any."""
    first_ns: Instants | None = None
    """Times to the first response, or the first event with content, of the streams recorded since the previous figures; None in other loads."""

    @classmethod
    def added(cls, parts: "Sequence[LiveFigures]", in_flight: int) -> "LiveFigures":
        """The figures of a worker from those of the workloads of a mix."""
        times_ns, delays_ns = (np.concatenate([getattr(part, name) for part in parts]) for name in ("times_ns", "delays_ns"))
        replies, failed = sum(part.replies for part in parts), sum(part.failed for part in parts)
        counts = ([count for part in parts if (count := getattr(part, name)) is not None] for name in ("responses", "output_tokens"))
        responses, tokens = (sum(known) if known else None for known in counts)
        first = [part.first_ns for part in parts if part.first_ns is not None]
        first_ns = np.concatenate(first) if first else None
        return cls(parts[0].worker, parts[0].at_ns, replies, failed, in_flight, times_ns, delays_ns, responses, tokens, first_ns)


class RecentReplies:
    """The replies since the last `take`, as references to the recorder's arrays; `timed` has the outcomes whose times count."""

    def __init__(self, *, is_open: bool, timed: Collection[Outcome]) -> None:
        self._is_open, self._timed = is_open, timed
        self._parts: list[tuple[int, Instants, Instants, Instants, npt.NDArray[np.bool_]]] = []
        self._first: list[Instants] = []
        self._counted = self._told = 0
        self._hole: tuple[int, int] | None = None
        """The batch that was being recorded at the last `take`: its first reply's number, and how many replies had been returned."""

    def add(self, intended_ns: Instants, started_ns: Instants, finished_ns: Instants, is_timed: npt.NDArray[np.bool_]) -> None:
        """Adds the arrays of one batch; batches must come in order."""
        self._parts.append((self._counted, intended_ns, started_ns, finished_ns, is_timed))
        self._counted += finished_ns.size

    def add_first(self, batch: Sequence[Reply], began_ns: Instants) -> None:
        """Adds the times to the first response of a batch of streams; of many, those of a sample."""
        chosen = slice(None, None, -(-len(batch) // _MOST_PENDING) or 1)
        pairs = zip(batch[chosen], began_ns[chosen].tolist(), strict=True)
        self._first.append(np.array([reply.responses_ns[0] - began for reply, began in pairs if reply.responses_ns], dtype=np.int64))

    def take_first(self) -> Instants:
        """Returns the times to the first response that were added since the last call."""
        parts, self._first = self._first, []
        return np.concatenate([np.zeros(0, dtype=np.int64), *parts])

    def take(self, pending: Sequence[Reply], recorded: int) -> tuple[Instants, Instants]:
        """Returns times and start delays, in nanoseconds, of the replies since the last call; of many replies, those of a sample.

        `pending` has the replies after the first `recorded` ones. The replies of a batch that is being recorded come with the next call.
        """
        parts, self._parts = self._parts, []
        rows = [np.zeros((3, 0), dtype=np.int64)]
        # a sample of the batches, and of their replies: all of 20,000 replies would take a millisecond
        every = max(-(-(self._counted - parts[0][0]) // _MOST_TIMES), 1) if parts else 1  # batches may be empty
        skipped = min(every, -(-len(parts) // _MOST_BATCHES) or 1)
        for first, intended_ns, started_ns, finished_ns, is_timed in parts[::skipped]:
            told = self._hole[1] if self._hole is not None and self._hole[0] == first else max(self._told - first, 0)
            rest = slice(told, None, -(-every // skipped))
            rows.append(np.stack((intended_ns[rest], started_ns[rest], finished_ns[rest]))[:, is_timed[rest]])
        self._told = max(self._told, self._counted)
        if self._counted == recorded:
            self._hole = None
        elif self._hole is None or self._hole[0] != self._counted:
            self._hole = self._counted, self._told - self._counted
        untold = pending[max(self._told - recorded, 0) :]
        new = [reply for reply in untold[:: -(-len(untold) // _MOST_PENDING) or 1] if reply.outcome in self._timed]
        began = [reply.intended_ns for reply in new] if self._is_open else [reply.started_ns for reply in new]
        rows.append(np.array((began, [reply.started_ns for reply in new], [reply.finished_ns for reply in new]), dtype=np.int64))
        self._told = recorded + len(pending)
        intended, started, finished = np.concatenate(rows, axis=1)
        return finished - intended, started - intended if self._is_open else intended[:0]
