"""Charts as data, with the scales of their axes; `chart_svg` draws them."""

import dataclasses
import itertools
import math
from collections.abc import Iterator, Sequence
from typing import Literal

from perfkit.clock import Date

Colour = tuple[str, str]
"""A colour on a light and on a dark background."""
BLUE: Colour = ("#0072b2", "#4fb0e6")  # after Okabe and Ito, for colour-blind readers
VERMILLION: Colour = ("#d55e00", "#ff8c42")
GREEN: Colour = ("#007a5a", "#3cc79c")
PURPLE: Colour = ("#8a4f7d", "#d48fc4")
INK: Colour = ("#24292f", "#dfe3e8")
BACK: Colour = ("#ffffff", "#15191e")
MUTED: Colour = ("#57606a", "#9aa4af")
RED: Colour = ("#b3261e", "#ff9a92")
"""The colour of failures and figures that are not valid; no series of its own has it."""

Scale = Literal["linear", "from zero", "log", "date"]
"""`date` has days since 1970-01-01, shown as dates."""
Style = Literal[
    "line", "dashed", "dotted", "dots", "hollow", "large", "large hollow", "cross", "large cross", "steps", "path", "dashed path"
]
"""A `path` joins the values in the order given; `steps` holds each value until the next. The other lines need ascending xs."""
_REACH = 4.0  # an interval or a level further from the values than this factor does not set the scale


@dataclasses.dataclass(frozen=True, slots=True)
class Axis:
    """An axis; without `ticks`, they follow from its scale."""

    label: str
    unit: str = ""
    """The unit shown after a value, such as `ms`."""
    scale: Scale = "from zero"
    ticks: tuple[tuple[float, str], ...] = ()
    low: float | None = None
    high: float | None = None
    """The ends of the axis; None takes those of the values. A y axis from zero reaches beyond `high` if its values do."""
    is_percentile: bool = False
    """Whether a value x is the percentile 1 - 1/x, and is shown as that."""
    is_whole: bool = False
    """Whether the values are whole numbers, such as replicas, so that no tick lies between them."""


@dataclasses.dataclass(frozen=True, slots=True)
class Line:
    """A series of values; a y of None is a gap."""

    name: str
    xs: tuple[float, ...]
    ys: tuple[float | None, ...]
    colour: Colour = BLUE
    style: Style = "line"
    intervals: tuple[tuple[float, float, float, float] | None, ...] = ()
    """For each value, if given: the ends of its interval in x, then in y; None where it is unknown."""
    band: tuple[tuple[float, float], ...] = ()
    """For each value, if given: the lower and the upper edge of a shaded band around the line."""
    labels: tuple[str, ...] = ()
    """For each value, if given: what it belongs to, such as a load. A page shows it with the value."""

    @classmethod
    def of(cls, name: str, values: Sequence[tuple[float, float | None]], colour: Colour = BLUE, style: Style = "line") -> "Line":
        """A line through pairs of x and y."""
        return cls(name, tuple(x for x, _ in values), tuple(y for _, y in values), colour, style)


@dataclasses.dataclass(frozen=True, slots=True)
class Span:
    """A shaded, named range of the x axis; `is_bad` marks one with unreliable figures."""

    low: float
    high: float
    label: str
    is_bad: bool = False


@dataclasses.dataclass(frozen=True, slots=True)
class Level:
    """A labelled straight line at a value of the y axis, or of the x axis if `is_vertical`."""

    value: float
    label: str
    is_vertical: bool = False
    colour: Colour = INK
    key: str = ""
    """What a vertical one means, in the legend."""


@dataclasses.dataclass(frozen=True, slots=True)
class HeatColumn:
    """The requests of one time slice in bins of the y axis; bin `first_bin + i` has `counts[i]` requests."""

    low: float
    high: float
    first_bin: int
    counts: tuple[int, ...]


