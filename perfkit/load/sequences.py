"""The sequences of a load point: their lengths, their ids, and how far each has come."""

import dataclasses
import secrets
from collections.abc import Iterator
from typing import Literal

import numpy as np
import numpy.typing as npt

from perfkit.load.arrivals import worker_arrivals

# part of the meaning of a seed: another size would give other lengths
_CHUNK = 4096
# all of one width: 19 digits, and 9 bytes as a varint
_LOWEST_RANDOM_ID, _RANDOM_IDS = 10**18, 7 * 10**18
# for 32 bits with a sign: 10 digits, and 5 bytes as a varint
_LOWEST_SHORT_ID, _SHORT_IDS = 10**9, 10**9


@dataclasses.dataclass(frozen=True, slots=True)
class LengthLaw:
    """The distribution of the number of steps: uniform between two numbers, which may be equal, or geometric with a mean."""

    low: int = 1
    high: int = 1
    geometric_mean: float | None = None

    @property
    def mean(self) -> float:
        """The mean number of steps."""
        return (self.low + self.high) / 2 if self.geometric_mean is None else self.geometric_mean

    def chunks(self, seed: tuple[int, ...]) -> Iterator[npt.NDArray[np.int64]]:
        """Independent lengths without end, in arrays of some thousands; the same for the same seed."""
        random = np.random.Generator(np.random.Philox(np.random.SeedSequence(seed)))
        while True:
            if self.geometric_mean is not None:
                yield random.geometric(1 / self.geometric_mean, _CHUNK)
            else:
                yield random.integers(self.low, self.high, _CHUNK, endpoint=True)


def random_first_id() -> int:
    """The first id of a load point, with room for a quintillion more: those of two runs do not overlap, except once in 10^9 pairs."""
    return _LOWEST_RANDOM_ID + secrets.randbelow(_RANDOM_IDS)


@dataclasses.dataclass(frozen=True, slots=True)
class SequencePlan:
    """The sequences of a load point; `live` is their number if the arrivals of an open loop are steps, and None otherwise."""

    length: LengthLaw | None
    """None for the lengths of the streams that the sequences take."""
    first_id: int
    seed: tuple[int, ...] = (0,)
    live: int | None = None
    ids: Literal["integer", "string"] = "integer"
    think_time_ns: int = 0
    stream_lengths: tuple[int, ...] = ()
    """The steps of each stream of input data, which sequences take in turn; empty without input data."""
    id_count: int | None = None
    """The number of integer ids, which are used again; None without a limit. There are at least as many as live sequences."""

    def within(self, highest_id: int | None) -> "SequencePlan":
        """The plan for a model that does not take ids above this one, if any: with random ids of 31 bits in place of higher ones.

        Each load point counts on from a random id, so that load points of two clients, measured at the same time on one server,
        rarely use the same ids: with n sequences each, the probability is about 2n in 10^9.
        """
        if highest_id is None or self.ids == "string" or self.first_id <= highest_id:
            return self
        return dataclasses.replace(self, first_id=_LOWEST_SHORT_ID + secrets.randbelow(_SHORT_IDS))

    @property
    def requests_per_arrival(self) -> float:
        """The mean number of requests that an arrival of an open loop causes."""
        return self._mean_length if self.live is None else 1.0

    @property
    def _mean_length(self) -> float:
        if self.length is not None:
            return self.length.mean
        return sum(self.stream_lengths) / len(self.stream_lengths)


@dataclasses.dataclass(slots=True, eq=False)
class LiveSequence:
    """A sequence: its id, the number of its steps, and those that were sent."""

    id: int | str
    length: int
    sent: int = 0
    start_ns: int = 0
    """The start of its first step; in an open loop the intended one."""
    encoded_id: bytes = b""
    """The id as the requests carry it; empty before the first step."""
    stream: int = 0
    """The number of its stream of input data."""

    @property
    def is_over(self) -> bool:
        """Whether its last step was sent."""
        return self.sent >= self.length


class SequenceSource:
    """The sequences of worker k of n: those with the numbers i ≡ k (mod n), so that workers share neither lengths nor ids."""

    def __init__(self, plan: SequencePlan, worker: int = 0, workers: int = 1) -> None:
        self._number, self._workers, self._stream_lengths = worker, workers, plan.stream_lengths or (0,)
        self._lengths = None if plan.length is None else _lengths_of_worker(plan.length, plan.seed, worker, workers)
        self._ids = None if plan.id_count is None else _IdCycle(plan.first_id, plan.id_count, worker, workers)
        self._first_id, self._prefix = plan.first_id, f"perfkit-{plan.first_id:016x}-" if plan.ids == "string" else ""

    def next(self) -> LiveSequence:
        """The next sequence. With a limited number of ids, `has_free_id` must be true, and `release` says which are free again."""
        number = self._number
        self._number += self._workers
        stream = number % len(self._stream_lengths)
        length = self._stream_lengths[stream] if self._lengths is None else next(self._lengths)
        sequence_id = f"{self._prefix}{number:012d}" if self._prefix else self._first_id + number if self._ids is None else self._ids.take()
        return LiveSequence(sequence_id, length, stream=stream)

    @property
    def reuses_ids(self) -> bool:
        """Whether the number of ids is limited."""
        return self._ids is not None

    @property
    def has_free_id(self) -> bool:
        """Whether `next` finds an id."""
        return self._ids is None or self._ids.has_free

    def release(self, sequence: LiveSequence) -> None:
        """Lets the id of a sequence be used again, once the server no longer holds it."""
        if self._ids is not None:
            self._ids.release(int(sequence.id))


class _IdCycle:
    """The ids of worker k of n in a range, counting up and starting over; ids that are in use are left out."""

    def __init__(self, first_id: int, count: int, worker: int, workers: int) -> None:
        self._ids = range(first_id + worker, first_id + count, workers)
        self._taken, self._in_use = 0, set[int]()

    @property
    def has_free(self) -> bool:
        """Whether any id is not in use."""
        return len(self._in_use) < len(self._ids)

    def take(self) -> int:
        """The next id that is not in use; there must be one."""
        while True:
            sequence_id = self._ids[self._taken % len(self._ids)]
            self._taken += 1
            if sequence_id not in self._in_use:
                self._in_use.add(sequence_id)
                return sequence_id

    def release(self, sequence_id: int) -> None:
        """Ends the use of an id."""
        self._in_use.discard(sequence_id)


def _lengths_of_worker(law: LengthLaw, seed: tuple[int, ...], worker: int, workers: int) -> Iterator[int]:
    chunks = worker_arrivals(law.chunks(seed), worker, workers)
    return (length for chunk in chunks for length in chunk.tolist())
