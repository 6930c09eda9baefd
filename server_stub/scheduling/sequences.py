"""Sequence batching as in Triton: requests with the same id are executed in order, with their position as control inputs.

Direct strategy: a sequence holds a slot of one instance until it ends. Oldest strategy: sequences join dynamic
batches, one request at a time each, first come, first served. No clock, no threads.
"""

import collections
import dataclasses
import enum
import itertools
from collections.abc import Hashable, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from perfkit.errors import ErrorKind, ProtocolError
from perfkit.override import override
from perfkit.protocol.tensor import Datatype, array_dtype
from server_stub.scheduling.batching import BatchingPolicy, BatchingQueue
from server_stub.scheduling.request_queue import QueuedRequest, RequestQueue, Selection, have_same_shapes

MAX_SEQUENCES = 10_000
"""Sequences of a model that can be continued; beyond it, the one that has been idle for longest ends."""
_MAX_KEY_CHARACTERS = 128  # as in Triton


class ControlKind(enum.Enum):
    """The meaning of a control input. The value is Triton's name without `CONTROL_SEQUENCE_`."""

    START = "START"
    READY = "READY"
    END = "END"
    CORRID = "CORRID"


@dataclasses.dataclass(frozen=True, slots=True)
class Control:
    """An input that the server fills in: the value for false or true, or the sequence's id."""

    name: str
    kind: ControlKind
    datatype: Datatype = Datatype.INT32
    false_true: tuple[float, float] = (0, 1)


@dataclasses.dataclass(frozen=True, slots=True)
class SequencePolicy:
    """How a model's sequences are batched. `oldest` None means the direct strategy."""

    controls: tuple[Control, ...] = ()
    max_idle_ns: int = 1_000_000_000
    """A sequence ends after this time without a request."""
    oldest: BatchingPolicy | None = None
    max_candidates: int = 1
    """Oldest strategy: the number of sequences served at a time."""


class _Sequence:
    """A sequence in progress. `slots` is the list that it occupies a slot of, or None while it waits for one."""

    def __init__(self, key: Hashable) -> None:
        self.key = key
        self.slots: list[_Sequence] | None = None
        self.waiting: collections.deque[QueuedRequest] = collections.deque()
        self.latest_ns = 0
        self.is_ending = False
        self.is_executing = False

    @property
    def is_quiet(self) -> bool:
        """Whether none of its requests is waiting or being executed."""
        return not self.waiting and not self.is_executing


