"""Closed and open loops that send sequences: one request of each at a time, in order.

A step that is not answered with ok ends its sequence. So does the end of the load: every sequence that is open then gets one more
step with the end flag. Such steps are sent for the server's sake: they are in no figure.
"""

import abc
import asyncio
import collections
import dataclasses
import functools
from collections.abc import Coroutine, Iterator

from perfkit.load.closed_loop import ClosedLoop
from perfkit.load.loop import any_of
from perfkit.load.open_loop import OpenLoop
from perfkit.load.sequence_requests import SequenceRequests
from perfkit.load.sequences import LiveSequence, SequenceSource
from perfkit.transport.base import Outcome, Reply, Sender
from perfkit.units import NS_PER_S

# how long a slot waits, after a failure, for the answer to the step that ends the sequence
_END_WITHIN_NS = NS_PER_S
_OK = Outcome.OK


class SequenceListener(abc.ABC):
    """Takes the instants of sequences."""

    @abc.abstractmethod
    def sequence_started(self, start_ns: int) -> None:
        """A sequence started; `start_ns` is that of its first step, in an open loop the intended one."""

    @abc.abstractmethod
    def sequence_ended(self, start_ns: int, end_ns: int, *, is_ok: bool) -> None:
        """The last step of a sequence was answered, or a step failed. Sequences that the loop itself ended early are not reported."""

    @abc.abstractmethod
    def untimed(self, reply: Reply) -> None:
        """The answer to a step that ended a sequence early."""


@dataclasses.dataclass(frozen=True, slots=True)
class SequenceLoad:
    """Where sequences and their requests come from, and the listener that gets their instants."""

    source: SequenceSource
    requests: SequenceRequests
    listener: SequenceListener
    ends: Sender | None = None
    """What the requests are sent with that end sequences early; None for the same as the others."""

    def take(self, sequence: LiveSequence, reply: Reply, start_ns: int) -> None:
        """Tells the listener what the answer to a step means; `start_ns` is when it started, or should have."""
        if sequence.sent == 1:
            sequence.start_ns = start_ns
            self.listener.sequence_started(start_ns)
        if reply.outcome is not _OK:
            if reply.outcome is not Outcome.UNFINISHED:
                self.listener.sequence_ended(sequence.start_ns, reply.finished_ns, is_ok=False)
        elif sequence.is_over:
            self.listener.sequence_ended(sequence.start_ns, reply.finished_ns, is_ok=True)


def _is_held(sequence: LiveSequence, reply: Reply) -> bool:
    """Whether the server may still hold the sequence, and can be told to end it."""
    if reply.outcome is Outcome.UNFINISHED:
        return False  # nothing can be sent any more
    if reply.outcome is _OK or reply.outcome is Outcome.INVALID_OUTPUT:
        return not sequence.is_over
    return not (sequence.sent == 1 and reply.outcome is Outcome.CONNECT_FAILED)


@dataclasses.dataclass(eq=False)
class ClosedSequences(ClosedLoop):
    """A `ClosedLoop` in which each slot sends one sequence after the other, with the think time before each step."""

    _: dataclasses.KW_ONLY
    sequences: SequenceLoad

    def __post_init__(self) -> None:
        super().__post_init__()
        self._ends: set[asyncio.Task[None]] = set()  # that were not answered within the second

    async def _send_requests(self, indices: Iterator[int]) -> None:
        source, failures = self.sequences.source, 0
        while not self._stopping:
            sequence = source.next()
            last = await self._send_steps(sequence)
            if last is None or self._stopping:
                self._stop_sending()  # before the sequence is ended, which takes a while
            if sequence.sent if last is None else _is_held(sequence, last):
                await self._end(sequence)
            source.release(sequence)
            if last is None:
                break
            if last.outcome is _OK:
                failures = 0
                self._unreachable = None
            elif self._note_contact(last):
                failures = 0
            else:
                failures += 1
                await self._back_off(failures, last.started_ns)
        await asyncio.gather(*self._ends)

    async def _send_steps(self, sequence: LiveSequence) -> Reply | None:
        """The answer to the last step, to one that failed, or to the one at which the load stopped; None if no more may be sent."""
        is_plain, requests, take = self._remaining is None and not self.think_time_ns, self.sequences.requests, self.sequences.take
        send, on_reply = self.transport.send, self.on_reply
        while True:
            if not is_plain and not await self._may_send():
                return None
            variant = requests.variant(sequence)
            self._unanswered += 1
            reply = await send(requests.next_step(sequence))
            self._unanswered -= 1
            reply.variant, reply.sequence_id = variant, sequence.id
            on_reply(reply)
            take(sequence, reply, reply.started_ns)
            if reply.outcome is not _OK or sequence.is_over or self._stopping:
                return reply
            self._unreachable = None

    async def _end(self, sequence: LiveSequence) -> None:
        """Ends a sequence early; while load is sent, this waits for the answer for a second at most, unless the id is used again."""
        ending = asyncio.ensure_future(self._end_and_report(sequence))
        if self._stopping or self.sequences.source.reuses_ids:
            await ending
        else:
            self._ends.add(ending)
            ending.add_done_callback(self._ends.discard)
            await any_of(self.clock.sleep_until_ns(self.clock.now_ns() + _END_WITHIN_NS), also=ending)

    async def _end_and_report(self, sequence: LiveSequence) -> None:
        self.sequences.listener.untimed(await (self.sequences.ends or self.transport).send(self.sequences.requests.end(sequence)))


