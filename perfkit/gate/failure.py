"""What a gate that ended without a verdict says of its end: the arm, the place, how its server ended, and what it wrote last. Pure."""

import asyncio

from perfkit.errors import MeasurementError, PerfkitError, ServerFailedError, TargetError
from perfkit.gate.pairs import Stage
from perfkit.gate.verdict import FailureCause, GateFailure
from perfkit.process.child import signal_name
from perfkit.text.foreign import one_line, sentence


def failure_of(error: BaseException, stage: Stage | None, log: str | None = None) -> GateFailure:
    """Why an error ended a gate in the run `stage`, None before the first; `log` is the file with what the run's server wrote."""
    if not isinstance(error, PerfkitError):
        what = f"{type(error).__name__}: {error}" if str(error) else type(error).__name__
        is_end = isinstance(error, asyncio.CancelledError | KeyboardInterrupt)
        return _failure("interrupted", "perfkit was interrupted", stage, log) if is_end else _failure("internal", what, stage, log)
    if not isinstance(error, TargetError):
        return _failure("measurement" if isinstance(error, MeasurementError) else "usage", str(error), stage, log)
    if not isinstance(error, ServerFailedError):
        return _failure("server", str(error), stage, log)
    ended = {} if error.status is None else {"exit_code": error.status} if error.status >= 0 else {"signal": signal_name(error.status)}
    lines = tuple(one_line(line) for line in error.last_lines)
    return _failure("server", error.what, stage, log).model_copy(update={**ended, "last_lines": lines})


def interruption(signal: str, exit_code: int, stage: Stage | None, log: str | None) -> GateFailure:
    """That a signal, such as SIGTERM, ended perfkit with an exit code."""
    failure = _failure("interrupted", f"perfkit was interrupted by {signal}", stage, log)
    return failure.model_copy(update={"signal": signal, "exit_code": exit_code})


def unfinished(stage: Stage | None, pairs: int, log: str | None) -> GateFailure:
    """What is written while a gate runs, and so is left by one that is killed."""
    done = f"{pairs} pair{'s' * (pairs != 1)} so far" if stage is not None else "nothing is measured yet"
    what = f"the gate has not finished: {done}; if no perfkit is running here, it was killed"
    return _failure("unfinished", what, stage, log)


def _failure(cause: FailureCause, what: str, stage: Stage | None, log: str | None) -> GateFailure:
    if stage is None:
        return GateFailure(cause=cause, reason=_as_sentence(what))
    place = f"in {'the ' * (stage.phase == 'trial')}{stage.phase}"
    begin = f"The {stage.arm} failed {place}" if cause == "server" else f"{place[0].upper()}{place[1:]}, {stage.arm}"
    return GateFailure(cause=cause, reason=_as_sentence(f"{begin}: {what}"), arm=stage.arm, phase=stage.phase, log=log)


def _as_sentence(text: str) -> str:
    text = sentence(text)
    return f"{text[:1].upper()}{text[1:]}{'' if text.endswith(('.', '…')) else '.'}"
