"""Messages between perfkit and its worker processes.

To the worker, for each load point: a `WorkerSpec`, then `Begin`, and `Stop` if the point is ended early. From the worker: `Ready`; once a second
`Progress`, a `Piece` of its recording and, for a live view, `LiveFigures`; in a cold start a `Replied` for each request; and finally the last
piece, the PerfkitError that prevented the measurement, or `Crashed`. Workers that answer as one also send `PartLost`, and `Stop`
when one of them has stopped for a reason that holds for all.
"""

import dataclasses

from perfkit.load.loop import StopCause
from perfkit.transport.base import Outcome
from perfkit.workers.point_recording import PointRecording


@dataclasses.dataclass(frozen=True, slots=True)
class Begin:
    """To the worker: begin at that instant of the monotonic clock, which all processes of a machine share."""

    at_ns: int


@dataclasses.dataclass(frozen=True, slots=True)
class Stop:
    """To the worker, and from several that answer as one: see `Loop.stop`."""

    reason: str
    cause: StopCause
    drain: bool


@dataclasses.dataclass(frozen=True, slots=True)
class Ready:
    """From the worker: its connections are open."""


@dataclasses.dataclass(frozen=True, slots=True)
class Progress:
    """From the worker, once a second: it is alive."""


@dataclasses.dataclass(frozen=True, slots=True)
class Replied:
    """From the worker of a cold start: a request has ended."""

    outcome: Outcome
    started_ns: int
    finished_ns: int


@dataclasses.dataclass(frozen=True, slots=True)
class Piece:
    """From the worker: the next piece of its recording; with those before, it holds what a load that ended at `at_ns` would have."""

    at_ns: int
    """Whole seconds after the window's start; the end of the recording for the last piece."""
    point: PointRecording
    is_last: bool = False


@dataclasses.dataclass(frozen=True, slots=True)
class PartLost:
    """From workers that answer as one: one of them is lost; what it had sent counts."""

    reason: str


@dataclasses.dataclass(frozen=True, slots=True)
class Crashed:
    """From the worker: a bug, with its traceback."""

    traceback: str
