"""The instants at which requests are meant to start: seeded arrival processes and the shapes of their rate.

Instants are nanoseconds from the start of the load. Arrivals at a changing rate are those at the constant rate 1, mapped
through the inverse of the integrated rate (time rescaling; Brown et al. 2002 give the inverse direction). This
preserves the character of every process, and a seed always gives the same instants.
"""

import dataclasses
import itertools
import math
from collections.abc import Iterator, Sequence
from typing import Literal, TypeAlias

import numpy as np
import numpy.typing as npt

from perfkit.units import NS_PER_S

Instants: TypeAlias = npt.NDArray[np.int64]
Law: TypeAlias = Literal["constant", "poisson", "gamma"]

# part of the meaning of a seed: another size would give other instants
_CHUNK = 4096
_NEVER_NS = 2.0**60  # later than any run; an origin can be added without overflow


@dataclasses.dataclass(frozen=True, slots=True)
class Segment:
    """A period over which the rate changes linearly; `length_s` of the last one is infinite."""

    length_s: float
    from_per_s: float
    to_per_s: float

    @property
    def arrivals(self) -> float:
        """The expected number of arrivals."""
        return self.length_s * (self.from_per_s + self.to_per_s) / 2


def constant_rate(rate_per_s: float) -> tuple[Segment, ...]:
    """A rate that never changes."""
    return (Segment(math.inf, rate_per_s, rate_per_s),)


def ramp(rate_per_s: float, to: float, over_s: float) -> tuple[Segment, ...]:
    """A linear change from the rate to `to` times the rate, which then stays."""
    return (Segment(over_s, rate_per_s, rate_per_s * to), Segment(math.inf, rate_per_s * to, rate_per_s * to))


def steps(rate_per_s: float, levels: Sequence[float], each_s: float) -> tuple[Segment, ...]:
    """Multiples of the rate, `each_s` long; the last one stays."""
    rates = [rate_per_s * level for level in levels]
    return (*(Segment(each_s, rate, rate) for rate in rates[:-1]), Segment(math.inf, rates[-1], rates[-1]))


def spike(rate_per_s: float, to: float, at_s: float, length_s: float) -> tuple[Segment, ...]:
    """`to` times the rate from `at_s` for `length_s`, and the rate itself before and after."""
    high = rate_per_s * to
    return (Segment(at_s, rate_per_s, rate_per_s), Segment(length_s, high, high), Segment(math.inf, rate_per_s, rate_per_s))


def sine(rate_per_s: float, amplitude: float, period_s: float, length_s: float, pieces: int) -> tuple[Segment, ...]:
    """A rate that varies as a sine by the share `amplitude`, in so many linear pieces per period; with 256, it is exact to 1 in 10,000."""
    count = math.ceil(length_s / period_s * pieces)
    step_s = period_s / pieces
    rates = [rate_per_s * (1 + amplitude * math.sin(2 * math.pi * index / pieces)) for index in range(count + 1)]
    lines = tuple(Segment(step_s, first, second) for first, second in itertools.pairwise(rates))
    return (*lines, Segment(math.inf, rate_per_s, rate_per_s))


def lead_in(segments: tuple[Segment, ...], length_s: float) -> tuple[Segment, ...]:
    """The segments after a warm-up at their initial rate."""
    first = segments[0].from_per_s
    return (Segment(length_s, first, first), *segments) if length_s else segments


@dataclasses.dataclass(frozen=True, slots=True)
class Schedule:
    """All arrivals of one load point: an arrival process and its rate.

    `burstiness` is the coefficient of variation of the gaps of a gamma process: 1 is Poisson, more is burstier.
    """

    law: Law
    segments: tuple[Segment, ...]
    seed: tuple[int, ...] = (0,)
    burstiness: float = 1.0

    def chunks(self) -> Iterator[Instants]:
        """The instants in ascending order, without end, in arrays of some thousands."""
        random = np.random.Generator(np.random.Philox(np.random.SeedSequence(self.seed)))
        rescaling = _Rescaling(self.segments)
        last = 0.0
        while True:
            ticks = last + np.cumsum(self._gaps(random))
            last = float(ticks[-1])
            yield rescaling.instants(ticks)

    def _gaps(self, random: "np.random.Generator") -> npt.NDArray[np.float64]:
        """Gaps with mean 1."""
        match self.law:
            case "constant":
                return np.ones(_CHUNK)
            case "poisson":
                return random.exponential(1.0, _CHUNK)
            case "gamma":
                shape = self.burstiness**-2
                return random.gamma(shape, 1 / shape, _CHUNK)


