"""The exceptions that perfkit reports to its user, which the command line alone turns into exit codes; measurement warnings; suggestions for mistyped words.

Messages are whole sentences that name the file, the key and the fix. On the measured path failures are data
(`perfkit.transport.base.Outcome`), never exceptions.
"""

import dataclasses
import enum
from collections.abc import Iterable, Sequence

_QUOTED_LINES = 5
_LEAST_SIMILARITY = 0.5


class PerfkitError(Exception):
    """The base class of perfkit's errors, which the user can fix."""

    may_pass = False
    """Whether the same call to the target may succeed a moment later."""


class UsageError(PerfkitError):
    """An option, a scenario or an input that cannot be used as given."""


class TimeTooShortError(UsageError):
    """A time limit in which nothing can be decided; `enough` is one that should be enough, as the option takes it, such as `4m`."""

    def __init__(self, message: str, *, enough: str) -> None:
        super().__init__(message)
        self.enough = enough


class ScenarioError(UsageError):
    """A scenario file, or an override of it, that is not valid; one line per problem."""


class ModelMismatchError(UsageError):
    """A scenario that does not fit the model's metadata: names, shapes, datatypes, batch size.

    `may_pass` if only the server's refusal of a request says so: some servers report every error of a model like this.
    """

    def __init__(self, message: str, *, may_pass: bool = False) -> None:
        super().__init__(message)
        self.may_pass = may_pass


class ResultError(UsageError):
    """A result folder that cannot be read, or a path where a result must not be written."""


class TargetError(PerfkitError):
    """The target cannot be reached, is not ready, or does not know the model.

    `may_pass` says that the same call may succeed a moment later: a connection that failed, or a server that is not available.
    """

    def __init__(self, message: str, *, may_pass: bool = False) -> None:
        super().__init__(message)
        self.may_pass = may_pass


class ServerFailedError(TargetError):
    """A server that perfkit started ended by itself, was not ready in time, or was lost; the message quotes what it wrote last.

    `what` is the message without the quotation, `status` the exit status, negative for a signal and None if it still ran, and
    `last_lines` is what it wrote last.
    """

    def __init__(self, what: str, *, status: int | None = None, last_lines: Sequence[str] = ()) -> None:
        super().__init__(f"{what}{quotation(last_lines)}")
        self.what, self.status, self.last_lines = what, status, tuple(last_lines)


def quotation(last_lines: Sequence[str]) -> str:
    """The last of a program's lines as the end of a sentence; empty without any."""
    return f"; it said: {' / '.join(last_lines[-_QUOTED_LINES:])}" if last_lines else ""


class MissingEndpointError(TargetError):
    """The server lacks an endpoint that v2 makes optional, or that many servers leave out; `what` is its answer in a few words."""

    def __init__(self, message: str, what: str) -> None:
        super().__init__(message)
        self.what = what


class InconclusiveError(PerfkitError):
    """A question that the measurements cannot decide."""


class IncomparableError(PerfkitError):
    """Results that cannot be compared."""


class MeasurementError(PerfkitError):
    """Perfkit itself could not measure."""


class StorageError(MeasurementError):
    """What was measured cannot be written, for instance because the disk is full."""


class ErrorKind(enum.Enum):
    """The kinds of failures that a v2 server reports, as Triton classifies them."""

    INVALID_ARGUMENT = "invalid argument"
    NOT_FOUND = "not found"
    ALREADY_EXISTS = "already exists"
    UNAVAILABLE = "unavailable"
    UNSUPPORTED = "unsupported"
    INTERNAL = "internal"


class ProtocolError(PerfkitError):
    """A v2 message that violates the protocol or that a server refuses; `kind` is that of the error response."""

    def __init__(self, message: str, kind: ErrorKind = ErrorKind.INVALID_ARGUMENT) -> None:
        super().__init__(message)
        self.kind = kind


class AnswerTooLargeError(ProtocolError):
    """An answer that perfkit itself refuses because of its size: no failure of the server."""


@dataclasses.dataclass(frozen=True, slots=True)
class MeasurementWarning:
    """A warning about a load point's figures; `code` is for programs, `message` is a whole sentence."""

    code: str
    """The warning's name; `perfkit help warnings` and the documentation explain each."""
    message: str
    """A sentence: what happened, what it means, and what mends it."""

    @property
    def first_sentence(self) -> str:
        """What it says, without its hints."""
        return first_sentence(self.message)


def first_sentence(text: str) -> str:
    """The first sentence of a message."""
    return f"{text.partition('. ')[0].rstrip('.')}."


def nearest(word: str, known: Iterable[str], most: int = 1) -> list[str]:
    """The known words that are similar to a word, at most `most`, the most similar first."""
    import difflib  # only for a message

    return difflib.get_close_matches(word, list(known), n=most, cutoff=_LEAST_SIMILARITY)


def suggestion(word: str, known: Iterable[str]) -> str:
    """The end of a message, such as `; did you mean --model?`; empty if no known word is similar."""
    near = nearest(word, known)
    return f"; did you mean {near[0]}?" if near else ""
