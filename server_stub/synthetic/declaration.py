"""Parses a service model from text such as `service=exponential:10ms,servers=2,stall=1s/10s`."""

import dataclasses
import difflib
import math
import re
from collections.abc import Callable, Mapping
from fractions import Fraction
from typing import Any, TypeVar

from perfkit.digits import whole_number
from perfkit.errors import ErrorKind, UsageError
from server_stub.synthetic.service_model import (
    AfterGap,
    Batch,
    Exponential,
    Failures,
    Linear,
    Lognormal,
    ServiceModel,
    ServiceTime,
    SlowFirst,
    SlowShare,
    SlowStart,
    Stall,
    TextForm,
)

_Value = TypeVar("_Value")

EXAMPLE = "service=exponential:10ms,servers=1,stall=1s/10s,drain=at-once,errors=1%:503,seed=7,slow_start=3x/10s,drift=1%/s,lead=150us"
SERVICE_EXAMPLES = ("constant:5ms", "exponential:10ms", "lognormal:10ms:cv=0.5", "lognormal:10ms:sigma=0.5", "linear:5ms+2ms/row")
_KINDS = {"400": ErrorKind.INVALID_ARGUMENT, "500": ErrorKind.INTERNAL, "503": ErrorKind.UNAVAILABLE}
_NS = {"ns": 1, "us": 10**3, "µs": 10**3, "ms": 10**6, "s": 10**9, "m": 60 * 10**9, "h": 3600 * 10**9}
_NUMBER = r"(?:\d{1,18}(?:\.\d{0,18})?|\.\d{1,18})"
_DURATION = re.compile(rf"({_NUMBER})(ns|us|µs|ms|s|m|h)", re.ASCII)
_SHARE = re.compile(rf"([+-]?{_NUMBER})(%?)", re.ASCII)
_MAX_DURATION_NS, _MAX_LEAD_NS, _MAX_SERVERS, _MAX_SIGMA, _MAX_BATCH_SIZE = 24 * _NS["h"], 10 * _NS["ms"], 10_000, 5.0, 64
_MAX_RESPONSES, _MAX_FIRST, _MAX_QUEUE = 10_000, 1_000_000, 1_000_000
MAX_TOKENS = 131_072
"""The highest number of output tokens of a request."""


def parse_service_model(text: str) -> ServiceModel:
    """Parse a service model. Raises UsageError with the offending part and how to fix it."""
    given: dict[str, str] = {}
    for part in text.split(","):
        key, equals, value = part.partition("=")
        if not equals or not value:
            raise UsageError(f"--synthetic: {part!r} is not KEY=VALUE; an example is {EXAMPLE}.")
        if key not in _READERS:
            near = difflib.get_close_matches(key, _READERS, n=1)
            hint = f"did you mean {near[0]!r}? " if near else ""
            raise UsageError(f"--synthetic {part}: there is no key {key!r}; {hint}The keys are {', '.join(_READERS)}.")
        if key in given:
            raise UsageError(f"--synthetic {part}: {key} is given twice; remove one.")
        given[key] = value
    read = {key: _read(f"{key}={value}", value, _READERS[key]) for key, value in given.items()}
    drains_at_once = read.pop("drain", None)
    if drains_at_once is not None:
        if "stall" not in read:
            raise UsageError(f"--synthetic drain={given['drain']}: drain needs a stall; add one such as stall=1s/10s.")
        read["stall"] = dataclasses.replace(read["stall"], drains_at_once=drains_at_once)
    if "batch" in read and "stall" in read:
        raise UsageError(f"--synthetic stall={given['stall']}: stalls and batches cannot be combined; remove batch or stall.")
    if "batch" in read and "after_gap" in read:
        raise UsageError(f"--synthetic after_gap={given['after_gap']}: gaps and batches cannot be combined; remove batch or after_gap.")
    if "batch" in read and "queue" in read:
        raise UsageError(f"--synthetic queue={given['queue']}: bounded queues and batches cannot be combined; remove batch or queue.")
    if "batch" in read and "left" in read:
        raise UsageError(f"--synthetic left={given['left']}: it is for requests that are served one by one; remove batch or left.")
    form = TextForm(**{field: read.pop(key) for key, field in _TEXT_FIELDS.items() if key in read})
    return ServiceModel(text=form, **{_FIELDS.get(key, key): value for key, value in read.items()})


