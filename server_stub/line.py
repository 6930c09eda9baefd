"""Requests that wait for an instance of their model, whatever the order in which they get one. Pure: the clock is the caller's."""

import collections
import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple, Protocol

from perfkit.errors import ErrorKind, ProtocolError
from perfkit.protocol.message import InferRequest


@dataclasses.dataclass(slots=True, eq=False)
class Waiting:
    """A request in line; `context` is whatever the one who put it there wants back."""

    request: InferRequest
    batch_size: int
    enqueued_ns: int
    context: Any = None
    controls: Mapping[str, Any] = dataclasses.field(default_factory=dict)
    """The values of a sequence's control inputs, by input."""
    deadline_ns: int | None = None
    place: Any = None
    """Where it stands, for the line alone; `sequence` likewise."""
    sequence: Any = None
    is_delayed: bool = False
    """Whether it waited longer than it should have, and now does so behind all others."""
    is_gone: bool = False
    """Whether its client has left: it is passed over."""


class Taken(NamedTuple):
    """What is to be executed now, who waited too long, and when to ask again although nothing new has come."""

    batch: Sequence[Waiting] = ()
    rejected: Sequence[Waiting] = ()
    wake_ns: int | None = None


class Line(Protocol):
    """An order of service. All instants are the same clock's, in nanoseconds."""

    def add(self, waiting: Waiting, now_ns: int) -> None:
        """Puts a request in line; raises ProtocolError where that is full, or does not take it."""
        ...

    def take(self, now_ns: int, instance: int) -> Taken:
        """The next batch for an instance that is idle; an empty one where there is none yet."""
        ...

    def discard(self, waiting: Waiting) -> None:
        """Passes over a request that is still in line."""
        ...

    def executed(self, batch: Sequence[Waiting], now_ns: int) -> None:
        """Hears that a batch it gave is done with."""
        ...

    def __len__(self) -> int:
        """How many are in line."""
        ...


class Fifo:
    """First come first served, one request at a time."""

    def __init__(self) -> None:
        self._waiting: collections.deque[Waiting] = collections.deque()
        self._count = 0

    def add(self, waiting: Waiting, now_ns: int) -> None:
        """See `Line.add`."""
        self._waiting.append(waiting)
        self._count += 1

    def take(self, now_ns: int, instance: int) -> Taken:
        """See `Line.take`."""
        while self._waiting:
            waiting = self._waiting.popleft()
            if not waiting.is_gone:
                self._count -= 1
                return Taken((waiting,))
        return Taken()

    def discard(self, waiting: Waiting) -> None:
        """See `Line.discard`."""
        waiting.is_gone = True
        self._count -= 1

    def executed(self, batch: Sequence[Waiting], now_ns: int) -> None:
        """See `Line.executed`; here nobody waited for that."""

    def __len__(self) -> int:
        return self._count


def refusal(request: InferRequest, text: str) -> ProtocolError:
    """What a full line, or one that was waited in too long, answers."""
    return ProtocolError(f"[request id: {request.id or '<id_unknown>'}] {text}", ErrorKind.UNAVAILABLE)
