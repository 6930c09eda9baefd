"""The failures perfkit reports to a person; the command line alone turns them into exit codes.

Messages are whole sentences that name the file, the key and the fix. On the measured path failures are data
(`perfkit.transport.base.Outcome`), never exceptions.
"""

import dataclasses
import enum


class PerfkitError(Exception):
    """The root of the tree: something a person can mend."""


class UsageError(PerfkitError):
    """An option, a scenario or an input that cannot be used as given."""


class ScenarioError(UsageError):
    """A scenario file, or an override of it, that is not valid; one line a problem."""


class ModelMismatchError(UsageError):
    """A scenario that does not fit the model's metadata: names, shapes, datatypes, batch size."""


class ResultError(UsageError):
    """A result folder that cannot be read, or a path where a result must not be written."""


class TargetError(PerfkitError):
    """The target cannot be reached, is not ready, or does not know the model."""


class InconclusiveError(PerfkitError):
    """A question that the measurements at hand cannot decide."""


class IncomparableError(PerfkitError):
    """Results that cannot be held against each other."""


class MeasurementError(PerfkitError):
    """Perfkit itself could not measure."""


class ErrorKind(enum.Enum):
    """What kind of failure a v2 server reports, as Triton classes them."""

    INVALID_ARGUMENT = "invalid argument"
    NOT_FOUND = "not found"
    ALREADY_EXISTS = "already exists"
    UNAVAILABLE = "unavailable"
    UNSUPPORTED = "unsupported"
    INTERNAL = "internal"


class ProtocolError(PerfkitError):
    """A v2 message that breaks the protocol, or that a v2 server refuses, with the kind it is answered as."""

    def __init__(self, message: str, kind: ErrorKind = ErrorKind.INVALID_ARGUMENT) -> None:
        super().__init__(message)
        self.kind = kind


@dataclasses.dataclass(frozen=True, slots=True)
class MeasurementWarning:
    """What a reader of a load point's figures must know; `code` is for programs, `message` is a whole sentence."""

    code: str
    message: str