def _read(part: str, value: str, reader: Callable[[str], _Value]) -> _Value:
    try:
        return reader(value)
    except ValueError as error:
        raise UsageError(f"--synthetic {part}: {error}.") from None


def _service(text: str) -> ServiceTime:
    name, _, rest = text.partition(":")
    if name not in _SERVICE_READERS:
        raise ValueError(f"there is no distribution {name!r}; use one such as {', '.join(SERVICE_EXAMPLES)}")
    return _SERVICE_READERS[name](rest)


def _linear(text: str) -> Linear:
    fixed, _, row = text.partition("+")
    if not row.endswith("/row"):
        raise ValueError(f"expected a fixed time and a time per row, such as 5ms+2ms/row, got {text!r}")
    return Linear(_duration_ns(fixed), _duration_ns(row.removesuffix("/row")))


def _lognormal(text: str) -> Lognormal:
    average, _, spread = text.partition(":")
    name, _, number = spread.partition("=")
    if name not in ("cv", "sigma") or not re.fullmatch(_NUMBER, number, re.ASCII):
        raise ValueError(f"expected a mean and its spread, such as 10ms:cv=0.5 or 10ms:sigma=0.5, got {text!r}")
    value = float(number)
    sigma = math.sqrt(math.log1p(value**2)) if name == "cv" else value
    if not 0 < sigma <= _MAX_SIGMA:
        raise ValueError(f"{spread} is sigma {sigma:.3g}, which must be above 0 and at most {_MAX_SIGMA:g}; use constant for no spread")
    return Lognormal(_duration_ns(average, positive=True), sigma)


def _stall(text: str) -> Stall:
    duration, _, period = text.partition("/")
    if not period:
        raise ValueError(f"expected a duration and a period, such as 1s/10s, got {text!r}")
    stall = Stall(_duration_ns(duration, positive=True), _duration_ns(period, positive=True))
    if stall.duration_ns >= stall.period_ns:
        raise ValueError("a stall must be shorter than its period, or no request would ever depart")
    return stall


def _drain(text: str) -> bool:
    if text not in ("at-once", "at-pace"):
        raise ValueError("use at-once (the backlog departs when the stall ends) or at-pace (it is served after the stall)")
    return text == "at-once"


def _batch(text: str) -> Batch:
    digits = text.removeprefix("upto:")
    if not (number := whole_number(digits, _MAX_BATCH_SIZE)):
        raise ValueError(f"expected a size from 1 to {_MAX_BATCH_SIZE} for full batches, or one such as upto:8, got {text!r}")
    return Batch(number, is_awaited=digits == text)


def _failures(text: str) -> Failures:
    share, _, status = text.partition(":")
    if status not in _KINDS:
        raise ValueError(f"expected a share and one of the statuses {', '.join(_KINDS)}, such as 1%:503, got {text!r}")
    value = _share(share)
    if not 0 <= value <= 1:
        raise ValueError("a share must be between 0 and 1, or 0% and 100%")
    return Failures(value, _KINDS[status])


def _slow_start(text: str) -> SlowStart:
    factor, _, decay = text.partition("x/")
    if not decay or not re.fullmatch(_NUMBER, factor, re.ASCII):
        raise ValueError(f"expected a factor and a decay time, such as 3x/10s, got {text!r}")
    return SlowStart(_factor(factor), _duration_ns(decay, positive=True))


def _first(text: str) -> SlowFirst:
    factor, _, number = text.partition("x/")
    if not (executions := whole_number(number, _MAX_FIRST)) or not re.fullmatch(_NUMBER, factor, re.ASCII):
        raise ValueError(f"expected a factor and a number of executions up to {_MAX_FIRST:,}, such as 8x/20, got {text!r}")
    return SlowFirst(_factor(factor), executions)


def _slow(text: str) -> SlowShare:
    factor, _, share = text.partition("x/")
    if not share or not re.fullmatch(_NUMBER, factor, re.ASCII):
        raise ValueError(f"expected a factor and a share, such as 3x/2%, got {text!r}")
    value = _share(share)
    if not 0 <= value <= 1:
        raise ValueError("a share must be between 0 and 1, or 0% and 100%")
    return SlowShare(_factor(factor), value)


