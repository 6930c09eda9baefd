"""Requests that the client gives up: which ones, after what time or number of responses, and a sender that does it."""

import asyncio
import dataclasses
import functools
from collections.abc import Awaitable, Sequence

import numpy as np

from perfkit.clock import Clock
from perfkit.load.listed_requests import ListedRequests
from perfkit.load.loop import any_of
from perfkit.override import override
from perfkit.transport.base import CancellableSender, DirectSender, Outcome, Prepared, Reply, ReplyReceiver, Sender, hand_over


@dataclasses.dataclass(frozen=True, slots=True)
class AbandonPlan:
    """The share of the requests that are given up, and when: after a time by a law, or with the n-th response of a stream."""

    share: float
    seed: int
    uniform_ns: tuple[int, int] | None = None
    """The shortest and the longest time, all between them equally likely; equal for a constant time."""
    lognormal_ns: tuple[int, float] | None = None
    """The median, and the standard deviation of the logarithm."""
    after_responses: int = 0
    """0 for a time."""

    def times_ns(self, count: int, random: np.random.Generator) -> list[int]:
        """The times of so many requests; zeros where responses are counted."""
        if self.lognormal_ns is not None:
            median_ns, sigma = self.lognormal_ns
            drawn = random.lognormal(np.log(median_ns), sigma, count)
        else:
            shortest_ns, longest_ns = self.uniform_ns or (0, 0)
            drawn = random.uniform(shortest_ns, longest_ns, count)
        least_ns = 0 if self.after_responses else 1
        times_ns: list[int] = np.maximum(np.rint(drawn), least_ns).astype(np.int64).tolist()
        return times_ns


@dataclasses.dataclass(slots=True)
class LeftRequest(Prepared):
    """A request that the client gives up unless it is answered before `after_ns`, or before it has `after_responses`; 0 for no such limit."""

    request: Prepared = dataclasses.field(default_factory=lambda: Prepared(()))
    after_ns: int = 0
    after_responses: int = 0


def with_abandonment(requests: Sequence[Prepared], plan: AbandonPlan) -> ListedRequests:
    """The requests in turn, some of them as `LeftRequest`: the i-th of the load is the i-th of the list, which repeats.

    So whether a request is given up depends on its number alone, whatever the number of workers.
    """
    listed = ListedRequests.repeated(requests)
    period = len(listed)
    random = np.random.Generator(np.random.Philox(np.random.SeedSequence((plan.seed, period))))
    left = random.permutation(period)[: round(plan.share * period)].tolist()
    for place, after_ns in zip(left, plan.times_ns(len(left), random), strict=True):
        own = listed[place]
        listed[place] = LeftRequest(own.buffers, own.headers, own, after_ns, plan.after_responses)
    return listed


class AbandoningSender(Sender):
    """A sender that gives up each `LeftRequest` in time: the reply is ABANDONED, or has the mark `may_leave`. All other requests it passes on."""

    def __init__(self, sender: CancellableSender, clock: Clock) -> None:
        self._sender, self._clock = sender, clock

    @classmethod
    def of(cls, sender: CancellableSender, clock: Clock) -> "AbandoningSender":
        """One that hands over replies directly if the given sender does."""
        return _DirectAbandoningSender(sender, clock) if isinstance(sender, DirectSender) else cls(sender, clock)

    @override
    def send(self, prepared: Prepared) -> Awaitable[Reply]:
        if not isinstance(prepared, LeftRequest):
            return self._sender.send(prepared)
        # sent at once: a task begins only in the event loop's next turn
        until_ns = self._clock.now_ns() + prepared.after_ns
        reply = self._sender.send_leaving(prepared.request, prepared.after_responses)
        return asyncio.ensure_future(self._leave(prepared, reply, until_ns))

    @override
    def with_traceparent(self, prepared: Prepared, traceparent: str) -> Prepared:
        if not isinstance(prepared, LeftRequest):
            return self._sender.with_traceparent(prepared, traceparent)
        own = self._sender.with_traceparent(prepared.request, traceparent)
        return LeftRequest(own.buffers, own.headers, own, prepared.after_ns, prepared.after_responses)

    @override
    def abandon(self) -> None:
        self._sender.abandon()

    async def _leave(self, left: LeftRequest, reply: "asyncio.Future[Reply]", until_ns: int) -> Reply:
        has_left = False
        if left.after_ns:
            await any_of(self._clock.sleep_until_ns(until_ns), also=reply)
            if not reply.done():
                has_left = True
                self._sender.give_up(reply)
        result = await reply
        has_left |= 0 < left.after_responses <= len(result.responses_ns)
        if has_left and result.outcome is Outcome.UNFINISHED:
            result.outcome = Outcome.ABANDONED
        result.may_leave = True
        return result


class _DirectAbandoningSender(AbandoningSender, DirectSender):
    """An `AbandoningSender` for a transport that hands over replies directly."""

    def __init__(self, sender: CancellableSender, clock: Clock) -> None:
        super().__init__(sender, clock)
        assert isinstance(sender, DirectSender)
        self._submit = sender.submitter()

    @override
    def submit(self, prepared: Prepared, reply: ReplyReceiver) -> None:
        if not isinstance(prepared, LeftRequest):
            self._submit(prepared, reply)
            return
        asyncio.ensure_future(self.send(prepared)).add_done_callback(functools.partial(hand_over, reply))
