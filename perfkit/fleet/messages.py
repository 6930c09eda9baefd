"""Messages between the driver of a fleet and a machine of it.

A machine says `Hello`, and the driver `Accepted` or `Refused`. The driver sends `Ping`s all the time, `CheckTarget` before the first load
point, `StartWorkers` for each load point, `ToWorkers` with the messages of `perfkit.workers.messages`, `ReleaseWorkers` after it, and `RunEnds`.
The machine answers with `Pong`, `TargetChecked`, and `FromWorkers`. Its workers answer as one: the pieces of their recordings are added up there.
`Progress` of the machine itself says that a long message is coming in.
"""

import dataclasses
import json
import pathlib
from typing import TypeAlias

from perfkit.calibration.model import Calibration, parse_calibration
from perfkit.errors import (
    MeasurementError,
    ModelMismatchError,
    PerfkitError,
    ProtocolError,
    ScenarioError,
    StorageError,
    TargetError,
    UsageError,
)
from perfkit.fleet.dask_machine import DaskTask
from perfkit.process.encoding import Encoding, StandIn
from perfkit.recorder.recent import LiveFigures
from perfkit.workers.messages import Begin, Crashed, PartLost, Piece, Progress, Ready, RenewedAddresses, StopOrder, WorkerSpec
from perfkit.workers.point_recording import STAND_INS
from perfkit.workload.shared_tensors import OutputSlots


@dataclasses.dataclass(frozen=True, slots=True)
class Hello:
    """A machine joins: what it is, and what it can do."""

    name: str
    version: str
    """The version of perfkit."""
    cpus: tuple[int, ...]
    """The CPUs that its processes may use."""
    open_files: int
    """The most files and sockets that one of its processes may open."""
    ports: int | None
    """Local ports for connections to one address; None if unknown."""
    calibration: Calibration | None
    task: DaskTask | None = None
    """None for a machine that was started by hand."""


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
    message: Begin | RenewedAddresses | StopOrder | None


@dataclasses.dataclass(frozen=True, slots=True)
class WorkersEnded:
    """From the machine, as the workers' last message: how they ended without a recording."""

    how: str


OfWorkers: TypeAlias = Ready | Progress | LiveFigures | Piece | PartLost | StopOrder | PerfkitError | Crashed | WorkersEnded
"""What a machine passes on of its workers."""


@dataclasses.dataclass(frozen=True, slots=True)
class FromWorkers:
    """From the machine: messages of its workers together, in their order."""

    id: int
    messages: tuple[OfWorkers, ...]


@dataclasses.dataclass(frozen=True, slots=True)
class ReleaseWorkers:
    """To the machine: the load point is over; end what is left of its workers."""

    id: int


@dataclasses.dataclass(frozen=True, slots=True)
class RunEnds:
    """To the machine: the run is over."""


@dataclasses.dataclass(frozen=True, slots=True)
class Failure:
    """An error of perfkit as it is sent."""

    kind: str
    message: str
    may_pass: bool

    @classmethod
    def of(cls, error: PerfkitError) -> "Failure":
        """An error by the nearest class that a message alone makes."""
        kind = next(one.__name__ for one in type(error).__mro__ if one.__name__ in _ERRORS)
        return cls(kind, str(error), error.may_pass)

    def error(self) -> PerfkitError:
        """The error; a PerfkitError if its class is not known."""
        error = _ERRORS.get(self.kind, PerfkitError)(self.message)
        error.may_pass = self.may_pass
        return error


_ERRORS: dict[str, type[PerfkitError]] = {
    one.__name__: one
    for one in (PerfkitError, UsageError, ScenarioError, ModelMismatchError, TargetError, ProtocolError, MeasurementError, StorageError)
}
_STAND_INS: dict[type, StandIn | None] = {
    **STAND_INS,
    pathlib.Path: StandIn(str, str, pathlib.Path),
    PerfkitError: StandIn(Failure, Failure.of, Failure.error),
    Calibration: StandIn(str, lambda one: json.dumps(one.document()), lambda text: parse_calibration(json.loads(text))),
    OutputSlots: None,  # shared memory is of one machine
}
OF_MACHINE = Encoding(Hello | Pong | TargetChecked | FromWorkers | Progress, _STAND_INS)
"""The messages of a machine."""
OF_DRIVER = Encoding(Accepted | Refused | Ping | CheckTarget | StartWorkers | ToWorkers | ReleaseWorkers | RunEnds, _STAND_INS)
"""The messages of the driver."""
