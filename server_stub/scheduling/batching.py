"""Dynamic batching as in Triton: which waiting requests are executed together, and when. No clock, no threads.

When an instance becomes idle, requests are collected by priority, then by arrival, until the batch is full. If that
reaches a preferred size, the largest one reached is executed at once. Any other batch waits up to `max_delay_ns` for
a preferred size, and is then executed as it is.
"""

import collections
import dataclasses
import itertools
import math
from collections.abc import Iterator, Mapping, Sequence

from perfkit.override import override
from server_stub.scheduling.request_queue import QueuedRequest, RequestQueue, Selection, have_same_shapes, queue_full_error


@dataclasses.dataclass(frozen=True, slots=True)
class QueuePolicy:
    """The limits of one priority level. 0 means no limit."""

    max_size: int = 0
    default_timeout_ns: int = 0
    allow_timeout_override: bool = False
    delays: bool = False
    """Whether a request that times out is moved behind all others instead of being rejected."""


@dataclasses.dataclass(frozen=True, slots=True)
class BatchingPolicy:
    """How a model's requests are batched. With `priority_levels` 0, priorities are ignored."""

    preferred_sizes: tuple[int, ...] = ()
    max_delay_ns: int = 0
    priority_levels: int = 0
    default_priority: int = 0
    default_queue: QueuePolicy = QueuePolicy()
    level_queues: Mapping[int, QueuePolicy] = dataclasses.field(default_factory=dict)


class _Level:
    """The requests of one priority. Delayed ones come last."""

    def __init__(self, policy: QueuePolicy) -> None:
        self.policy = policy
        self.count = 0
        self._on_time: collections.deque[QueuedRequest] = collections.deque()
        self._delayed: collections.deque[QueuedRequest] = collections.deque()

    def add(self, queued: QueuedRequest) -> None:
        self._on_time.append(queued)
        self.count += 1

    def pop(self, now_ns: int, rejected: list[QueuedRequest]) -> QueuedRequest | None:
        """Remove the next request, but still count it. Requests that timed out are appended to `rejected`."""
        while self._on_time:
            queued = self._on_time.popleft()
            if queued.is_cancelled:
                continue
            if queued.deadline_ns is None or now_ns <= queued.deadline_ns:
                return queued
            if self.policy.delays:
                queued.deadline_ns, queued.is_delayed = None, True
                self._delayed.append(queued)
            else:
                self.count -= 1
                rejected.append(queued)
        while self._delayed:
            if not (queued := self._delayed.popleft()).is_cancelled:
                return queued
        return None

    def put_back(self, queued: QueuedRequest) -> None:
        """Undo `pop`. Put several back in reverse order."""
        (self._delayed if queued.is_delayed else self._on_time).appendleft(queued)


