"""A law as people write it: `service=exponential:10ms,servers=2,stall=1s/10s`."""

import difflib
import math
import re
from collections.abc import Callable, Mapping
from fractions import Fraction
from typing import Any, TypeVar

from perfkit.errors import ErrorKind, UsageError
from server_stub.synthetic.law import Batch, Exponential, Failures, Law, Linear, Lognormal, ServiceTime, SlowStart, Stall

_Value = TypeVar("_Value")

EXAMPLE = "service=exponential:10ms,servers=1,stall=1s/10s,drain=at-once,errors=1%:503,seed=7,slow_start=3x/10s,drift=1%/s,lead=150us"
LAWS = ("constant:5ms", "exponential:10ms", "lognormal:10ms:cv=0.5", "lognormal:10ms:sigma=0.5", "linear:5ms+2ms/row")
_KINDS = {"400": ErrorKind.INVALID_ARGUMENT, "500": ErrorKind.INTERNAL, "503": ErrorKind.UNAVAILABLE}
_NS = {"ns": 1, "us": 10**3, "µs": 10**3, "ms": 10**6, "s": 10**9, "m": 60 * 10**9, "h": 3600 * 10**9}
_NUMBER = r"(?:\d{1,18}(?:\.\d{0,18})?|\.\d{1,18})"
_DURATION = re.compile(rf"({_NUMBER})(ns|us|µs|ms|s|m|h)", re.ASCII)
_SHARE = re.compile(rf"([+-]?{_NUMBER})(%?)", re.ASCII)
_LONGEST_NS, _LONGEST_LEAD_NS, _MOST_SERVERS, _WIDEST_SIGMA, _LARGEST_BATCH = 24 * _NS["h"], 10 * _NS["ms"], 10_000, 5.0, 64


def parse_law(text: str) -> Law:
    """Reads a declaration; raises UsageError, with a sentence that names the part and the fix, for what it cannot mean."""
    given: dict[str, str] = {}
    for part in text.split(","):
        key, equals, value = part.partition("=")
        if not equals or not value:
            raise UsageError(f"--synthetic: {part!r} is not KEY=VALUE; an example is {EXAMPLE}.")
        if key not in _READERS:
            near = difflib.get_close_matches(key, _READERS, n=1)
            hint = f"did you mean {near[0]!r}? " if near else ""
            raise UsageError(f"--synthetic {part}: there is no key {key!r}; {hint}Known are {', '.join(_READERS)}.")
        if key in given:
            raise UsageError(f"--synthetic {part}: {key} is given twice; leave one of the two out.")
        given[key] = value
    read = {key: _read(f"{key}={value}", value, _READERS[key]) for key, value in given.items()}
    drains_at_once = read.pop("drain", None)
    if drains_at_once is not None:
        if "stall" not in read:
            raise UsageError(
                f"--synthetic drain={given['drain']}: it says how a stall ends, and there is none; add one such as stall=1s/10s."
            )
        read["stall"] = Stall(read["stall"].duration_ns, read["stall"].period_ns, drains_at_once)
    if "batch" in read and "stall" in read:
        raise UsageError(f"--synthetic stall={given['stall']}: there are no stalls where requests are batched; leave batch or stall out.")
    return Law(**{_FIELDS.get(key, key): value for key, value in read.items()})


def _read(part: str, value: str, reader: Callable[[str], _Value]) -> _Value:
    try:
        return reader(value)
    except ValueError as error:
        raise UsageError(f"--synthetic {part}: {error}.") from None


def _service(text: str) -> ServiceTime:
    name, _, rest = text.partition(":")
    if name not in _LAWS:
        raise ValueError(f"there is no law {name!r}; use one such as {', '.join(LAWS)}")
    return _LAWS[name](rest)


def _constant(text: str) -> Linear:
    return Linear(_duration_ns(text))


def _exponential(text: str) -> Exponential:
    return Exponential(_duration_ns(text, positive=True))


def _linear(text: str) -> Linear:
    fixed, _, row = text.partition("+")
    if not row.endswith("/row"):
        raise ValueError(f"expected a time and what each row of a batch adds, such as 5ms+2ms/row, found {text!r}")
    return Linear(_duration_ns(fixed), _duration_ns(row.removesuffix("/row")))


def _lognormal(text: str) -> Lognormal:
    average, _, spread = text.partition(":")
    name, _, number = spread.partition("=")
    if name not in ("cv", "sigma") or not re.fullmatch(_NUMBER, number, re.ASCII):
        raise ValueError(f"expected a mean and its spread, such as 10ms:cv=0.5 or 10ms:sigma=0.5, found {text!r}")
    value = float(number)
    sigma = math.sqrt(math.log1p(value**2)) if name == "cv" else value
    if not 0 < sigma <= _WIDEST_SIGMA:
        raise ValueError(
            f"{spread} is sigma {sigma:.3g}, which has to be above 0 and at most {_WIDEST_SIGMA:g}; use constant for no spread"
        )
    return Lognormal(_duration_ns(average, positive=True), sigma)


