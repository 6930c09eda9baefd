"""The exit codes of the commands."""

import enum
import signal

from perfkit.errors import IncomparableError, InconclusiveError, MeasurementError, PerfkitError, TargetError


class ExitCode(enum.IntEnum):
    """Scripts and CI jobs rely on these; docs/reference/exit-codes.md says what each means."""

    DONE = 0
    VIOLATED = 1
    USAGE = 2
    INCONCLUSIVE = 3
    INCOMPARABLE = 4
    INVALID = 5
    TARGET = 6
    INTERNAL = 70
    HUNG_UP = 128 + signal.SIGHUP
    INTERRUPTED = 128 + signal.SIGINT
    TERMINATED = 128 + signal.SIGTERM


def exit_code_of(error: PerfkitError) -> ExitCode:
    """The exit code of an error that ends a command."""
    if isinstance(error, TargetError):
        return ExitCode.TARGET
    if isinstance(error, InconclusiveError):
        return ExitCode.INCONCLUSIVE
    if isinstance(error, IncomparableError):
        return ExitCode.INCOMPARABLE
    return ExitCode.INVALID if isinstance(error, MeasurementError) else ExitCode.USAGE