class BatchingQueue(RequestQueue):
    """The `RequestQueue` of a model with dynamic batching."""

    def __init__(
        self, policy: BatchingPolicy, max_batch_size: int, variable_inputs: Sequence[str] = (), best_rows: Sequence[int] = ()
    ) -> None:
        """Requests are batched together only if their `variable_inputs` have the same shapes.

        `best_rows` is the number of rows to execute together by the number of rows that could be; empty if that is all of them. It does
        not apply where the policy names preferred sizes.
        """
        self._policy = policy
        self._max_batch_size = max(1, max_batch_size)
        self._preferred = frozenset(size for size in policy.preferred_sizes if size <= self._max_batch_size) or {self._max_batch_size}
        self._largest_preferred = max(self._preferred)
        self._best_rows = () if policy.preferred_sizes else best_rows
        self._variable_inputs = frozenset(variable_inputs)
        numbers = range(1, policy.priority_levels + 1) if policy.priority_levels else (0,)
        self._levels = {number: _Level(policy.level_queues.get(number, policy.default_queue)) for number in numbers}

    @override
    def add(self, queued: QueuedRequest, now_ns: int) -> None:
        """0 and unknown priorities mean the default one."""
        priority = queued.request.parameters.get("priority", 0)
        level = self._levels.get(priority if isinstance(priority, int) and priority else self._policy.default_priority)
        level = level or self._levels[self._policy.default_priority if self._policy.priority_levels else 0]
        policy = level.policy
        if policy.max_size and level.count >= policy.max_size:
            raise queue_full_error(queued.request)
        timeout_ns = policy.default_timeout_ns or math.inf
        timeout_us = queued.request.parameters.get("timeout", 0)
        if policy.allow_timeout_override and isinstance(timeout_us, int) and timeout_us > 0:
            timeout_ns = min(timeout_ns, timeout_us * 1000)  # a request can only shorten it
        queued.deadline_ns = None if timeout_ns == math.inf else now_ns + int(timeout_ns)
        queued.level = level
        level.add(queued)

    @override
    def select(self, now_ns: int, instance: int) -> Selection:
        rejected: list[QueuedRequest] = []
        candidates: list[QueuedRequest] = []
        size = preferred_count = 0
        is_full = False
        for queued in self._in_service_order(now_ns, rejected):
            if candidates:
                if size + queued.batch_size > self._largest_preferred and not preferred_count:
                    preferred_count = len(candidates)
                is_too_large = size + queued.batch_size > self._max_batch_size
                if is_too_large or not have_same_shapes(queued, candidates[0], self._variable_inputs):
                    is_full = True
                    _level(queued).put_back(queued)
                    break
            candidates.append(queued)
            size += queued.batch_size
            if size in self._preferred:
                preferred_count = len(candidates)
            if size >= self._max_batch_size:
                break
        if not candidates:
            return Selection(rejected=rejected)
        oldest_ns = min(queued.enqueued_ns for queued in candidates)
        is_late = now_ns - oldest_ns >= self._policy.max_delay_ns
        if preferred_count and not (is_late and self._policy.max_delay_ns):
            return Selection(self._dequeue(candidates, preferred_count), rejected)
        if is_full or is_late or size >= self._largest_preferred:
            return Selection(self._dequeue(candidates, self._best_count(candidates, size)), rejected)
        self._dequeue(candidates, 0)
        deadlines_ns = [queued.deadline_ns + 1 for queued in candidates if queued.deadline_ns is not None]
        return Selection((), rejected, min([oldest_ns + self._policy.max_delay_ns, *deadlines_ns]))

    @override
    def discard(self, queued: QueuedRequest) -> None:
        queued.is_cancelled = True
        _level(queued).count -= 1

    @override
    def finish(self, batch: Sequence[QueuedRequest], now_ns: int) -> None:
        """Nothing waits for it here."""

    @override
    def stop_delaying(self) -> None:
        self._policy = dataclasses.replace(self._policy, max_delay_ns=0)

    def __len__(self) -> int:
        return sum(level.count for level in self._levels.values())

    def _in_service_order(self, now_ns: int, rejected: list[QueuedRequest]) -> Iterator[QueuedRequest]:
        for level in self._levels.values():
            while (queued := level.pop(now_ns, rejected)) is not None:
                yield queued

    def _best_count(self, candidates: Sequence[QueuedRequest], rows: int) -> int:
        """How many of the candidates to execute together: all, or as many as fit into fewer rows that are executed faster."""
        best = self._best_rows[rows] if rows < len(self._best_rows) else rows
        sums = itertools.accumulate(queued.batch_size for queued in candidates)
        return max(1, sum(total <= best for total in sums))

    def _dequeue(self, candidates: list[QueuedRequest], count: int) -> Sequence[QueuedRequest]:
        """Remove the first `count` candidates from the queue, and put the others back."""
        for queued in reversed(candidates[count:]):
            _level(queued).put_back(queued)
        for queued in candidates[:count]:
            _level(queued).count -= 1
        return candidates[:count]


def _level(queued: QueuedRequest) -> _Level:
    level = queued.level
    assert isinstance(level, _Level)
    return level
