"""The scale of a drawn axis: its ends, its ticks, and where a value lies between them."""

import dataclasses
import itertools
import math
from collections.abc import Iterator, Sequence

from perfkit.clock import Date
from perfkit.report.chart import Axis

_MOST_LOG_TICKS = 9
_LOG_SPACE_X, _LOG_SPACE_Y = 1.08, 1.15  # factors beyond the outermost values
_ZERO_SPACE_X, _ZERO_SPACE_Y = 1.04, 1.08
_LINEAR_SPACE_Y = 0.08  # of the range, on either side
_DAYS, _MONTHS, _DAYS_A_MONTH = (1, 2, 7, 14), (1, 2, 3, 6, 12, 24, 60, 120, 1200), 30.4
_EPOCH = Date(1970, 1, 1).toordinal()


@dataclasses.dataclass(frozen=True, slots=True)
class DrawnScale:
    """The lowest and the highest value of an axis, and its ticks: values and their texts, ascending."""

    low: float
    high: float
    is_log: bool
    ticks: tuple[tuple[float, str], ...]

    def share(self, value: float) -> float | None:
        """Where a value lies: 0 at the low end, 1 at the high one, and beyond them outside; None for a value without a place."""
        if math.isnan(value) or (self.is_log and value <= 0):
            return None
        if math.isinf(value):
            return math.copysign(math.inf, value)
        if self.is_log:
            return math.log(value / self.low) / math.log(self.high / self.low)
        return (value - self.low) / (self.high - self.low)


def scale_of(axis: Axis, ends: tuple[float, float] | None, most_ticks: int, *, is_x: bool) -> DrawnScale:
    """The scale for values between two ends, None without values, with about `most_ticks` ticks where the axis names none."""
    low, high = ends or (0.0, 1.0)
    is_log = axis.scale == "log" and low > 0 and (axis.low is None or axis.low > 0)
    first, last = _limits(axis, low, high, is_log=is_log, is_x=is_x)
    if axis.ticks:
        named = [tick for tick in axis.ticks if first <= tick[0] <= last]
    elif axis.scale == "date":
        named = [(day, Date.fromordinal(_EPOCH + round(day)).isoformat()) for day in date_ticks(first, last, most_ticks)]
    else:
        values = log_ticks(first, last) if is_log else linear_ticks(first, last, most_ticks, is_whole=axis.is_whole)
        named = [(value, f"{value:,.6g}") for value in values]
    return DrawnScale(first, last, is_log, tuple(named))


def _limits(axis: Axis, low: float, high: float, *, is_log: bool, is_x: bool) -> tuple[float, float]:
    if is_log:
        space = _LOG_SPACE_X if is_x else _LOG_SPACE_Y
        first, last = low / space, high * space
    elif axis.scale == "date" or (axis.scale == "linear" and is_x):
        first, last = low, high
    elif axis.scale == "linear":
        space = _LINEAR_SPACE_Y * (high - low or max(1.0, 1e-6 * abs(low)))
        first, last = low - space, high + space
    else:
        first, last = 0.0, high * (_ZERO_SPACE_X if is_x else _ZERO_SPACE_Y) or 1.0
    first = first if axis.low is None else axis.low
    if axis.high is not None:
        # a y axis from zero reaches beyond its own end if its values do
        last = max(last, axis.high) if axis.scale == "from zero" and not is_x else axis.high
    if last <= first:
        last = first * 2 if is_log else first + max(1.0, 1e-6 * abs(first))
    return first, last


def linear_ticks(low: float, high: float, most: int, *, is_whole: bool = False) -> list[float]:
    """Multiples of 1, 2 or 5 times a power of ten, at most `most` + 1 of them; whole numbers if `is_whole`."""
    exponent = math.floor(math.log10((high - low) / most))
    steps = (digit * 10.0**power for power in itertools.count(exponent) for digit in (1, 2, 5))
    step = next(one for one in steps if (high - low) / one <= most * (1 + 1e-9) and (one >= 1 or not is_whole))
    slack = 1e-9 * (high - low) / step
    numbers = range(math.ceil(low / step - slack), math.floor(high / step + slack) + 1)
    return [float(f"{number * step:.12g}") for number in numbers]


def log_ticks(low: float, high: float) -> list[float]:
    """1, 2 and 5 times the powers of ten; powers alone where those are too many, and round values where they are too few."""
    powers = range(math.floor(math.log10(low)), math.ceil(math.log10(high)) + 1)
    found = [tick for power in powers for digit in (1, 2, 5) if low <= (tick := float(f"{digit}e{power}")) <= high]
    if len(found) > _MOST_LOG_TICKS:
        decades = [tick for tick in found if f"{tick:e}".startswith("1.0")]
        return decades[:: -(-len(decades) // _MOST_LOG_TICKS)]
    if len(found) > 2:
        return found
    between = (float(f"{low * (high / low) ** (part / 3):.2g}") for part in range(4))
    return [tick for tick in dict.fromkeys(between) if low <= tick <= high]


def date_ticks(low: float, high: float, most: int) -> Sequence[float]:
    """Days since 1970-01-01 at equal distances, or the first days of months."""
    apart = (high - low) / most
    if step := next((days for days in _DAYS if days >= apart), None):
        return [float(day) for day in range(math.ceil(low / step) * step, math.floor(high) + 1, step)]
    return list(_first_days(low, high, next((months for months in _MONTHS if months * _DAYS_A_MONTH >= apart), _MONTHS[-1])))


def _first_days(low: float, high: float, months: int) -> Iterator[float]:
    """The first day of every `months`-th month."""
    begin = Date.fromordinal(_EPOCH + math.floor(low))
    for month in itertools.count(-(-(begin.year * 12 + begin.month - 1) // months) * months, months):
        day = Date(month // 12, month % 12 + 1, 1).toordinal() - _EPOCH
        if day > high:
            return
        if day >= low:
            yield float(day)
