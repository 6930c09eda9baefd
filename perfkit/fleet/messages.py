"""Messages between the driver of a fleet and a machine of it.

A machine says `Hello`, and the driver `Accepted` or `Refused`. The driver sends `Ping`s all the time, `CheckTarget` before the first load
point, `StartWorkers` for each load point, `ToWorkers` with the messages of `perfkit.workers.messages`, `ReleaseWorkers` after it, and `RunEnds`.
The machine answers with `Pong`, `TargetChecked`, and `FromWorkers`. Its workers answer as one: their recordings and intervals are merged there.
"""

import dataclasses

from perfkit.calibration.model import Calibration
from perfkit.workers.worker_spec import WorkerSpec


@dataclasses.dataclass(frozen=True, slots=True)
class Hello:
    """A machine joins: what it is, and what it can do."""

    name: str
    version: str
    """Of perfkit."""
    cpus: tuple[int, ...]
    """The CPUs that its processes may use."""
    open_files: int
    """The most files and sockets that one of its processes may open."""
    ports: int | None
    """Local ports for connections to one address; None if unknown."""
    calibration: Calibration | None


@dataclasses.dataclass(frozen=True, slots=True)
class Accepted:
    """The machine belongs to the fleet, under this name."""

    name: str


@dataclasses.dataclass(frozen=True, slots=True)
class Refused:
    """The machine cannot belong to the fleet."""

    reason: str


@dataclasses.dataclass(frozen=True, slots=True)
class Ping:
    """To the machine: read your clock."""

    number: int


@dataclasses.dataclass(frozen=True, slots=True)
class Pong:
    """From the machine: its monotonic clock when it read the `Ping`."""

    number: int
    at_ns: int


@dataclasses.dataclass(frozen=True, slots=True)
class CheckTarget:
    """To the machine: connect to the targets of the load, once each."""

    spec: WorkerSpec


@dataclasses.dataclass(frozen=True, slots=True)
class TargetChecked:
    """From the machine: how long the slowest connection took, or why one failed."""

    connect_ns: int = 0
    fault: str = ""


@dataclasses.dataclass(frozen=True, slots=True)
class StartWorkers:
    """To the machine: start worker processes; `workers` are their numbers among the `of` workers that share the load."""

    id: int
    """Names these workers in the messages that follow; unique within the run."""
    spec: WorkerSpec
    workers: tuple[int, ...]
    of: int


@dataclasses.dataclass(frozen=True, slots=True)
class ToWorkers:
    """To the machine: pass this message on to its workers; None ends them at once."""

    id: int
    message: object | None


@dataclasses.dataclass(frozen=True, slots=True)
class FromWorkers:
    """From the machine: messages of its workers together, in their order."""

    id: int
    messages: tuple[object, ...]


@dataclasses.dataclass(frozen=True, slots=True)
class WorkersEnded:
    """From the machine, as the workers' last message: how they ended without a recording."""

    how: str


@dataclasses.dataclass(frozen=True, slots=True)
class ReleaseWorkers:
    """To the machine: the load point is over; end what is left of its workers."""

    id: int


@dataclasses.dataclass(frozen=True, slots=True)
class RunEnds:
    """To the machine: the run is over."""
