"""Sequence batching as Triton does it: requests of one id go to one place in their order, and are told where in it they stand.

Direct: a sequence has a slot of one instance until it ends. Oldest: sequences are candidates for dynamic batches, with
one request each at a time, first come first served. Pure: no clock, no threads.
"""

import collections
import dataclasses
import enum
import itertools
from collections.abc import Hashable, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from perfkit.errors import ProtocolError
from perfkit.protocol.tensor import Datatype, array_dtype
from server_stub.batching import BatchingLine, BatchingPolicy
from server_stub.line import Taken, Waiting


class ControlKind(enum.Enum):
    """What a control input tells the model; the value is Triton's name behind `CONTROL_SEQUENCE_`."""

    START = "START"
    READY = "READY"
    END = "END"
    CORRID = "CORRID"


@dataclasses.dataclass(frozen=True, slots=True)
class Control:
    """An input that the server fills in: one of two values, or the sequence's id."""

    name: str
    kind: ControlKind
    datatype: Datatype = Datatype.INT32
    false_true: tuple[float, float] = (0, 1)


@dataclasses.dataclass(frozen=True, slots=True)
class SequencePolicy:
    """How a model's sequences are batched; `oldest` None is the direct strategy."""

    controls: tuple[Control, ...] = ()
    max_idle_ns: int = 1_000_000_000
    """After so long without a request a sequence has ended."""
    oldest: BatchingPolicy | None = None
    max_candidates: int = 1
    """Of the oldest strategy: how many sequences are served at a time."""


class _Sequence:
    """A sequence that goes on; `slots` are the ones that it has a place among, None while it waits for one."""

    def __init__(self, key: Hashable) -> None:
        self.key = key
        self.slots: list[_Sequence] | None = None
        self.waiting: collections.deque[Waiting] = collections.deque()
        self.latest_ns = 0
        self.is_ending = False
        self.is_executing = False

    @property
    def is_quiet(self) -> bool:
        """Whether nothing of it waits, or is with the batches."""
        return not self.waiting and not self.is_executing