def _factor(text: str) -> float:
    if not 1 <= float(text) <= 1000:
        raise ValueError("the factor must be between 1 and 1000")
    return float(text)


def _after_gap(text: str) -> AfterGap:
    extra, _, gap = text.partition("/")
    if not gap:
        raise ValueError(f"expected the additional time and the gap, such as 40ms/100ms, got {text!r}")
    return AfterGap(_duration_ns(extra, positive=True), _duration_ns(gap, positive=True))


def _drift_per_s(text: str) -> float:
    if not text.endswith("/s"):
        raise ValueError(f"expected a change per second, such as 1%/s or -0.5%/s, got {text!r}")
    value = _share(text.removesuffix("/s"))
    if abs(value) > 10:
        raise ValueError("the change must be between -1000%/s and 1000%/s")
    return value


def _lead_ns(text: str) -> int:
    value_ns = _duration_ns(text)
    if value_ns > _MAX_LEAD_NS:
        raise ValueError(f"{text} is too long; the maximum is 10ms")
    return value_ns


def _one_of(*words: str) -> Callable[[str], str]:
    def read(text: str) -> str:
        if text not in words:
            raise ValueError(f"expected {' or '.join(words)}, got {text!r}")
        return text

    return read


def _whole(low: int, high: int) -> Callable[[str], int]:
    def read(text: str) -> int:
        number = whole_number(text, high)
        if number is None or number < low:
            raise ValueError(f"expected a whole number from {low} to {high}, got {text!r}")
        return number

    return read


def _duration_ns(text: str, *, positive: bool = False) -> int:
    match = _DURATION.fullmatch(text)
    if not match:
        raise ValueError(f"expected a duration such as 250us, 10ms or 1s, got {text!r}")
    value_ns = round(Fraction(match[1]) * _NS[match[2]])
    if value_ns > _MAX_DURATION_NS:
        raise ValueError(f"{text} is longer than 24h")
    if positive and not value_ns:
        raise ValueError(f"{text} must be above 0")
    return value_ns


def _share(text: str) -> float:
    match = _SHARE.fullmatch(text)
    if not match:
        raise ValueError(f"expected a share such as 1% or 0.01, got {text!r}")
    return float(Fraction(match[1]) / (100 if match[2] else 1))


_SERVICE_READERS: Mapping[str, Callable[[str], ServiceTime]] = {
    "constant": lambda text: Linear(_duration_ns(text)),
    "exponential": lambda text: Exponential(_duration_ns(text, positive=True)),
    "lognormal": _lognormal,
    "linear": _linear,
}
_READERS: Mapping[str, Callable[[str], Any]] = {
    "service": _service,
    "servers": _whole(1, _MAX_SERVERS),
    "batch": _batch,
    "queue": _whole(0, _MAX_QUEUE),
    "stall": _stall,
    "drain": _drain,
    "errors": _failures,
    "seed": _whole(0, 2**64 - 1),
    "slow_start": _slow_start,
    "first": _first,
    "slow": _slow,
    "after_gap": _after_gap,
    "drift": _drift_per_s,
    "lead": _lead_ns,
    "responses": _whole(0, _MAX_RESPONSES),
    "gap": _duration_ns,
    "tokens": _whole(1, MAX_TOKENS),
    "tokens_per_event": _whole(1, MAX_TOKENS),
    "reasoning": _whole(0, MAX_TOKENS),
    "usage": _one_of("final", "chunks", "off"),
    "stream_error": _whole(0, MAX_TOKENS),
    "done": lambda text: _one_of("on", "off")(text) == "on",
    "left": lambda text: _one_of("counted", "uncounted")(text) == "counted",
}
_TEXT_FIELDS = {  # fields of TextForm
    "tokens": "tokens",
    "tokens_per_event": "tokens_per_event",
    "reasoning": "reasoning",
    "usage": "usage",
    "stream_error": "error_after",
    "done": "sends_done",
}
_FIELDS = {
    "errors": "failures",
    "drift": "drift_per_s",
    "lead": "lead_ns",
    "gap": "gap_ns",
    "left": "counts_left",
}  # fields of ServiceModel with other names
