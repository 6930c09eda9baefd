"""What crosses between a fleet and the processes of its workers: plain values, pickled behind their length.

Down go an `WorkerSpec`, then `Begin` and perhaps `Stop`; up come `Ready`, `Logged` intervals, `Progress` once a second, and at
the end `Done`, `Failed` or `Crashed`.
"""

import asyncio
import dataclasses
import pickle
from typing import Any

from perfkit.errors import PerfkitError
from perfkit.load.loop import StopCause
from perfkit.recorder.recording import Interval
from perfkit.workers.point import PointRecording

_LENGTH_BYTES = 8


@dataclasses.dataclass(frozen=True, slots=True)
class Begin:
    """To the worker: begin at that instant of the monotonic clock, which is the same in every process of a machine."""

    at_ns: int


@dataclasses.dataclass(frozen=True, slots=True)
class Stop:
    """To the worker: see `Loop.stop`."""

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
class Logged:
    """From the worker: an interval of its recording, and the earliest start of the window."""

    window_start_ns: int
    interval: Interval


@dataclasses.dataclass(frozen=True, slots=True)
class Done:
    """From the worker: the end."""

    point: PointRecording


@dataclasses.dataclass(frozen=True, slots=True)
class Failed:
    """From the worker: it could not measure."""

    error: PerfkitError


@dataclasses.dataclass(frozen=True, slots=True)
class Crashed:
    """From the worker: a bug, with its traceback."""

    traceback: str


async def read_message(reader: asyncio.StreamReader) -> Any:
    """The next message; raises EOFError where there comes none any more, whole or in part."""
    try:
        length = int.from_bytes(await reader.readexactly(_LENGTH_BYTES), "big")
        return pickle.loads(await reader.readexactly(length))  # noqa: S301 - from our own process, through a pipe of ours
    except (asyncio.IncompleteReadError, ConnectionError):
        raise EOFError from None


def message_bytes(message: object) -> bytes:
    """A message as `read_message` reads it."""
    body = pickle.dumps(message, protocol=pickle.HIGHEST_PROTOCOL)
    return len(body).to_bytes(_LENGTH_BYTES, "big") + body
