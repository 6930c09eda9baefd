"""Both loops against a target that serves batches, in virtual time: statistics.md, acceptance test E3."""

import asyncio
import functools

import numpy as np
import pytest

from perfkit.load import arrivals
from perfkit.load.arrivals import Schedule
from perfkit.transport.base import Outcome, Reply
from perfkit.transport.scripted import ScriptedTransport
from tests.load.loops import MS, Measured, S


class BatchingTarget(ScriptedTransport):
    """One server: as soon as `fewest` requests wait it takes all that do, up to `most`, for `service_ns` of their number."""

    def __init__(self, clock, service_ns, *, fewest=1, most=10**9):
        super().__init__(clock, lambda _: (0, Outcome.OK))
        self._manual, self._service_ns, self._fewest, self._most = clock, service_ns, fewest, most
        self._waiting: list[tuple[int, asyncio.Future[Reply]]] = []
        self._serving: asyncio.Task[None] | None = None

    def send(self, prepared):
        reply = asyncio.get_running_loop().create_future()
        self._waiting.append((self._manual.now_ns(), reply))
        if self._serving is None and len(self._waiting) >= self._fewest:
            self._serving = asyncio.ensure_future(self._serve())
        return reply

    def abandon(self):
        for started_ns, reply in self._waiting:
            reply.set_result(Reply(Outcome.UNFINISHED, started_ns, self._manual.now_ns()))
        self._waiting = []

    async def _serve(self):
        while len(self._waiting) >= self._fewest:
            batch, self._waiting = self._waiting[: self._most], self._waiting[self._most :]
            await self._manual.sleep_until_ns(self._manual.now_ns() + self._service_ns(len(batch)))
            for started_ns, reply in batch:
                reply.set_result(Reply(Outcome.OK, started_ns, self._manual.now_ns()))
            await self._manual.sleep_until_ns(self._manual.now_ns() + 1)  # who is answered sends again, and stands behind who waits
        self._serving = None


@pytest.mark.parametrize(("size", "times"), [(1, 1), (4, 1), (4, 3), (8, 2), (32, 4)])
def test_a_target_of_whole_batches_has_the_throughput_and_the_times_of_the_closed_form(size, times):
    """It waits for b requests and takes D: N = kb in flight give X = b/D and R = kD, within 1 %."""
    connect = functools.partial(BatchingTarget, service_ns=lambda _: 20 * MS, fewest=size, most=size)
    replies = Measured(connect, concurrency=times * size, warmup_ns=S, window_ns=30 * S).replies
    window = [reply for reply in replies if reply.started_ns >= S and reply.outcome is Outcome.OK]
    finished = sum(S <= reply.finished_ns < 31 * S for reply in replies if reply.outcome is Outcome.OK)
    assert finished / 30 == pytest.approx(size / 0.02, rel=0.01)
    assert np.mean([reply.finished_ns - reply.started_ns for reply in window]) == pytest.approx(times * 20 * MS, rel=0.01)


def inoue_bound(rate, slope, constant):
    """The upper bound of E[R] where a batch of b takes slope·b + constant: min(φ₀, φ₁) of Y. Inoue, arXiv 1912.06322."""
    load = rate * slope
    high = 3 * constant / (2 * (1 - load)) + slope * (load + 2) / (2 * (1 - load**2))
    low = (slope + constant) / (2 * (1 - load)) * (1 + 2 * rate * constant + (1 - rate * constant) / (1 + load))
    return min(low, high)


def test_linear_batches_have_the_mean_response_time_of_theory():
    """α = 1, τ₀ = 2, in units of 10 ms. The size of a batch is that of the one before with a correlation of λ: some 70 requests
    of autocorrelation at λ = 0.8, so that the mean's standard error is about 1 %; the seed is fixed."""  # fmt: skip
    rate, mean, count = 0.8, 18.7, 100_000
    schedule = Schedule("poisson", arrivals.constant_rate(rate * 100), (11,))
    connect = functools.partial(BatchingTarget, service_ns=lambda size: 10 * MS * (size + 2))
    replies = Measured(connect, schedule, warmup_ns=10 * S, window_ns=None, count=count, drain_ns=60 * S).replies
    times = [reply.finished_ns - reply.intended_ns for reply in replies if reply.intended_ns >= 10 * S]
    assert len(times) == count
    found = float(np.mean(times)) / (10 * MS)
    assert found == pytest.approx(mean, rel=0.03)
    assert found <= 1.01 * inoue_bound(rate, 1, 2)
