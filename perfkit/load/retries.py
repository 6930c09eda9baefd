"""Retries: after which failures a request is sent again, after what pause and within what budget, and the sender that does it."""

import asyncio
import dataclasses
import functools
from collections.abc import Awaitable, Sequence

import numpy as np

from perfkit.clock import Clock
from perfkit.load.listed_requests import ListedRequests
from perfkit.override import override
from perfkit.transport.base import Attempt, DirectSender, Outcome, Prepared, Reply, RetriedReply, Sender, Transport, hand_over
from perfkit.transport.connect import OWN_LIMITS

# without this limit, hours without a failure would permit thousands of retries at once
_MOST_SAVED = 100
_MILLIONTHS = 1_000_000
_OK = Outcome.OK


@dataclasses.dataclass(frozen=True, slots=True)
class RetryPlan:
    """How failed requests are sent again."""

    attempts: int
    """How often a request is sent at most, the first time included."""
    first_pause_ns: int
    """The pause after the first attempt, which doubles with each further one."""
    longest_pause_ns: int
    has_jitter: bool
    """Whether the length of each pause is random, between 0 and that of the plan."""
    causes: tuple[str, ...]
    """The failures after which a request is sent again; see `Attempt.cause`."""
    budget: float | None
    """The largest share of retries in the requests; None for no limit."""
    seed: int

    def pauses_ns(self) -> list[int]:
        """The pauses before the second attempt and those that follow, without jitter."""
        return [min(self.first_pause_ns << number, self.longest_pause_ns) for number in range(self.attempts - 1)]


@dataclasses.dataclass(slots=True)
class RetriedRequest(Prepared):
    """A request that is sent again after some failures, with the pauses before its second attempt and those that follow."""

    request: Prepared = dataclasses.field(default_factory=lambda: Prepared(()))
    pauses_ns: Sequence[int] = ()


def with_retries(requests: Sequence[Prepared], plan: RetryPlan) -> ListedRequests:
    """The requests in turn as `RetriedRequest`: the i-th of the load is the i-th of the list, which repeats.

    So the pauses of a request depend on its number alone, whatever the number of workers.
    """
    listed, pauses_ns = ListedRequests.repeated(requests), np.array(plan.pauses_ns(), dtype=np.int64)
    shares = np.ones((len(listed), pauses_ns.size))
    if plan.has_jitter:
        shares = np.random.Generator(np.random.Philox(np.random.SeedSequence((plan.seed, len(listed))))).random(shares.shape)
    for place, own_ns in enumerate(np.rint(shares * pauses_ns).astype(np.int64).tolist()):
        own = listed[place]
        listed[place] = RetriedRequest(own.buffers, own.headers, own, tuple(own_ns))
    return listed


