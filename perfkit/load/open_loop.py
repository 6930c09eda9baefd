"""An open loop: requests start when their schedule says, whatever became of those before.

A request that goes out late is counted from the instant at which it was meant to start, so that what a user would have
waited is in its response time. None is delayed to spare the server: those that find no room in `max_in_flight` are
dropped, and counted.
"""

import asyncio
import contextlib
import functools
import itertools
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np

from perfkit.clock import Clock
from perfkit.load.arrivals import Instants
from perfkit.load.loop import Loop, Phases
from perfkit.load.pacer import Pacer
from perfkit.load.tasks import cancelled_at_the_end
from perfkit.transport.base import Outcome, Prepared, Reply, Transport

# what is in flight is held in memory, about 1 KiB each: a target that answers nothing must not fill it
MAX_IN_FLIGHT = 65_536
# late arrivals that go out at a stretch before answers are looked at again
_AT_A_STRETCH = 4
_GRACE_NS = 100_000_000
_PIECE = 4096


class OpenLoop(Loop):
    """See `Loop`. `arrivals` are instants from `origin_ns`; of a schedule that n workers share, worker k has the arrivals k mod n.

    `on_drop` is given those that are not sent, many at a time, and whether that is the loop's own doing: it never came to
    them, or `max_in_flight` was left out and more than `MAX_IN_FLIGHT` would have been under way.
    """

    def __init__(
        self,
        transport: Transport,
        requests: Sequence[Prepared],
        on_reply: Callable[[Reply], None],
        on_drop: Callable[[Instants, bool], None],
        *,
        arrivals: Iterator[Instants],
        origin_ns: int,
        phases: Phases,
        clock: Clock,
        pacer: Pacer,
        max_in_flight: int | None = None,
        worker: int = 0,
        workers: int = 1,
    ) -> None:
        super().__init__(transport, phases, clock)
        self._requests = requests
        self._on_reply = on_reply
        self._on_drop = on_drop
        self._pieces = (chunk[at : at + _PIECE] + origin_ns for chunk in arrivals for at in range(0, chunk.size, _PIECE))
        self._piece: Instants = np.empty(0, dtype=np.int64)
        self._come_to = 0  # how many of the piece
        self._without_room: list[int] = []
        self._pacer = pacer
        self._max_in_flight = MAX_IN_FLIGHT if max_in_flight is None else max_in_flight
        self._is_bound_ours = max_in_flight is None
        self._worker, self._workers = worker, workers
        self._in_flight = 0
        self._all_sent = False
        self._answered: asyncio.Future[None] | None = None

    @property
    def in_flight(self) -> int:
        """Requests that are sent and not answered."""
        return self._in_flight

    def _sending(self) -> contextlib.AbstractAsyncContextManager["asyncio.Future[Any]"]:
        self._answered = asyncio.get_running_loop().create_future()
        return cancelled_at_the_end([asyncio.ensure_future(self._send_all())], self._answered)

    async def _end_window(self) -> None:
        """Sending ends by itself with the last arrival; a loop that is behind by then has little time left to come to it."""
        if self._phases.window_end_ns is not None:
            await self._clock.sleep_until_ns(self._phases.window_end_ns + _GRACE_NS)
            self._stop_sending()

    async def _send_all(self) -> None:
        sending = asyncio.ensure_future(self._send_on_time())
        stopped = asyncio.ensure_future(self._draining.wait())
        try:
            await asyncio.wait((sending, stopped), return_when=asyncio.FIRST_COMPLETED)
            if sending.done():
                await sending  # lets out what went wrong
            sending.cancel()
            self._stop_sending()
            await self._drop_the_rest()
        except Exception as error:  # noqa: BLE001 - whatever it is, `run` raises it
            self._fail(error)
        finally:
            sending.cancel()
            stopped.cancel()
            self._stop_sending()
            self._all_sent = True
            self._check_answered()

    async def _send_on_time(self) -> None:
        end_ns, now_ns, wait = self._phases.window_end_ns, self._clock.now_ns, self._pacer.wait_until_ns
        send, left, at_a_stretch, index = self._send, self._phases.requests, 0, self._worker
        for piece in self._pieces:
            self._piece, self._come_to = piece, 0
            for instant_ns in piece.tolist():
                if (end_ns is not None and instant_ns >= end_ns) or left == 0:
                    await self._clock.sleep_until_ns(instant_ns if end_ns is None else end_ns)
                    return
                if left is not None and instant_ns >= self._phases.window_start_ns:
                    left -= 1
                if instant_ns > now_ns():
                    await wait(instant_ns)
                    at_a_stretch = 0
                elif (at_a_stretch := at_a_stretch + 1) >= _AT_A_STRETCH:
                    at_a_stretch = 0
                    await asyncio.sleep(0)
                if self._stopping:
                    return
                self._come_to += 1
                send(instant_ns, index)
                index += self._workers
        if end_ns is not None:  # a trace that ends before the window does
            await self._clock.sleep_until_ns(end_ns)

    def _send(self, intended_ns: int, index: int) -> None:
        if self._in_flight >= self._max_in_flight:
            self._without_room.append(intended_ns)
            if len(self._without_room) >= _PIECE:
                self._drop_without_room()
            return
        self._in_flight += 1
        paced_ns = self._clock.now_ns()
        variant = index % len(self._requests)
        reply = asyncio.ensure_future(self._transport.send(self._requests[variant]))
        reply.add_done_callback(functools.partial(self._take, intended_ns, paced_ns, variant))

    def _drop_without_room(self) -> None:
        dropped, self._without_room = self._without_room, []
        if dropped:
            self._on_drop(np.array(dropped, dtype=np.int64), self._is_bound_ours)

    async def _drop_the_rest(self) -> None:
        """Counts those of the window that the loop never came to, since it could not keep up; they may be millions."""
        self._drop_without_room()
        if self._phases.window_end_ns is None:
            return
        end_ns = min(self._phases.window_end_ns, self.ending.stopped_ns)
        for piece in itertools.chain([self._piece[self._come_to :]], self._pieces):
            late = piece[: int(np.searchsorted(piece, end_ns))]
            if late.size:
                self._on_drop(late, True)
            if late.size < piece.size:
                return
            await asyncio.sleep(0)  # an interruption is heard meanwhile

    def _take(self, intended_ns: int, paced_ns: int, variant: int, done: "asyncio.Future[Reply]") -> None:
        self._in_flight -= 1
        if done.cancelled():
            return
        if error := done.exception():
            self._fail(error)
            return
        reply = done.result()
        reply.intended_ns, reply.paced_ns, reply.variant = intended_ns, paced_ns, variant
        if reply.outcome is Outcome.OK:
            self._unreachable = None
        else:
            self._note_contact(reply)
        try:
            self._on_reply(reply)
        except Exception as error:  # noqa: BLE001 - nobody else would hear of it here: `run` raises it
            self._fail(error)
        self._check_answered()

    def _fail(self, error: BaseException) -> None:
        if self._answered is not None and not self._answered.done():
            self._answered.set_exception(error)
        self._stop_sending()

    def _check_answered(self) -> None:
        if self._all_sent and not self._in_flight and self._answered is not None and not self._answered.done():
            self._answered.set_result(None)