class SequenceQueue(RequestQueue):
    """The `RequestQueue` of a model with sequence batching."""

    def __init__(
        self, model: str, policy: SequencePolicy, instances: int, max_batch_size: int, variable_inputs: Sequence[str] = ()
    ) -> None:
        self._model, self._policy, self._is_batched = model, policy, max_batch_size > 0
        self._variable_inputs = frozenset(variable_inputs)
        self._count = 0
        self._known: dict[Hashable, _Sequence] = {}  # those that can be continued, the most recently used one last
        self._backlog: collections.deque[_Sequence] = collections.deque()
        self._batches = None if policy.oldest is None else BatchingQueue(policy.oldest, max_batch_size, variable_inputs)
        # oldest strategy: one list of candidates; direct strategy: one list of slots for each instance
        self._slots: list[list[_Sequence]] = [[] for _ in range(instances if policy.oldest is None else 1)]
        self._slots_each = max(1, max_batch_size) if policy.oldest is None else policy.max_candidates
        self._next_idle_ns: int | None = None

    @override
    def add(self, queued: QueuedRequest, now_ns: int) -> None:
        self._end_idle(now_ns)
        parameters = queued.request.parameters
        key = parameters.get("sequence_id", 0)
        starts, ends = parameters.get("sequence_start") is True, parameters.get("sequence_end") is True
        if key in (0, ""):
            raise ProtocolError(f"inference request to model '{self._model}' must specify a non-zero or non-empty correlation ID")
        if queued.batch_size > 1:
            raise ProtocolError(
                f"inference request to model '{self._model}' must specify batch-size 1 due to requirements of sequence batcher"
            )
        if not starts and key not in self._known:
            raise ProtocolError(
                f"inference request for sequence {key} to model '{self._model}' must specify the START flag on the first request "
                "of the sequence"
            )
        if isinstance(key, str) and len(key) > _MAX_KEY_CHARACTERS:
            raise ProtocolError(
                f"inference request to model '{self._model}' has a correlation ID of {len(key):,} characters, and {_MAX_KEY_CHARACTERS} are "
                "the most"
            )
        if starts and key not in self._known and len(self._known) >= MAX_SEQUENCES:
            self._end_longest_idle()
        queued.controls = {control.name: self._control_value(control, key, starts=starts, ends=ends) for control in self._policy.controls}
        if starts:
            self._start(key)
        queued.sequence = sequence = self._known[key]
        sequence.waiting.append(queued)
        self._touch(sequence, now_ns)
        self._count += 1
        if ends:
            sequence.is_ending = True
            del self._known[key]
        self._fill()
        self._offer(sequence)

    @override
    def select(self, now_ns: int, instance: int) -> Selection:
        self._end_idle(now_ns)
        if self._batches is not None:
            selection = self._batches.select(now_ns, instance)
            self._count -= len(selection.batch)
            for queued in selection.batch:
                self._touch(queued.sequence, now_ns)
            wakes_ns = [wake_ns for wake_ns in (selection.wake_ns, self._next_idle_ns if self._backlog else None) if wake_ns is not None]
            return selection if selection.batch else Selection((), (), min(wakes_ns, default=None))
        batch: list[QueuedRequest] = []
        for sequence in tuple(self._slots[instance]):
            if sequence.waiting and (not batch or have_same_shapes(sequence.waiting[0], batch[0], self._variable_inputs)):
                batch.append(sequence.waiting.popleft())
                self._touch(sequence, now_ns)
                self._free_if_over(sequence)
        self._count -= len(batch)
        return Selection(batch, (), self._next_idle_ns if self._backlog and not batch else None)

    @override
    def discard(self, queued: QueuedRequest) -> None:
        """The sequence continues without the request."""
        self._count -= 1
        sequence = queued.sequence
        if queued in sequence.waiting:
            sequence.waiting.remove(queued)
        elif self._batches is not None:
            self._batches.discard(queued)
            sequence.is_executing = False
            self._offer(sequence)
        self._free_if_over(sequence)

    @override
    def finish(self, batch: Sequence[QueuedRequest], now_ns: int) -> None:
        """The next request of each sequence can follow."""
        if self._batches is not None:
            for sequence in (queued.sequence for queued in batch):
                sequence.is_executing = False
                self._offer(sequence)
                self._free_if_over(sequence)

    @override
    def stop_delaying(self) -> None:
        if self._batches is not None:
            self._batches.stop_delaying()

    def __len__(self) -> int:
        return self._count

    def _start(self, key: Hashable) -> None:
        """Start a new sequence. A running one with the same id ends after its waiting requests."""
        before = self._known.get(key)
        self._known[key] = _Sequence(key)
        self._backlog.append(self._known[key])
        if before is not None:
            before.is_ending = True
            self._free_if_over(before)

    def _fill(self) -> None:
        """Give free slots to waiting sequences in order, from the instance with the most free slots."""
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
        """Oldest strategy: move a candidate's next request to the batches, one at a time."""
        if self._batches is not None and sequence.slots is not None and sequence.waiting and not sequence.is_executing:
            sequence.is_executing = True
            queued = sequence.waiting.popleft()
            self._batches.add(queued, queued.enqueued_ns)

    def _free_if_over(self, sequence: _Sequence) -> None:
        if not (sequence.is_ending and sequence.is_quiet):
            return
        if sequence.slots is not None:
            sequence.slots.remove(sequence)
            sequence.slots = None
            self._fill()
        elif sequence in self._backlog:  # its client has left before it got a slot
            self._backlog.remove(sequence)

    def _touch(self, sequence: _Sequence, now_ns: int) -> None:
        sequence.latest_ns = now_ns
        if self._known.get(sequence.key) is sequence:
            self._known[sequence.key] = self._known.pop(sequence.key)

    def _end_idle(self, now_ns: int) -> None:
        """End the sequences that have been idle too long. Does nothing before the first can have become so."""
        if self._next_idle_ns is not None and now_ns < self._next_idle_ns:
            return
        idle = itertools.takewhile(lambda item: now_ns - item[1].latest_ns > self._policy.max_idle_ns, self._known.items())
        for key, sequence in [(key, sequence) for key, sequence in idle if sequence.is_quiet]:
            del self._known[key]
            sequence.is_ending = True
            self._free_if_over(sequence)
        # a sequence with waiting requests cannot become idle, however long they wait
        latest_ns = next((sequence.latest_ns for sequence in self._known.values() if sequence.is_quiet), now_ns)
        self._next_idle_ns = latest_ns + self._policy.max_idle_ns + 1

    def _end_longest_idle(self) -> None:
        """End the sequence that has been idle for longest. Raises ProtocolError if all of them have requests."""
        key = next((key for key, sequence in self._known.items() if sequence.is_quiet), None)
        if key is None:
            raise ProtocolError(
                f"model '{self._model}' has {MAX_SEQUENCES:,} sequences with requests, which is its limit", ErrorKind.UNAVAILABLE
            )
        sequence = self._known.pop(key)
        sequence.is_ending = True
        self._free_if_over(sequence)

    def _control_value(self, control: Control, key: Hashable, *, starts: bool, ends: bool) -> npt.NDArray[Any]:
        """A control's value for one request, with a batch dimension if the model has one."""
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
