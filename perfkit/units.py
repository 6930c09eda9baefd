"""Durations, rates, shares and sizes: parsed from text and formatted for reports; equal parts of a number.

Inside perfkit a duration is an integer number of nanoseconds; only this module converts units.
"""

import math
import re
from collections.abc import Mapping
from fractions import Fraction
from typing import Literal

NS_PER_S = 1_000_000_000
NS_PER_MS = 1_000_000
_DURATIONS_NS = {"ns": 1, "us": 1_000, "µs": 1_000, "ms": 1_000_000, "s": NS_PER_S, "m": 60 * NS_PER_S, "h": 3600 * NS_PER_S}
_RATES_PER_S: dict[str, Fraction | int] = {"": 1, "/s": 1, "/m": Fraction(1, 60), "/min": Fraction(1, 60), "/h": Fraction(1, 3600)}
_SIZES_BYTES = {"": 1, "B": 1, "kB": 10**3, "KB": 10**3, "MB": 10**6, "GB": 10**9, "KiB": 1 << 10, "MiB": 1 << 20, "GiB": 1 << 30}
_QUANTITY = re.compile(r"\s*(?P<number>[+-]?(?:\d+(?:\.\d*)?|\.\d+)(?:[eE][+-]?\d{1,2})?)\s*(?P<unit>[^\d\s].*?)?\s*", re.ASCII)


def _quantity(text: object, units: Mapping[str, Fraction | int], expected: str) -> Fraction:
    match = _QUANTITY.fullmatch(str(text)) if isinstance(text, str | int | float) and not isinstance(text, bool) else None
    factor = units.get(match["unit"] or "") if match else None
    if match is None or factor is None or len(match["number"]) > 40:  # longer numbers overflow later
        raise ValueError(f"expected {expected}, found {text!r}")
    return Fraction(match["number"]) * factor


def parse_duration_ns(text: object) -> int:
    """Parses `250us`, `10ms`, `30s`, `2m`, `1h` as nanoseconds; 0 needs no unit.

    Raises ValueError for anything else, also for negative durations.
    """
    if text in (0, "0") and not isinstance(text, bool):
        return 0
    value = _quantity(text, _DURATIONS_NS, "a duration such as 250us, 10ms, 30s or 2m")
    if value < 0:
        raise ValueError(f"a duration cannot be negative, found {text!r}")
    return round(value)


def parse_rate_per_s(text: object) -> float:
    """Parses `100`, `100/s` or `6000/m` as a rate per second; raises ValueError for anything else and for rates of 0 or less."""
    value = float(_quantity(text, _RATES_PER_S, "a rate such as 100 or 100/s"))
    if value <= 0:
        raise ValueError(f"a rate must be above zero, found {text!r}")
    return value


def parse_share(text: object) -> float:
    """Parses `0.1%` or `0.001` as a share between 0 and 1; raises ValueError for anything else."""
    value = float(_quantity(text, {"": 1, "%": Fraction(1, 100)}, "a share such as 0.1% or 0.001"))
    if not 0 <= value <= 1:
        raise ValueError(f"a share lies between 0 and 1 (0% and 100%), found {text!r}")
    return value


def parse_size_bytes(text: object) -> int:
    """Parses `64MB`, `64MiB` or a number of bytes; raises ValueError for anything else, also for parts of a byte."""
    value = _quantity(text, _SIZES_BYTES, "a size such as 64MB, 64MiB or a number of bytes")
    if value < 0 or value.denominator != 1:
        raise ValueError(f"a size is a whole number of bytes, found {text!r}")
    return int(value)


def format_duration_ns(value_ns: float) -> str:
    """A duration with three significant digits and a suitable unit: `61.2 µs`, `38.4 ms`, `1.20 s`."""
    for unit_ns, unit in ((1, "ns"), (1e3, "µs"), (1e6, "ms")):
        if abs(value_ns) < 999.5 * unit_ns:  # above that it would be shown as 1,000
            return f"{_three_digits(value_ns / unit_ns)} {unit}"
    return f"{_three_digits(value_ns / NS_PER_S)} s"


def format_exact_duration(value_ns: float) -> str:
    """A duration that someone gave, with all its digits and a suitable unit: `180.6 ms`, `50 ms`, `1.5 s`."""
    for unit_ns, unit in ((NS_PER_S, "s"), (1e6, "ms"), (1e3, "µs")):
        if value_ns >= unit_ns:
            return f"{value_ns / unit_ns:,.12g} {unit}"
    return f"{value_ns:g} ns"