class RetryBudget:
    """A token bucket: each request adds `share` of a token, each retry takes a whole one, and at most 100 are saved.

    So the retries are at most this share of the requests so far. It starts empty. The saved tokens are divided among the workers.
    """

    def __init__(self, share: float, workers: int = 1) -> None:
        self._added, self._most = round(share * _MILLIONTHS), max(_MOST_SAVED // workers, 1) * _MILLIONTHS
        self._saved = 0

    def add_request(self) -> None:
        """Counts a request, at its first attempt."""
        self._saved = min(self._saved + self._added, self._most)

    def take(self) -> bool:
        """Whether a request may be sent again now."""
        if self._saved < _MILLIONTHS:
            return False
        self._saved -= _MILLIONTHS
        return True


class RetryingSender(Sender):
    """Sends each `RetriedRequest` again as the plan says, after its pause, whatever other requests wait for.

    The reply is a `RetriedReply` where a request was sent again, or would have been but for the budget. A stream with a response is not
    sent again, nor what perfkit itself refused or had no connection for.
    """

    def __init__(self, transport: Transport, plan: RetryPlan, clock: Clock, workers: int = 1) -> None:
        self.transport, self.clock = transport, clock
        self._causes = frozenset(plan.causes)
        self._budget = None if plan.budget is None else RetryBudget(plan.budget, workers)
        self._waiting: dict[_Request, asyncio.Task[None]] = {}
        self._has_stopped = False

    @override
    def send(self, prepared: Prepared) -> Awaitable[Reply]:
        assert isinstance(prepared, RetriedRequest)
        if self._budget is not None:
            self._budget.add_request()
        request = _Request(self, prepared)
        request.send()
        return request.answer

    @override
    def with_traceparent(self, prepared: Prepared, traceparent: str) -> Prepared:
        assert isinstance(prepared, RetriedRequest)
        own = self.transport.with_traceparent(prepared.request, traceparent)
        return RetriedRequest(own.buffers, own.headers, own, prepared.pauses_ns)

    @override
    def abandon(self) -> None:
        self.stop_retrying()
        self.transport.abandon()

    def stop_retrying(self) -> None:
        """Makes every failure final from now on, and ends the requests between two attempts as unfinished."""
        self._has_stopped = True
        for request, task in self._waiting.items():
            task.cancel()
            request.end_unfinished()
        self._waiting.clear()

    def pause_ns(self, prepared: RetriedRequest, reply: Reply, attempts: Sequence[Attempt]) -> int | None:
        """The pause before the next attempt after a failed one, the last of `attempts`; None if it is final."""
        if self._has_stopped or len(attempts) > len(prepared.pauses_ns) or attempts[-1].cause not in self._causes:
            return None
        if reply.responses_ns or reply.is_own_limit or reply.error.startswith(OWN_LIMITS):
            return None
        asked_ns = self.transport.retry_after_ns(reply)
        if asked_ns is None:
            return prepared.pauses_ns[len(attempts) - 1]
        return asked_ns if asked_ns >= 0 else None

    def is_in_budget(self) -> bool:
        """Whether another attempt is permitted, which then counts."""
        return self._budget is None or self._budget.take()

    def wait(self, request: "_Request", pause_ns: int) -> None:
        """Sends a request again after its pause."""
        self._waiting[request] = asyncio.ensure_future(self._send_after(request, self.clock.now_ns() + pause_ns))

    async def _send_after(self, request: "_Request", instant_ns: int) -> None:
        try:
            await self.clock.sleep_until_ns(instant_ns)
            self._waiting.pop(request)
            if not request.done():
                request.send()
        except Exception as error:  # noqa: BLE001 - nobody awaits this task: whoever awaits the answer raises it
            request.set_exception(error)


class _Request:
    """A request under way, from its first attempt to its answer; it receives the reply of each attempt."""

    def __init__(self, sender: RetryingSender, prepared: RetriedRequest) -> None:
        self._sender, self._prepared = sender, prepared
        self._attempts = list[Attempt]()
        self.answer: asyncio.Future[Reply] = asyncio.get_running_loop().create_future()
        self.done = self.answer.done
        self.set_exception = self.answer.set_exception

    def send(self) -> None:
        """Begins the next attempt."""
        transport, request = self._sender.transport, self._prepared.request
        if isinstance(transport, DirectSender):
            transport.submit(request, self)
        else:
            asyncio.ensure_future(transport.send(request)).add_done_callback(functools.partial(hand_over, self))

    def set_result(self, reply: Reply) -> None:
        """Takes the reply to an attempt; a failure may be followed by another one."""
        if reply.outcome is _OK and not self._attempts:
            self.answer.set_result(reply)
            return
        self._attempts.append(Attempt(reply.outcome, reply.status, reply.started_ns, reply.finished_ns))
        pause_ns = None if reply.outcome is _OK else self._sender.pause_ns(self._prepared, reply, self._attempts)
        if pause_ns is not None and self._sender.is_in_budget():
            self._sender.wait(self, pause_ns)
        elif pause_ns is None and len(self._attempts) == 1:
            self.answer.set_result(reply)
        else:
            self._end(reply, is_over_budget=pause_ns is not None)

    def end_unfinished(self) -> None:
        """Ends the request between two attempts."""
        now_ns = self._sender.clock.now_ns()
        if not self.done():
            self._end(Reply(Outcome.UNFINISHED, now_ns, now_ns), is_over_budget=False)

    def _end(self, last: Reply, *, is_over_budget: bool) -> None:
        """Answers with the last reply, from the start of the first attempt."""
        self.answer.set_result(RetriedReply.of(last, self._attempts, is_over_budget=is_over_budget))
