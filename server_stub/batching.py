"""Dynamic batching as Triton does it: which of the waiting requests are executed together, and when. Pure: no clock, no threads.

Whenever an instance is idle, requests are looked at in order of priority and then of arrival, as long as they fit into
a batch. Of the preferred sizes the largest that is reached is executed at once; other batches wait, `max_delay_ns` long
at most, for one to be reached, and are then executed as they are.
"""

import collections
import dataclasses
import math
from collections.abc import Hashable, Iterator, Mapping, Sequence

from server_stub.line import Taken, Waiting, refusal


@dataclasses.dataclass(frozen=True, slots=True)
class QueuePolicy:
    """The limits of one priority level; 0 is none. `delays` lets who waited too long wait on, behind all others, instead of refusing him."""

    max_size: int = 0
    default_timeout_ns: int = 0
    allow_timeout_override: bool = False
    delays: bool = False


@dataclasses.dataclass(frozen=True, slots=True)
class BatchingPolicy:
    """How a model's requests are batched; `priority_levels` 0 means that priorities count for nothing."""

    preferred_sizes: tuple[int, ...] = ()
    max_delay_ns: int = 0
    priority_levels: int = 0
    default_priority: int = 0
    default_queue: QueuePolicy = QueuePolicy()
    queues: Mapping[int, QueuePolicy] = dataclasses.field(default_factory=dict)


class _Level:
    """One priority's requests, those that are delayed behind the others."""

    def __init__(self, policy: QueuePolicy) -> None:
        self.policy = policy
        self.count = 0
        self._punctual: collections.deque[Waiting] = collections.deque()
        self._delayed: collections.deque[Waiting] = collections.deque()

    def add(self, waiting: Waiting) -> None:
        self._punctual.append(waiting)
        self.count += 1

    def pop(self, now_ns: int, rejected: list[Waiting]) -> Waiting | None:
        """The next one, who still counts as being there; those who waited too long go to `rejected` on the way."""
        while self._punctual:
            waiting = self._punctual.popleft()
            if waiting.is_gone:
                continue
            if waiting.deadline_ns is None or now_ns <= waiting.deadline_ns:
                return waiting
            if self.policy.delays:
                waiting.deadline_ns, waiting.is_delayed = None, True
                self._delayed.append(waiting)
            else:
                self.count -= 1
                rejected.append(waiting)
        while self._delayed:
            if not (waiting := self._delayed.popleft()).is_gone:
                return waiting
        return None

    def put_back(self, waiting: Waiting) -> None:
        """Undoes `pop`; of several the last one first."""
        (self._delayed if waiting.is_delayed else self._punctual).appendleft(waiting)


class BatchingLine:
    """A `server_stub.line.Line` of a model with dynamic batching."""

    def __init__(self, policy: BatchingPolicy, max_batch_size: int, compatible_inputs: Sequence[str] = ()) -> None:
        """`compatible_inputs` have sizes that requests choose: those of one batch must choose alike."""
        self._policy = policy
        self._max_batch_size = max(1, max_batch_size)
        self._preferred = frozenset(size for size in policy.preferred_sizes if size <= self._max_batch_size) or {self._max_batch_size}
        self._largest_preferred = max(self._preferred)
        self._compatible_inputs = frozenset(compatible_inputs)
        numbers = range(1, policy.priority_levels + 1) if policy.priority_levels else (0,)
        self._levels = {number: _Level(policy.queues.get(number, policy.default_queue)) for number in numbers}

    def add(self, waiting: Waiting, now_ns: int) -> None:
        """See `Line.add`; 0 and unknown priorities are the default one."""
        asked = waiting.request.parameters.get("priority", 0)
        level = self._levels.get(asked if isinstance(asked, int) and asked else self._policy.default_priority)
        level = level or self._levels[self._policy.default_priority if self._policy.priority_levels else 0]
        policy = level.policy
        if policy.max_size and level.count >= policy.max_size:
            raise refusal(waiting.request, "Exceeds maximum queue size")
        timeout_ns = policy.default_timeout_ns or math.inf
        asked_us = waiting.request.parameters.get("timeout", 0)
        if policy.allow_timeout_override and isinstance(asked_us, int) and asked_us > 0:
            timeout_ns = min(timeout_ns, asked_us * 1000)  # it can be shortened alone
        waiting.deadline_ns = None if timeout_ns == math.inf else now_ns + int(timeout_ns)
        waiting.place = level
        level.add(waiting)

    def take(self, now_ns: int, instance: int) -> Taken:
        """See `Line.take`."""
        rejected: list[Waiting] = []
        found: list[Waiting] = []
        size = preferred_count = 0
        is_full = False
        for waiting in self._in_order(now_ns, rejected):
            if found:
                if size + waiting.batch_size > self._largest_preferred and not preferred_count:
                    preferred_count = len(found)
                if size + waiting.batch_size > self._max_batch_size or self._shapes(waiting) != self._shapes(found[0]):
                    is_full = True
                    _level(waiting).put_back(waiting)
                    break
            found.append(waiting)
            size += waiting.batch_size
            if size in self._preferred:
                preferred_count = len(found)
            if size >= self._max_batch_size:
                break
        if not found:
            return Taken(rejected=rejected)
        oldest_ns = min(waiting.enqueued_ns for waiting in found)
        is_late = now_ns - oldest_ns >= self._policy.max_delay_ns
        if preferred_count and not (is_late and self._policy.max_delay_ns):
            return Taken(self._leave(found, preferred_count), rejected)
        if is_full or is_late or size >= self._largest_preferred:
            return Taken(self._leave(found, len(found)), rejected)
        self._leave(found, 0)
        deadlines_ns = [waiting.deadline_ns + 1 for waiting in found if waiting.deadline_ns is not None]
        return Taken((), rejected, min([oldest_ns + self._policy.max_delay_ns, *deadlines_ns]))

    def discard(self, waiting: Waiting) -> None:
        """See `Line.discard`."""
        waiting.is_gone = True
        _level(waiting).count -= 1

    def executed(self, batch: Sequence[Waiting], now_ns: int) -> None:
        """See `Line.executed`; here nobody waited for that."""

    def __len__(self) -> int:
        return sum(level.count for level in self._levels.values())

    def _in_order(self, now_ns: int, rejected: list[Waiting]) -> Iterator[Waiting]:
        for level in self._levels.values():
            while (waiting := level.pop(now_ns, rejected)) is not None:
                yield waiting

    def _leave(self, found: list[Waiting], count: int) -> Sequence[Waiting]:
        """Lets the first so many leave the line, and the others stay where they were."""
        for waiting in reversed(found[count:]):
            _level(waiting).put_back(waiting)
        for waiting in found[:count]:
            _level(waiting).count -= 1
        return found[:count]

    def _shapes(self, waiting: Waiting) -> Hashable:
        if not self._compatible_inputs:
            return None
        return frozenset((one.name, one.shape[1:]) for one in waiting.request.inputs if one.name in self._compatible_inputs)


def _level(waiting: Waiting) -> _Level:
    level = waiting.place
    assert isinstance(level, _Level)
    return level