def format_rate_per_s(value_per_s: float) -> str:
    """A rate with a thousands separator, `12,345/s`, or three significant digits, `25.3/s`."""
    return f"{_three_digits(value_per_s)}/s"


def format_confidence(confidence: float) -> str:
    """A confidence below 1 as text, with two significant digits of its distance to 100 %: `95 %`, `99.89 %`."""
    return f"{100 - float(f'{100 * (1 - confidence):.2g}'):.9g} %"


def format_percent(share: float, decimals: int = 0) -> str:
    """A share as a percentage with a space, as sentences have it: `35 %`."""
    return f"{100 * share:.{decimals}f} %"


def format_bytes(value_bytes: float) -> str:
    """A size with three significant digits and a suitable unit: `512 bytes`, `64.0 MiB`, `3.73 GiB`."""
    for unit, factor in (("GiB", 2**30), ("MiB", 2**20), ("KiB", 2**10)):
        if value_bytes >= factor:
            return f"{_three_digits(value_bytes / factor)} {unit}"
    return f"{value_bytes:.0f} bytes"


def _three_digits(value: float) -> str:
    if abs(value) >= 99.95:
        return f"{value:,.0f}"
    if abs(value) >= 9.995:
        return f"{value:.1f}"
    return f"{value:.2f}" if abs(value) >= 0.0995 or not value else f"{value:.3g}"


def write_size_bytes(value_bytes: int) -> str:
    """The shortest exact text that `parse_size_bytes` reads back: `64MiB`, `5MB`, `1234567B`."""
    for unit in ("GiB", "GB", "MiB", "MB", "KiB", "KB"):
        if value_bytes and value_bytes % _SIZES_BYTES[unit] == 0:
            return f"{value_bytes // _SIZES_BYTES[unit]}{unit}"
    return f"{value_bytes}B"


def write_duration_ns(value_ns: int) -> str:
    """The shortest exact text that `parse_duration_ns` reads back: `30s`, `250us`."""
    for unit in ("h", "m", "s", "ms", "us"):
        if value_ns and value_ns % _DURATIONS_NS[unit] == 0:
            return f"{value_ns // _DURATIONS_NS[unit]}{unit}"
    return f"{value_ns}ns" if value_ns else "0s"


def format_minutes(seconds: float) -> str:
    """How long something takes, for people who wait: `45 s`, `12 min`, `3.5 h`."""
    if seconds < 90:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 3 * 3600 else f"{seconds / 3600:.1f} h"


def write_minutes(seconds: float) -> str:
    """A duration rounded up, as an option takes it: `45s`, `12m`."""
    return f"{math.ceil(seconds)}s" if seconds < 90 else f"{math.ceil(seconds / 60)}m"


def part(whole: int, number: int, parts: int) -> int:
    """One of so many parts of a whole number; they add up to it and differ by at most 1."""
    return whole // parts + (number < whole % parts)


Change = Literal["ratio", "difference"]
"""A ratio of 1.123 is +12.3 %, a difference of shares of 0.005 is +0.50 points."""


def format_signed_change(scale: Change, estimate: float, interval: tuple[float | None, float | None] | None = None) -> str:
    """A change as text: `+12.3 %` or `+0.50 points`, with an interval `+12.3 % [+7.9, +16.8]`."""
    text = f"{_signed(scale, estimate)} {'%' if scale == 'ratio' else 'points'}"
    return text if interval is None else f"{text} [{format_signed_interval(scale, interval, ', ')}]"


def format_signed_interval(scale: Change, interval: tuple[float | None, float | None], between: str = " to ") -> str:
    """The ends of a change's interval without their unit: `+7.9 to +16.8`, `+7.9 or more`, or `not bounded`."""
    low, high = interval
    if low is not None and high is not None:
        return f"{_signed(scale, low)}{between}{_signed(scale, high)}"
    if low is None and high is None:
        return "not bounded"
    return f"{_signed(scale, low)} or more" if low is not None else f"{_signed(scale, high or 0.0)} or less"


def _signed(scale: Change, value: float) -> str:
    return f"{100 * (value - 1):+.1f}" if scale == "ratio" else f"{100 * value:+.2f}"