@dataclasses.dataclass(frozen=True, slots=True)
class Heat:
    """A heat map behind the lines. Bin k covers the values from 10^(k/bins_per_decade) to 10^((k+1)/bins_per_decade)."""

    bins_per_decade: int
    columns: tuple[HeatColumn, ...]


@dataclasses.dataclass(frozen=True, slots=True)
class Chart:
    """One panel of a figure."""

    title: str
    x: Axis
    y: Axis
    lines: tuple[Line, ...]
    spans: tuple[Span, ...] = ()
    levels: tuple[Level, ...] = ()
    heat: Heat | None = None
    height_px: int = 260

    def ends_of_x(self) -> tuple[float, float] | None:
        """The lowest and the highest x of the values and of their intervals; None without values."""
        values = [x for line in self.lines for x in line.xs if math.isfinite(x)]
        return _ends(self.x, values, [end for line in self.lines for interval in line.intervals if interval for end in interval[:2]], ())

    def ends_of_y(self) -> tuple[float, float] | None:
        """The lowest and the highest y of the values, their intervals, the bands and the horizontal levels; None without values."""
        values = [y for line in self.lines for y in line.ys if y is not None and math.isfinite(y)]
        beside = [end for line in self.lines for interval in line.intervals if interval for end in interval[2:]]
        beside += [edge for line in self.lines for edges in line.band for edge in edges]
        return _ends(self.y, values, beside, [level.value for level in self.levels if not level.is_vertical])


@dataclasses.dataclass(frozen=True, slots=True)
class ChartGroup:
    """The panels of one figure."""

    charts: tuple[Chart, ...]
    columns: int = 1
    """The number of panels in a row, if there is room."""
    is_synchronised: bool = False
    """Whether the panels share their x axis, cursor and zoom."""
    axis: str = ""
    """The name of the x axis; figures of a page with the same name share cursor and zoom. Empty for an axis of its own."""
    windows: tuple[Span, ...] = ()
    """Named ranges of the shared axis, to which a reader can zoom."""


def faded(colour: Colour) -> Colour:
    """A colour mixed with the background, for a less important line."""
    return mixed(colour[0], BACK[0], 0.45), mixed(colour[1], BACK[1], 0.4)


def mixed(first: str, second: str, share: float) -> str:
    """A mixture of two colours such as `#0072b2`; `share`, from 0 to 1, is that of the second."""
    parts = zip((first[1:3], first[3:5], first[5:7]), (second[1:3], second[3:5], second[5:7]), strict=True)
    return "#" + "".join(f"{round(int(one, 16) * (1 - share) + int(other, 16) * share):02x}" for one, other in parts)


def times_scale(values: Sequence[float]) -> Scale:
    """The scale for times: logarithmic if the longest is over 12 times the shortest, otherwise from zero."""
    return "log" if values and min(values) > 0 and max(values) > 12 * min(values) else "from zero"


def _ends(axis: Axis, values: Sequence[float], beside: Sequence[float], levels: Sequence[float]) -> tuple[float, float] | None:
    """The ends of the values with what is beside them; unless the axis is linear, only what is near the values sets the scale."""
    if not values:
        return None
    low, high = min(values), max(values)
    known = [one for one in beside if math.isfinite(one)]
    if axis.scale in ("linear", "date"):
        return min([low, *known, *levels]), max([high, *known, *levels])
    known = [min(max(one, low / _REACH), high * _REACH) for one in known]
    known += [level for level in levels if low / _REACH <= level <= high * _REACH or (axis.scale == "from zero" and 0 <= level < low)]
    return min([low, *known]), max([high, *known])


_MOST_LOG_TICKS, _FINE_DIGITS = 9, (1, 1.5, 2, 3, 4, 5, 6, 8)
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
    if len(found) < 3:
        found = [tick for power in powers for digit in _FINE_DIGITS if low <= (tick := float(f"{digit}e{power}")) <= high]
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