@dataclasses.dataclass(frozen=True, slots=True, eq=False)
class Trace:
    """Recorded arrivals: ascending instants in nanoseconds, repeated every `repeat_ns` if that is not 0."""

    instants_ns: Instants
    repeat_ns: int = 0

    @property
    def last_ns(self) -> int:
        """The instant of the last arrival; 0 without arrivals."""
        return int(self.instants_ns[-1]) if self.instants_ns.size else 0

    def chunks(self) -> Iterator[Instants]:
        """The instants in ascending order, without end if the trace is repeated."""
        offset_ns = 0
        while self.instants_ns.size:
            yield self.instants_ns + offset_ns
            if not self.repeat_ns:
                return
            offset_ns += self.repeat_ns


def first_chunk_ready(chunks: Iterator[Instants]) -> Iterator[Instants]:
    """The same chunks with the first one computed now, since a long trace or a complex shape takes a while."""
    first = list(itertools.islice(chunks, 1))
    return itertools.chain(first, chunks)


def worker_arrivals(chunks: Iterator[Instants], worker: int, workers: int) -> Iterator[Instants]:
    """The arrivals i with i ≡ worker (mod workers), so that the workers together offer each arrival once."""
    before = 0
    for chunk in chunks:
        yield chunk[(worker - before) % workers :: workers]
        before += chunk.size


def count_worker_arrivals(chunks: Iterator[Instants], from_ns: int, count: int, worker: int, workers: int) -> int:
    """How many of the first `count` arrivals from `from_ns` on belong to a worker; see `worker_arrivals`."""
    before = 0
    for chunk in chunks:
        late = int(np.searchsorted(chunk, from_ns))
        if late < chunk.size:
            first = (worker - before - late) % workers
            return len(range(first, count, workers))
        before += chunk.size
    return 0


def from_timestamps(seconds: Sequence[float] | npt.NDArray[np.float64]) -> Trace:
    """A trace from timestamps in seconds, the first of which is the start of the load. Raises ValueError if they decrease."""
    values = np.asarray(seconds, dtype=np.float64)
    if values.size and (np.diff(values) < 0).any():
        raise ValueError("the timestamps decrease: sort them in ascending order")
    return Trace(np.rint((values - values[:1].sum()) * NS_PER_S).astype(np.int64))


def from_intervals(seconds: Sequence[float] | npt.NDArray[np.float64]) -> Trace:
    """A trace from gaps in seconds, the first of which precedes the first arrival. Raises ValueError for a negative gap."""
    values = np.asarray(seconds, dtype=np.float64)
    if (values < 0).any():
        raise ValueError("an interval is negative")
    return Trace(np.rint(np.cumsum(values) * NS_PER_S).astype(np.int64))


class _Rescaling:
    """Maps arrivals at rate 1 to instants: the inverse of the integrated rate, segment by segment."""

    def __init__(self, segments: Sequence[Segment]) -> None:
        self._starts_s = np.cumsum([0.0, *(segment.length_s for segment in segments[:-1])])
        self._ticks = np.cumsum([0.0, *(segment.arrivals for segment in segments[:-1])])
        self._from = np.array([segment.from_per_s for segment in segments])
        self._slopes = np.array([(segment.to_per_s - segment.from_per_s) / segment.length_s for segment in segments])

    def instants(self, ticks: npt.NDArray[np.float64]) -> Instants:
        index = np.searchsorted(self._ticks, ticks, side="right") - 1
        inside, rate, slope = ticks - self._ticks[index], self._from[index], self._slopes[index]
        # rate * t + slope * t**2 / 2 = inside, solved in the form that is stable for a slope of 0
        root = np.sqrt(np.maximum(rate**2 + 2 * slope * inside, 0.0))
        seconds = np.divide(2 * inside, rate + root, out=np.zeros_like(inside), where=(rate + root) > 0)
        at_ns = np.rint((self._starts_s[index] + seconds) * NS_PER_S)
        instants: Instants = np.minimum(at_ns, _NEVER_NS).astype(np.int64)
        return instants
