"""When requests are meant to start: seeded laws of arrival, and the shapes that move their rate, as exact instants.

Instants are nanoseconds from the start of the load. Arrivals of a changing rate come from those of the constant rate 1
by running its clock faster and slower (time rescaling; Brown et al. 2002 for the inverse direction), so every law keeps
its character, and the same seed gives the same instants whoever asks for them.
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

# part of what a seed means: another size would give other instants
_CHUNK = 4096
_SINE_STEPS = 256
_NEVER_NS = 2.0**60  # beyond any run, within what an integer holds when an origin is added


@dataclasses.dataclass(frozen=True, slots=True)
class Segment:
    """A stretch of time in which the rate moves in a straight line; `length_s` is infinite in the last one."""

    length_s: float
    from_per_s: float
    to_per_s: float

    @property
    def arrivals(self) -> float:
        """How many arrivals are expected in it."""
        return self.length_s * (self.from_per_s + self.to_per_s) / 2


def constant_rate(rate_per_s: float) -> tuple[Segment, ...]:
    """One rate for ever."""
    return (Segment(math.inf, rate_per_s, rate_per_s),)


def ramp(rate_per_s: float, to: float, over_s: float) -> tuple[Segment, ...]:
    """From the rate to `to` times the rate in a straight line, and on at that."""
    return (Segment(over_s, rate_per_s, rate_per_s * to), Segment(math.inf, rate_per_s * to, rate_per_s * to))


def steps(rate_per_s: float, levels: Sequence[float], each_s: float) -> tuple[Segment, ...]:
    """Multiples of the rate, one after the other; the last one stays."""
    rates = [rate_per_s * level for level in levels]
    return (*(Segment(each_s, rate, rate) for rate in rates[:-1]), Segment(math.inf, rates[-1], rates[-1]))


def spike(rate_per_s: float, to: float, at_s: float, length_s: float) -> tuple[Segment, ...]:
    """The rate, `to` times the rate for a while, and the rate again."""
    high = rate_per_s * to
    return (Segment(at_s, rate_per_s, rate_per_s), Segment(length_s, high, high), Segment(math.inf, rate_per_s, rate_per_s))


def sine(rate_per_s: float, amplitude: float, period_s: float, length_s: float) -> tuple[Segment, ...]:
    """The rate up and down by a share of it, for that long, in straight pieces: 256 a period, right to 1 in 10,000."""
    count = math.ceil(length_s / period_s * _SINE_STEPS)
    step_s = period_s / _SINE_STEPS
    rates = [rate_per_s * (1 + amplitude * math.sin(2 * math.pi * index / _SINE_STEPS)) for index in range(count + 1)]
    pieces = tuple(Segment(step_s, first, second) for first, second in itertools.pairwise(rates))
    return (*pieces, Segment(math.inf, rate_per_s, rate_per_s))


def lead_in(segments: tuple[Segment, ...], length_s: float) -> tuple[Segment, ...]:
    """The segments behind a warm-up at the rate with which they begin."""
    first = segments[0].from_per_s
    return (Segment(length_s, first, first), *segments) if length_s else segments


@dataclasses.dataclass(frozen=True, slots=True)
class Schedule:
    """All arrivals of one load point: a law, and the rate that it follows.

    `burstiness` is the coefficient of variation of the gaps of a gamma law: 1 is Poisson, above is burstier.
    """

    law: Law
    segments: tuple[Segment, ...]
    seed: tuple[int, ...] = (0,)
    burstiness: float = 1.0

    def chunks(self) -> Iterator[Instants]:
        """The instants in ascending order, without end, some thousands at a time."""
        random = np.random.Generator(np.random.Philox(np.random.SeedSequence(self.seed)))
        clock = _Rescaling(self.segments)
        last = 0.0
        while True:
            ticks = last + np.cumsum(self._gaps(random))
            last = float(ticks[-1])
            yield clock.instants(ticks)

    def _gaps(self, random: np.random.Generator) -> npt.NDArray[np.float64]:
        """Gaps of mean 1."""
        match self.law:
            case "constant":
                return np.ones(_CHUNK)
            case "poisson":
                return random.exponential(1.0, _CHUNK)
            case "gamma":
                shape = self.burstiness**-2
                return random.gamma(shape, 1 / shape, _CHUNK)


@dataclasses.dataclass(frozen=True, slots=True)
class Trace:
    """Arrivals written down: instants in nanoseconds from the load's start, ascending; `repeat_ns` begins them again."""

    instants_ns: tuple[int, ...]
    repeat_ns: int = 0

    def chunks(self) -> Iterator[Instants]:
        """The instants in ascending order; they end where the trace is not repeated."""
        instants, offset_ns = np.array(self.instants_ns, dtype=np.int64), 0
        while instants.size:
            yield instants + offset_ns
            if not self.repeat_ns:
                return
            offset_ns += self.repeat_ns