def _stall(text: str) -> Stall:
    duration, _, period = text.partition("/")
    if not period:
        raise ValueError(f"expected how long and how often, such as 1s/10s, found {text!r}")
    stall = Stall(_duration_ns(duration, positive=True), _duration_ns(period, positive=True))
    if stall.duration_ns >= stall.period_ns:
        raise ValueError("a stall is shorter than its period, or nothing would ever depart")
    return stall


def _drain(text: str) -> bool:
    if text not in ("at-once", "at-pace"):
        raise ValueError("a backlog leaves at-once when the stall ends, or is served on at-pace; use one of the two")
    return text == "at-once"


def _batch(text: str) -> Batch:
    number = text.removeprefix("upto:")
    if not (number.isascii() and number.isdigit() and len(number) <= 3 and 1 <= int(number) <= _LARGEST_BATCH):
        raise ValueError(f"expected a size from 1 to {_LARGEST_BATCH} that is waited for, or such as upto:8, found {text!r}")
    return Batch(int(number), is_awaited=number == text)


def _failures(text: str) -> Failures:
    share, _, status = text.partition(":")
    if status not in _KINDS:
        raise ValueError(f"expected a share and one of the statuses {', '.join(_KINDS)}, such as 1%:503, found {text!r}")
    value = _share(share)
    if not 0 <= value <= 1:
        raise ValueError("a share lies between 0 and 1, or 0% and 100%")
    return Failures(value, _KINDS[status])


def _slow_start(text: str) -> SlowStart:
    factor, _, decay = text.partition("x/")
    if not decay or not re.fullmatch(_NUMBER, factor, re.ASCII):
        raise ValueError(f"expected a factor and a decay time, such as 3x/10s, found {text!r}")
    if not 1 <= float(factor) <= 1000:
        raise ValueError("service begins 1 to 1000 times longer than declared")
    return SlowStart(float(factor), _duration_ns(decay, positive=True))


def _drift_per_s(text: str) -> float:
    if not text.endswith("/s"):
        raise ValueError(f"expected the change in every second, such as 1%/s or -0.5%/s, found {text!r}")
    value = _share(text.removesuffix("/s"))
    if abs(value) > 10:
        raise ValueError("at most 1000%/s are added or taken")
    return value


def _lead_ns(text: str) -> int:
    value_ns = _duration_ns(text)
    if value_ns > _LONGEST_LEAD_NS:
        raise ValueError(f"{text} is longer than any way through front and kernel; at most 10ms")
    return value_ns


def _whole(low: int, high: int) -> Callable[[str], int]:
    def read(text: str) -> int:
        if not (text.isascii() and text.isdigit() and len(text) <= 20 and low <= int(text) <= high):
            raise ValueError(f"expected a whole number from {low} to {high}, found {text!r}")
        return int(text)

    return read


def _duration_ns(text: str, *, positive: bool = False) -> int:
    found = _DURATION.fullmatch(text)
    if not found:
        raise ValueError(f"expected a duration such as 250us, 10ms or 1s, found {text!r}")
    value_ns = round(Fraction(found[1]) * _NS[found[2]])
    if value_ns > _LONGEST_NS:
        raise ValueError(f"{text} is longer than 24h")
    if positive and not value_ns:
        raise ValueError(f"{text} is no time at all; it has to be above 0")
    return value_ns


def _share(text: str) -> float:
    found = _SHARE.fullmatch(text)
    if not found:
        raise ValueError(f"expected a share such as 1% or 0.01, found {text!r}")
    return float(Fraction(found[1]) / (100 if found[2] else 1))


_LAWS: Mapping[str, Callable[[str], ServiceTime]] = {
    "constant": _constant,
    "exponential": _exponential,
    "lognormal": _lognormal,
    "linear": _linear,
}
_READERS: Mapping[str, Callable[[str], Any]] = {
    "service": _service,
    "servers": _whole(1, _MOST_SERVERS),
    "batch": _batch,
    "stall": _stall,
    "drain": _drain,
    "errors": _failures,
    "seed": _whole(0, 2**64 - 1),
    "slow_start": _slow_start,
    "drift": _drift_per_s,
    "lead": _lead_ns,
}
_FIELDS = {"errors": "failures", "drift": "drift_per_s", "lead": "lead_ns"}  # of Law, where they are called otherwise
