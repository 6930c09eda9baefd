"""The exit codes of the commands."""

import enum
import signal
from collections.abc import Mapping

from perfkit.errors import IncomparableError, InconclusiveError, MeasurementError, PerfkitError, TargetError


class ExitCode(enum.IntEnum):
    """Scripts and CI jobs rely on these."""

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


MEANINGS: Mapping[ExitCode, str] = {
    ExitCode.DONE: "done; `gate`: pass; `bisect`: found",
    ExitCode.VIOLATED: "an SLO of the scenario is violated; `gate`: regressed; `history check`: a series got worse, or has no new results",
    ExitCode.USAGE: "usage: an unknown option, an invalid scenario, or a shape or datatype that does not fit the model",
    ExitCode.INCONCLUSIVE: "inconclusive: too few samples for an SLO's percentile, a search without a confirmed answer, or a plan that the measurements cannot "
    "decide; `gate`: neither pass nor regressed; `bisect`: not found, or no regression. `--on-inconclusive pass` makes it 0",
    ExitCode.INCOMPARABLE: "`gate` and `bisect`: incomparable, because the two sides were not measured alike; `compare`: no load point in common",
    ExitCode.INVALID: "invalid measurement: the load generator was the bottleneck, or late; `gate`: also a server that failed or was not steady",
    ExitCode.TARGET: "the target cannot be reached, is not ready, does not know the model, or was lost during the run; `gate`: error, as with 2, 70, 129, 130 and 143",
    ExitCode.INTERNAL: "a bug in perfkit",
    ExitCode.HUNG_UP: "hung up: the terminal was closed",
    ExitCode.INTERRUPTED: "interrupted by Ctrl-C",
    ExitCode.TERMINATED: "terminated",
}
"""What each means, in Markdown."""


def exit_code_of(error: PerfkitError) -> ExitCode:
    """The exit code of an error that ends a command."""
    if isinstance(error, TargetError):
        return ExitCode.TARGET
    if isinstance(error, InconclusiveError):
        return ExitCode.INCONCLUSIVE
    if isinstance(error, IncomparableError):
        return ExitCode.INCOMPARABLE
    return ExitCode.INVALID if isinstance(error, MeasurementError) else ExitCode.USAGE