@dataclasses.dataclass(eq=False)
class OpenSequences(OpenLoop):
    """An `OpenLoop` of sequences. With `live`, an arrival is a step: of the sequence that has been idle for longest, or of the next to become idle.

    Without `live`, an arrival starts a sequence, and each further step is due `think_time_ns` after the answer to the one before;
    `in_flight` and its limit then count sequences.
    """

    _: dataclasses.KW_ONLY
    sequences: SequenceLoad
    live: int | None = None
    think_time_ns: int = 0

    def __post_init__(self) -> None:
        super().__post_init__()
        self._open: set[LiveSequence] = set()  # those with a step that was sent and another to come
        self._idle = collections.deque(self.sequences.source.next() for _ in range(self.live or 0))
        self._waiting: collections.deque[tuple[int, int]] = collections.deque()  # arrivals without an idle sequence
        self._side_tasks: set[asyncio.Task[None]] = set()  # that wait for the think time, or end sequences
        self._without_id = 0  # of the live sequences, those that start when an id is free

    def _send(self, intended_ns: int, index: int) -> None:
        if self._in_flight >= self._limit or (self.live is None and not self.sequences.source.has_free_id):
            self._note_over_limit(intended_ns, index)
            return
        self._in_flight += 1
        paced_ns = self.clock.now_ns()
        if self.live is None:
            self._send_step(self.sequences.source.next(), intended_ns, paced_ns)
        elif self._idle:
            self._send_step(self._idle.popleft(), intended_ns, paced_ns)
        else:
            self._waiting.append((intended_ns, paced_ns))

    def _send_step(self, sequence: LiveSequence, intended_ns: int, paced_ns: int) -> None:
        self._open.add(sequence)
        requests = self.sequences.requests
        variant = requests.variant(sequence)
        reply = asyncio.ensure_future(self.transport.send(requests.next_step(sequence)))
        reply.add_done_callback(functools.partial(self._take_step, sequence, intended_ns, paced_ns, variant))

    def _take_step(self, sequence: LiveSequence, intended_ns: int, paced_ns: int, variant: int, done: "asyncio.Future[Reply]") -> None:
        if not (done.cancelled() or done.exception()):
            done.result().sequence_id = sequence.id
        self._take(intended_ns, paced_ns, variant, done)
        if done.cancelled() or done.exception():
            self._open.discard(sequence)
            return
        try:
            self._continue(sequence, done.result(), intended_ns)
        except Exception as error:  # noqa: BLE001 - raised in a callback it would be lost: `run` raises it
            self._fail(error)
        self._check_answered()

    def _continue(self, sequence: LiveSequence, reply: Reply, intended_ns: int) -> None:
        self.sequences.take(sequence, reply, intended_ns)
        if reply.outcome is Outcome.UNFINISHED:
            self._open.discard(sequence)
            self._abandon_waiting()
        elif reply.outcome is not _OK or sequence.is_over:
            self._open.discard(sequence)
            if self.live is not None:
                self._without_id += 1
            if _is_held(sequence, reply):
                self._end(sequence)
                self._start_next()
            else:
                self._release(sequence)
        elif self.live is not None:
            self._take_next(sequence)
        elif self._stopping:
            self._end(sequence)
        else:
            self._in_flight += 1  # it stays live
            due_ns = reply.finished_ns + self.think_time_ns
            if self.think_time_ns:
                self._start_task(self._send_later(sequence, due_ns))
            else:
                self._send_step(sequence, due_ns, self.clock.now_ns())

    def _abandon_waiting(self) -> None:
        """Ends the arrivals that still wait for a sequence, since nothing can be sent any more."""
        while self._waiting:
            intended_ns, paced_ns = self._waiting.popleft()
            self._in_flight -= 1
            self.on_reply(Reply(Outcome.UNFINISHED, paced_ns, self.clock.now_ns(), intended_ns=intended_ns, paced_ns=paced_ns))

    def _release(self, sequence: LiveSequence) -> None:
        """Lets the id of a sequence that the server no longer holds be used again."""
        self.sequences.source.release(sequence)
        self._start_next()

    def _start_next(self) -> None:
        """Starts live sequences in place of those that are over, as far as there are ids."""
        while self._without_id and self.sequences.source.has_free_id:
            self._without_id -= 1
            self._take_next(self.sequences.source.next())

    def _take_next(self, sequence: LiveSequence) -> None:
        """Gives a sequence the next arrival that waits, or ends it if there are no more to come."""
        if self._waiting:
            self._send_step(sequence, *self._waiting.popleft())
        elif not self._stopping:
            self._idle.append(sequence)
        elif sequence.sent:
            self._end(sequence)

    async def _send_later(self, sequence: LiveSequence, due_ns: int) -> None:
        await any_of(self.clock.sleep_until_ns(due_ns), self._draining.wait())
        if self._stopping:
            self._in_flight -= 1
            self._end(sequence)
        else:
            self._send_step(sequence, due_ns, self.clock.now_ns())

    def _stop_sending(self) -> None:
        super()._stop_sending()
        while self._idle:
            if (sequence := self._idle.popleft()).sent:
                self._end(sequence)

    def _end(self, sequence: LiveSequence) -> None:
        """Ends a sequence early."""
        self._open.discard(sequence)
        self._start_task(self._end_and_report(sequence))

    async def _end_and_report(self, sequence: LiveSequence) -> None:
        self.sequences.listener.untimed(await (self.sequences.ends or self.transport).send(self.sequences.requests.end(sequence)))
        self._release(sequence)

    def _start_task(self, coroutine: Coroutine[None, None, None]) -> None:
        task = asyncio.ensure_future(coroutine)
        self._side_tasks.add(task)
        task.add_done_callback(self._end_task)

    def _end_task(self, task: "asyncio.Task[None]") -> None:
        self._side_tasks.discard(task)
        if not task.cancelled() and (error := task.exception()):
            self._fail(error)
        self._check_answered()

    def _check_answered(self) -> None:
        if not self._open and not self._side_tasks and not self._waiting:
            super()._check_answered()
