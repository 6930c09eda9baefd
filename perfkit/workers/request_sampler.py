"""The choice of requests that are traced, and the record of their times."""

import asyncio
import collections
import dataclasses
import functools
import hashlib
import itertools
from collections.abc import Awaitable, Iterator, Sequence

import numpy as np

from perfkit.clock import Clock
from perfkit.load.loop import Phases
from perfkit.override import override
from perfkit.spans.span import SampledRequest, client_span_id
from perfkit.transport.base import Outcome, Prepared, Reply, Sender
from perfkit.units import NS_PER_S

MOST_TRACED = 20_000
"""The most requests that are traced in a load point's window by all workers together, and by each workload of a mix."""
REQUEST_ID = "0" * 32
"""The id of requests that are not traced, where traced ones are known by it."""
_FEWEST_OBSERVED, _OBSERVED_FOR_NS, _STEP_NS = 20, NS_PER_S, NS_PER_S // 10


@dataclasses.dataclass(frozen=True, slots=True)
class TraceIds:
    """The ids of traced requests: the first 16 digits are those of the run, the others follow from the name of what is traced."""

    prefix: str
    name: str = ""

    def of_point(self, tag: str) -> "TraceIds":
        """The ids of a load point, or of a worker in it."""
        return dataclasses.replace(self, name=f"{self.name} {tag}")

    def seed(self) -> int:
        """A seed that follows from prefix and name."""
        return int.from_bytes(hashlib.blake2b(f"{self.prefix}{self.name}".encode(), digest_size=8).digest())

    def __iter__(self) -> Iterator[tuple[str, str]]:
        """Trace ids, each with the id of the client's span, without end."""
        for number in itertools.count():
            trace_id = self.prefix + hashlib.blake2b(f"{self.prefix}{self.name} {number}".encode(), digest_size=8).hexdigest()
            yield trace_id, client_span_id(trace_id)