def first_chunk_ready(chunks: Iterator[Instants]) -> Iterator[Instants]:
    """The same chunks, the first of them made now: a long trace or an intricate shape takes a while, which nobody waits for later."""
    first = list(itertools.islice(chunks, 1))
    return itertools.chain(first, chunks)


def worker_arrivals(chunks: Iterator[Instants], worker: int, workers: int) -> Iterator[Instants]:
    """The arrivals i = worker mod workers: together the workers offer the whole schedule, and nobody offers one twice."""
    before = 0
    for chunk in chunks:
        yield chunk[(worker - before) % workers :: workers]
        before += chunk.size


def count_worker_arrivals(chunks: Iterator[Instants], from_ns: int, count: int, worker: int, workers: int) -> int:
    """How many of the first `count` arrivals at `from_ns` or later are those of a worker; see `worker_arrivals`."""
    before = 0
    for chunk in chunks:
        late = int(np.searchsorted(chunk, from_ns))
        if late < chunk.size:
            first = (worker - before - late) % workers
            return len(range(first, count, workers))
        before += chunk.size
    return 0


def from_timestamps(seconds: Sequence[float] | npt.NDArray[np.float64]) -> Trace:
    """A trace of instants in seconds; the first one is the load's start. Raises ValueError where they go back."""
    values = np.asarray(seconds, dtype=np.float64)
    if values.size and (np.diff(values) < 0).any():
        raise ValueError("the timestamps go back: they must ascend")
    return Trace(tuple(int(one) for one in np.rint((values - values[:1].sum()) * NS_PER_S)))


def from_intervals(seconds: Sequence[float] | npt.NDArray[np.float64]) -> Trace:
    """A trace of gaps in seconds, the first one before the first arrival. Raises ValueError for a negative one."""
    values = np.asarray(seconds, dtype=np.float64)
    if (values < 0).any():
        raise ValueError("an interval is negative")
    return Trace(tuple(int(one) for one in np.rint(np.cumsum(values) * NS_PER_S)))


class _Rescaling:
    """From the ticks of a clock that runs at the rate to instants: the inverse of the rate's integral, piece by piece."""

    def __init__(self, segments: Sequence[Segment]) -> None:
        self._segments = segments
        lengths_s = [segment.length_s for segment in segments[:-1]]
        self._starts_s = np.concatenate([[0.0], np.cumsum(lengths_s)])
        self._ticks = np.concatenate([[0.0], np.cumsum([segment.arrivals for segment in segments[:-1]])])
        self._from = np.array([segment.from_per_s for segment in segments])
        slopes = [0.0 if math.isinf(one.length_s) else (one.to_per_s - one.from_per_s) / one.length_s for one in segments]
        self._slopes = np.array(slopes)

    def instants(self, ticks: npt.NDArray[np.float64]) -> Instants:
        index = np.searchsorted(self._ticks, ticks, side="right") - 1
        inside, rate, slope = ticks - self._ticks[index], self._from[index], self._slopes[index]
        # rate * t + slope * t**2 / 2 = inside, solved so that a slope of 0 divides by nothing
        root = np.sqrt(np.maximum(rate**2 + 2 * slope * inside, 0.0))
        seconds = np.divide(2 * inside, rate + root, out=np.zeros_like(inside), where=(rate + root) > 0)
        at_ns = np.rint((self._starts_s[index] + seconds) * NS_PER_S)
        instants: Instants = np.minimum(at_ns, _NEVER_NS).astype(np.int64)
        return instants