class SequenceLine:
    """A `server_stub.line.Line` of a model with sequence batching."""

    def __init__(
        self, model: str, policy: SequencePolicy, instances: int, max_batch_size: int, compatible_inputs: Sequence[str] = ()
    ) -> None:
        self._model, self._policy, self._is_batched = model, policy, max_batch_size > 0
        self._compatible_inputs = frozenset(compatible_inputs)
        self._count = 0
        self._known: dict[Hashable, _Sequence] = {}  # those that can be continued, the one continued last behind the others
        self._backlog: collections.deque[_Sequence] = collections.deque()
        self._batches = None if policy.oldest is None else BatchingLine(policy.oldest, max_batch_size, compatible_inputs)
        # of the oldest strategy the candidates, of the direct one the slots of each instance
        self._slots: list[list[_Sequence]] = [[] for _ in range(1 if self._batches else instances)]
        self._slots_each = policy.max_candidates if self._batches else max(1, max_batch_size)
        self._next_idle_ns: int | None = None

    def add(self, waiting: Waiting, now_ns: int) -> None:
        """See `Line.add`."""
        self._end_idle(now_ns)
        parameters = waiting.request.parameters
        key = parameters.get("sequence_id", 0)
        starts, ends = parameters.get("sequence_start") is True, parameters.get("sequence_end") is True
        if key in (0, ""):
            raise ProtocolError(f"inference request to model '{self._model}' must specify a non-zero or non-empty correlation ID")
        if waiting.batch_size > 1:
            raise ProtocolError(
                f"inference request to model '{self._model}' must specify batch-size 1 due to requirements of sequence batcher"
            )
        if not starts and key not in self._known:
            raise ProtocolError(
                f"inference request for sequence {key} to model '{self._model}' must specify the START flag on the first request "
                "of the sequence"
            )
        waiting.controls = {one.name: self._control(one, key, starts=starts, ends=ends) for one in self._policy.controls}
        if starts:
            self._start(key)
        waiting.sequence = sequence = self._known[key]
        sequence.waiting.append(waiting)
        self._touch(sequence, now_ns)
        self._count += 1
        if ends:
            sequence.is_ending = True
            del self._known[key]
        self._fill()
        self._offer(sequence)

    def take(self, now_ns: int, instance: int) -> Taken:
        """See `Line.take`."""
        self._end_idle(now_ns)
        if self._batches is not None:
            taken = self._batches.take(now_ns, instance)
            self._count -= len(taken.batch)
            for waiting in taken.batch:
                self._touch(waiting.sequence, now_ns)
            wakes_ns = [one for one in (taken.wake_ns, self._next_idle_ns if self._backlog else None) if one is not None]
            return taken if taken.batch else Taken((), (), min(wakes_ns, default=None))
        batch: list[Waiting] = []
        for sequence in tuple(self._slots[instance]):
            if sequence.waiting and (not batch or self._shapes(sequence.waiting[0]) == self._shapes(batch[0])):
                batch.append(sequence.waiting.popleft())
                self._touch(sequence, now_ns)
                self._free_if_over(sequence)
        self._count -= len(batch)
        return Taken(batch, (), self._next_idle_ns if self._backlog and not batch else None)

    def discard(self, waiting: Waiting) -> None:
        """See `Line.discard`; the sequence goes on without it."""
        self._count -= 1
        sequence = waiting.sequence
        if waiting in sequence.waiting:
            sequence.waiting.remove(waiting)
        elif self._batches is not None:
            self._batches.discard(waiting)
            sequence.is_executing = False
            self._offer(sequence)
        self._free_if_over(sequence)

    def executed(self, batch: Sequence[Waiting], now_ns: int) -> None:
        """See `Line.executed`: the sequences' next requests can follow."""
        if self._batches is not None:
            for sequence in (waiting.sequence for waiting in batch):
                sequence.is_executing = False
                self._offer(sequence)
                self._free_if_over(sequence)

    def __len__(self) -> int:
        return self._count

    def _start(self, key: Hashable) -> None:
        """A new sequence; one of that id which still goes on ends with what it has."""
        before = self._known.get(key)
        self._known[key] = _Sequence(key)
        self._backlog.append(self._known[key])
        if before is not None:
            before.is_ending = True
            self._free_if_over(before)

    def _fill(self) -> None:
        """Gives free slots to those who wait for one, in their order: of the instance that has most of them."""
        while self._backlog:
            slots = min(self._slots, key=len)
            if len(slots) >= self._slots_each:
                return
            sequence = self._backlog.popleft()
            sequence.slots = slots
            slots.append(sequence)
            self._offer(sequence)
            self._free_if_over(sequence)

    def _offer(self, sequence: _Sequence) -> None:
        """Oldest: the next request of a candidate joins the batches, one at a time."""
        if self._batches is not None and sequence.slots is not None and sequence.waiting and not sequence.is_executing:
            sequence.is_executing = True
            waiting = sequence.waiting.popleft()
            self._batches.add(waiting, waiting.enqueued_ns)

    def _free_if_over(self, sequence: _Sequence) -> None:
        if sequence.is_ending and sequence.is_quiet and sequence.slots is not None:
            sequence.slots.remove(sequence)
            sequence.slots = None
            self._fill()

    def _touch(self, sequence: _Sequence, now_ns: int) -> None:
        sequence.latest_ns = now_ns
        if self._known.get(sequence.key) is sequence:
            self._known[sequence.key] = self._known.pop(sequence.key)

    def _end_idle(self, now_ns: int) -> None:
        """Ends the sequences that nobody continued; looks at them only when the first may have come to that."""
        if self._next_idle_ns is not None and now_ns < self._next_idle_ns:
            return
        idle = itertools.takewhile(lambda one: now_ns - one[1].latest_ns > self._policy.max_idle_ns, self._known.items())
        for key, sequence in [one for one in idle if one[1].is_quiet]:
            del self._known[key]
            sequence.is_ending = True
            self._free_if_over(sequence)
        # who waits, however long, is not what the next look is for
        latest_ns = next((sequence.latest_ns for sequence in self._known.values() if sequence.is_quiet), now_ns)
        self._next_idle_ns = latest_ns + self._policy.max_idle_ns + 1

    def _control(self, control: Control, key: Hashable, *, starts: bool, ends: bool) -> npt.NDArray[Any]:
        """The control's value for one request, as a row of a batch where the model has batches."""
        value: object = key
        match control.kind:
            case ControlKind.START:
                value = control.false_true[starts]
            case ControlKind.END:
                value = control.false_true[ends]
            case ControlKind.READY:
                value = control.false_true[1]
            case ControlKind.CORRID if control.datatype is Datatype.BYTES:
                value = str(key).encode()
        array = np.empty((1, 1) if self._is_batched else (1,), array_dtype(control.datatype))
        try:
            array[...] = value
        except (OverflowError, ValueError):
            raise ProtocolError(
                f"inference request for sequence {key} to model '{self._model}' must specify a correlation ID of type {control.datatype.value}"
            ) from None
        return array

    def _shapes(self, waiting: Waiting) -> Hashable:
        return frozenset((one.name, one.shape[1:]) for one in waiting.request.inputs if one.name in self._compatible_inputs)
