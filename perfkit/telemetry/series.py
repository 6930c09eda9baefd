"""Series on the requests' clock, and what every sampler that takes them has in common.

Samplers run in a process of their own (`perfkit.telemetry.sampler_process`), each in one thread, so that they may block: a slow
driver or a server that does not answer holds up neither the load nor its neighbours. A load point's window is known only
when it is over, since its warm-up may be found in what was measured. So a sampler keeps what it took, and is asked for a
window afterwards.
"""

import array
import bisect
import dataclasses
from collections.abc import Mapping, Sequence
from typing import Generic, Protocol, TypeVar

from perfkit.errors import MeasurementWarning

_Summary_co = TypeVar("_Summary_co", covariant=True)


@dataclasses.dataclass(frozen=True, slots=True)
class Series:
    """One quantity over time. `times_ns` are instants of the monotonic clock, ascending, each when its value was new."""

    name: str
    unit: str
    """`share` (of one), `bytes`, `W`, `J`, `MHz`, `celsius`, `per_s`, `ns`, `count`, or empty where nobody says."""
    labels: Mapping[str, str]
    times_ns: tuple[int, ...]
    values: tuple[float, ...]

    def between(self, start_ns: int, end_ns: int) -> "Series":
        """The samples of that span, both ends included."""
        first, last = bisect.bisect_left(self.times_ns, start_ns), bisect.bisect_right(self.times_ns, end_ns)
        return dataclasses.replace(self, times_ns=self.times_ns[first:last], values=self.values[first:last])

    def last(self) -> "Series | None":
        """The newest sample alone; None where there is none."""
        return dataclasses.replace(self, times_ns=self.times_ns[-1:], values=self.values[-1:]) if self.values else None

    @property
    def mean(self) -> float | None:
        """The mean of the samples, each counting the same; None without any."""
        return sum(self.values) / len(self.values) if self.values else None


class SeriesBuffer:
    """A series as it grows, of one quantity; from the sampler's thread alone."""

    def __init__(self, name: str, unit: str, labels: Mapping[str, str] | None = None) -> None:
        self.name, self.unit, self.labels = name, unit, dict(labels or {})
        self._times_ns, self._values = array.array("q"), array.array("d")  # eight bytes each, through a run of hours

    def add(self, time_ns: int, value: float) -> None:
        """Takes a sample; one that is no newer than the last is the same sample seen again, and is passed over."""
        if not self._times_ns or time_ns > self._times_ns[-1]:
            self._times_ns.append(time_ns)
            self._values.append(value)

    @property
    def latest(self) -> float | None:
        """The newest value; None where there is none yet."""
        return self._values[-1] if self._values else None

    @property
    def span_ns(self) -> tuple[int, int] | None:
        """The instants of the first and the last sample; None where there is none."""
        return (self._times_ns[0], self._times_ns[-1]) if self._times_ns else None

    def between(self, start_ns: int, end_ns: int) -> Series:
        """What it has of that span, both ends included."""
        first, last = bisect.bisect_left(self._times_ns, start_ns), bisect.bisect_right(self._times_ns, end_ns)
        return Series(self.name, self.unit, self.labels, tuple(self._times_ns[first:last]), tuple(self._values[first:last]))

    def around(self, start_ns: int, end_ns: int) -> Series:
        """What it has of that span, with the samples next to its ends on either side."""
        first, last = bisect.bisect_right(self._times_ns, start_ns) - 1, bisect.bisect_left(self._times_ns, end_ns)
        reached = self._times_ns[max(first, 0) : last + 1]
        return self.between(reached[0], reached[-1]) if reached else self.between(start_ns, end_ns)

    def whole(self) -> Series:
        """All that it has."""
        return Series(self.name, self.unit, self.labels, tuple(self._times_ns), tuple(self._values))

    def at(self, instant_ns: int) -> float | None:
        """The value then, on a straight line between the samples around it; that of the nearest beyond the ends."""
        if not self._times_ns:
            return None
        after = bisect.bisect_left(self._times_ns, instant_ns)
        if after in (0, len(self._times_ns)):
            return self._values[min(after, len(self._values) - 1)]
        (t0, t1), (v0, v1) = self._times_ns[after - 1 : after + 1], self._values[after - 1 : after + 1]
        return v0 + (v1 - v0) * (instant_ns - t0) / (t1 - t0)

    def forget_before(self, instant_ns: int) -> None:
        """Lets go of what no later window needs; the last sample before it stays, for `at`."""
        first = max(bisect.bisect_left(self._times_ns, instant_ns) - 1, 0)
        del self._times_ns[:first], self._values[:first]


@dataclasses.dataclass(frozen=True, slots=True)
class SamplerReport(Generic[_Summary_co]):
    """What a sampler saw of one window: figures for `result.json`, series for the telemetry file."""

    summary: _Summary_co | None
    series: tuple[Series, ...] = ()
    warnings: tuple[MeasurementWarning, ...] = ()


class Sampler(Protocol[_Summary_co]):
    """Takes samples of one source. Every call comes from the same thread, and may block.

    No call raises for what the source does: what is not there, not allowed, or lost in the middle is said once, in `notes`,
    and the sampler goes on with the rest.
    """

    notes: list[str]
    """Whole sentences for the run as a whole, such as that there is no driver; whoever drives it takes them out."""

    def start(self) -> bool:
        """Opens the source, before any load; False where there is nothing to sample: then nothing but `close` follows."""
        ...

    def sample(self) -> int | None:
        """Takes what is new, and gives the instant from which on it is worth coming back; None for never."""
        ...

    def window(self, start_ns: int, end_ns: int) -> SamplerReport[_Summary_co]:
        """What it has of that span, right after it; windows ascend, and nothing before one is asked for again."""
        ...

    def latest(self) -> Sequence[Series]:
        """The newest sample of each series, for who watches the run."""
        ...

    def close(self) -> None:
        """Lets go of the source; also where `start` gave False."""
        ...
