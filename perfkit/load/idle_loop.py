"""A loop with idle gaps: nothing for a while, then one request, then some more, and again."""

import dataclasses
from collections.abc import Callable, Iterator

from perfkit.load.closed_loop import ClosedLoop
from perfkit.load.tasks import any_of
from perfkit.transport.base import Outcome, Reply, Transport

# as in the distributions: answers, and requests without an answer at their age
_TIMED = (Outcome.OK, Outcome.INVALID_OUTPUT, Outcome.TIMED_OUT, Outcome.UNFINISHED)


@dataclasses.dataclass(eq=False)
class IdleLoop(ClosedLoop):
    """A closed loop with one request in flight, which pauses for `gap_ns` before every `then` + 1 requests.

    It begins with `then` requests, so that the first gap is one of a connection that has been used. `add_time` gets the name, the start
    and the length of each request's time, from the call of the transport, so that connecting anew is part of it: `after_gap_time` for the
    first request after a gap, `following_time` for the others. `on_reconnect` gets the start of the first request after a gap if a
    connection was opened in the gap or for this request.
    """

    transport: Transport
    _: dataclasses.KW_ONLY
    add_time: Callable[[str, int, int], None]
    on_reconnect: Callable[[int], None]
    gap_ns: int
    then: int
    concurrency: int = 1

    async def _send_requests(self, indices: Iterator[int]) -> None:
        counts, failures, until_gap = self.transport.counts, 0, self.then
        while not self._stopping:
            is_after_gap, opened = not until_gap, counts.opened
            if is_after_gap:
                await any_of(self.clock.sleep_until_ns(self.clock.now_ns() + self.gap_ns), self._draining.wait())
            if self._stopping or not await self._may_send():
                return
            begun_ns = self.clock.now_ns()
            variant = next(indices) % len(self.requests)
            self._unanswered += 1
            reply = await self.transport.send(self.requests[variant])
            self._unanswered -= 1
            reply.variant = variant
            self.on_reply(reply)
            self._add_times(reply, begun_ns, is_after_gap=is_after_gap, has_reconnected=counts.opened > opened)
            until_gap = self.then if is_after_gap else until_gap - 1
            failures = 0 if self._note_contact(reply) else failures + 1
            if failures:
                await self._back_off(failures, reply.started_ns)

    def _add_times(self, reply: Reply, begun_ns: int, *, is_after_gap: bool, has_reconnected: bool) -> None:
        if reply.outcome not in _TIMED:
            return
        self.add_time("after_gap_time" if is_after_gap else "following_time", reply.started_ns, reply.finished_ns - begun_ns)
        if is_after_gap and has_reconnected:
            self.on_reconnect(reply.started_ns)