@dataclasses.dataclass(frozen=True, slots=True)
class SamplingSpec:
    """How many of a load point's requests are traced: so many per second, or a share of them."""

    trace_ids: TraceIds
    per_s: float | None
    share: float | None
    expected_per_s: float | None
    """The rate of the load as far as the plan tells it, like `per_s` that of all workers and workloads together; None for a closed loop."""
    sets_request_id: bool = False
    """Whether a traced request has its trace id as request id, too, in place of `REQUEST_ID`, which the prepared requests have."""
    most: int = MOST_TRACED
    """The most requests to trace in the window."""

    def split(self, worker: int, workers: int) -> "SamplingSpec":
        """The part of one of several workers."""
        per_s, expected = (None if rate is None else rate / workers for rate in (self.per_s, self.expected_per_s))
        trace_ids, most = self.trace_ids.of_point(f"w{worker}"), max(self.most // workers, 1)
        return dataclasses.replace(self, trace_ids=trace_ids, per_s=per_s, expected_per_s=expected, most=most)


class RequestSampler(Sender):
    """A sender that traces each request with the same small probability, so that the traced ones are a fair sample.

    The gaps between traced requests are drawn ahead: a request that is not traced costs one subtraction. A rate per second becomes a share
    once, from the rate of the plan or of the warm-up, and stays so, since a share that followed the rate would prefer slow seconds.
    """

    def __init__(self, sender: Sender, spec: SamplingSpec) -> None:
        self.untraced = self._sender = sender
        """What sends requests that no figure counts."""
        self.spec, self._ids = spec, iter(spec.trace_ids)
        self._random = np.random.default_rng(spec.trace_ids.seed())
        self._drawn, self._left, self._share = 0, 0, 0.0
        self._unsettled: collections.deque[tuple[str, Reply]] = collections.deque()
        self._sampled: list[SampledRequest] = []
        self._most = spec.most
        self.set_share(spec.share or (spec.per_s or 0.0) / (spec.expected_per_s or float("inf")))

    @property
    def sent(self) -> int:
        """The requests sent so far."""
        return self._drawn - self._left

    @override
    def send(self, prepared: Prepared) -> Awaitable[Reply]:
        self._left -= 1
        return self._send_traced(prepared) if self._left == 0 else self._sender.send(prepared)

    @override
    def with_traceparent(self, prepared: Prepared, traceparent: str) -> Prepared:
        return self._sender.with_traceparent(prepared, traceparent)

    @override
    def abandon(self) -> None:
        self._sender.abandon()

    def set_share(self, share: float) -> None:
        """Traces this share of the requests from now on."""
        self._share = min(share, 1.0)
        self._draw(self.sent)

    def begin_window(self) -> None:
        """From now on as many requests may be traced as without a warm-up."""
        self._most = len(self._sampled) + self.spec.most
        self._draw(self.sent)

    def finish(self) -> tuple[SampledRequest, ...]:
        """The traced requests that were answered."""
        self._settle()
        return tuple(self._sampled)

    def _draw(self, sent: int) -> None:
        """Draws the gap to the next traced request; without a share it is never reached."""
        self._left = int(self._random.geometric(self._share)) if self._share > 0 and len(self._sampled) < self._most else -1
        self._drawn = sent + self._left

    def _send_traced(self, prepared: Prepared) -> Awaitable[Reply]:
        self._draw(self._drawn)
        trace_id, span_id = next(self._ids)
        if self.spec.sets_request_id:
            prepared = _with_request_id(prepared, trace_id)
        traced = self._sender.with_traceparent(prepared, f"00-{trace_id}-{span_id}-01")
        reply = asyncio.ensure_future(self._sender.send(traced))
        reply.add_done_callback(functools.partial(self._take, trace_id))
        return reply

    def _take(self, trace_id: str, done: "asyncio.Future[Reply]") -> None:
        """Keeps a reply until the loop has added its instants to it, which it has done when the next one comes."""
        if done.cancelled() or done.exception() is not None:
            return
        self._settle()
        self._unsettled.append((trace_id, done.result()))

    def _settle(self) -> None:
        while self._unsettled:
            trace_id, reply = self._unsettled.popleft()
            intended_ns, is_ok = reply.intended_ns or reply.started_ns, reply.outcome is Outcome.OK
            times = (intended_ns, reply.paced_ns, reply.started_ns, reply.finished_ns)
            self._sampled.append(SampledRequest(trace_id, *times, reply.variant, is_ok))


async def follow_rate(samplers: Sequence[RequestSampler], phases: Phases, clock: Clock) -> None:
    """Sets the share to trace where the plan does not tell the rate of the load: after the warm-up, or a second if there is none.

    A rate per second becomes a share; a given share becomes as small as is needed to trace requests until the end of the window. `samplers`
    are those of a worker's workloads. Their rate is that of all together, and their share is the same, so that the traced requests are a fair
    sample of the whole, too. `phases` are those of the load point's own load; what the load of a warm-up has sent is left out.
    """
    if not samplers:
        return
    spec, start_ns, end_ns = samplers[0].spec, phases.start_ns, phases.window_end_ns
    await clock.sleep_until_ns(start_ns)
    before = sum(one.sent for one in samplers)
    await clock.sleep_until_ns(phases.window_start_ns)
    for one in samplers:
        one.begin_window()
    if spec.expected_per_s is not None or (spec.per_s is None and (not spec.share or end_ns is None)):
        return
    await clock.sleep_until_ns(max(phases.window_start_ns, start_ns + _STEP_NS))
    while (sent := sum(one.sent for one in samplers) - before) < _FEWEST_OBSERVED and clock.now_ns() < start_ns + _OBSERVED_FOR_NS:
        await clock.sleep_until_ns(clock.now_ns() + _STEP_NS)
    if not sent:
        return
    requests_per_ns = sent / (clock.now_ns() - start_ns)
    if spec.per_s is not None:
        share = spec.per_s / NS_PER_S / requests_per_ns
    else:
        share = min(spec.share or 0.0, spec.most / (requests_per_ns * ((end_ns or 0) - phases.window_start_ns)))
    for one in samplers:
        one.set_share(share)


def _with_request_id(prepared: Prepared, request_id: str) -> Prepared:
    """The request with this id in place of the one that it was prepared with; ids of one length leave all other bytes as they are."""
    place = next((number for number, buffer in enumerate(prepared.buffers) if REQUEST_ID.encode() in buffer), None)
    if place is None:
        return prepared
    buffers = list(prepared.buffers)
    buffers[place] = bytes(buffers[place]).replace(REQUEST_ID.encode(), request_id.encode(), 1)
    return dataclasses.replace(prepared, buffers=buffers)
