"""One start of a model or a server, how the first requests after it are answered, and from which of them on the server is warm."""

import asyncio
import contextlib
import dataclasses
import math
import statistics
from collections.abc import Awaitable, Callable, Sequence
from typing import TypeVar

import numpy as np

from perfkit.clock import Clock
from perfkit.errors import TargetError, UsageError
from perfkit.load.load_plan import ColdStartPlan
from perfkit.measurement.connections import transport_options
from perfkit.result.cold_start import ColdStart
from perfkit.scenario.model import Scenario
from perfkit.target.address import Address
from perfkit.target.started_server import StartedServer
from perfkit.target_client import Client, make_client
from perfkit.transport.base import Outcome
from perfkit.transport.options import TransportOptions
from perfkit.units import NS_PER_S
from perfkit.workers.messages import Replied

_SLOW_QUANTILE = 0.975
_AHEAD, _MANY = 20, 3
FEWEST_REQUESTS = 40
"""The fewest requests whose second half has a 97.5th percentile below its maximum."""


def steady_after(times_ns: Sequence[float | None]) -> int | None:
    """The number of requests until the times are those of a warm server; None if they are not within the first half.

    The times of the second half count as those of a warm server. A request is slow if it took longer than their 97.5th percentile, or failed (None).
    The server counts as warm from the first request on that is not slow itself and has at most two slow ones among the next 19. So a single
    slow first request counts as warm-up, single slow ones later do not, and 20 quick requests in a row end the warm-up.

    Of a warm server 2.5 % of the first requests are slow, and three of twenty with probability P[Bin(20, 0.025) ≥ 3] = 1.3 %: simulated with
    200 independent times, it is said to need a warm-up in 5 % of the starts. Raises ValueError for fewer than 40 requests.
    """
    count = len(times_ns)
    if count < FEWEST_REQUESTS:
        raise ValueError(f"expected at least {FEWEST_REQUESTS} requests, found {count}")
    times = np.array([math.inf if value is None else value for value in times_ns], dtype=np.float64)
    half = count // 2
    limit = float(np.sort(times[half:])[math.ceil(_SLOW_QUANTILE * (count - half)) - 1])
    slow = (times > limit) | np.isinf(times)
    many = np.convolve(slow, np.ones(_AHEAD, dtype=np.int64), mode="valid") >= _MANY
    steady = np.flatnonzero(~slow[:half] & ~many[:half])
    return int(steady[0]) if steady.size else None


_T = TypeVar("_T")
_POLL_NS = 2_000_000
_HINT = "start the server with --model-control-mode explicit, or measure load: {cold_start: {by: restart}}"
# states of the repository index in which a model is not yet gone
_BUSY = ("READY", "LOADING", "UNLOADING")


@dataclasses.dataclass(slots=True)
class _Instants:
    """When a start began, and when each of its steps was done; a restart has only the first and the last."""

    begun_ns: int = 0
    unloaded_in_ns: int | None = None
    loaded_ns: int | None = None
    ready_ns: int = 0


class StartTrial:
    """One start of a load point: `begin` reloads the model or restarts the server, `take` gets each reply after that."""

    def __init__(
        self,
        scenario: Scenario,
        load: ColdStartPlan,
        address: Address,
        server: StartedServer | None,
        clock: Clock,
        connect: Callable[[Address, TransportOptions, Clock], Client] = make_client,
    ) -> None:
        self._scenario, self._load, self._address, self._server, self._clock = scenario, load, address, server, clock
        self._connect = connect
        self._instants = _Instants()
        self._replies: list[Replied] = []

    async def begin(self) -> int:
        """Unloads and loads the model, or restarts the server, and waits until it is ready; returns the instant at which it was.

        If cancelled, it first loads the model again. Raises UsageError if the server does not load models on request, TargetError if
        the model does not become ready.
        """
        if self._load.by == "reload":
            options = dataclasses.replace(transport_options(self._scenario, self._address.protocol), timeout_ns=self._load.timeout_ns)
            async with contextlib.aclosing(self._connect(self._address, options, self._clock)) as client:
                await self._reload(client)
        else:
            assert self._server is not None
            self._instants.begun_ns = await self._server.restart()
        self._instants.ready_ns = self._clock.now_ns()
        return self._instants.ready_ns

    def take(self, reply: Replied) -> None:
        """Takes the next reply; requests are sent one after the other."""
        self._replies.append(reply)

    def result(self, repetition: int) -> ColdStart | None:
        """The figures of the start; None if no request was sent after it."""
        if not self._replies:
            return None
        instants, begun_ns = self._instants, self._instants.begun_ns
        times = [one.finished_ns - one.started_ns if one.outcome in _ANSWERED else None for one in self._replies]
        first = next((number for number, time_ns in enumerate(times) if time_ns is not None), None)
        is_whole = len(times) >= max(self._load.requests, FEWEST_REQUESTS)
        steady = steady_after(times) if is_whole else None
        warm = [time_ns for time_ns in times[len(times) // 2 :] if time_ns is not None] if is_whole else []
        return ColdStart(
            repetition=repetition,
            unload_ns=instants.unloaded_in_ns,
            load_ns=None if instants.loaded_ns is None else instants.loaded_ns - begun_ns,
            ready_ns=instants.ready_ns - begun_ns,
            first_answer_ns=None if first is None else times[first],
            first_answer_after_ns=None if first is None else self._replies[first].finished_ns - begun_ns,
            failed_before_answer=len(times) if first is None else first,
            steady_after_requests=steady,
            steady_after_ns=None if steady is None else self._replies[steady].started_ns - begun_ns,
            warm_p50_ns=round(statistics.median(warm)) if warm else None,
            times_ns=tuple(times),
        )

    async def _reload(self, client: Client) -> None:
        model, clock, address = self._scenario.target.model, self._clock, self._address
        await client.transport.open(1)
        deadline_ns = clock.now_ns() + self._load.timeout_ns
        started_ns = clock.now_ns()
        try:
            refusal = await client.unload_model(model)
            if not refusal:
                await self._until_unloaded(client, deadline_ns)
        except BaseException:
            with contextlib.suppress(TargetError):
                await _done_before_cancelled(self._load_model(client))
            raise
        if refusal:
            raise UsageError(f"{address}: the model '{model}' cannot be unloaded: {refusal}: {_HINT}")
        self._instants.unloaded_in_ns, self._instants.begun_ns = clock.now_ns() - started_ns, clock.now_ns()
        await _done_before_cancelled(self._load_model(client))
        self._instants.loaded_ns = clock.now_ns()
        while not await self._is_ready(client):
            if clock.now_ns() >= deadline_ns:
                raise TargetError(f"{address}: the model '{model}' was loaded, but not ready within {self._load.timeout_ns // NS_PER_S} s")
            await clock.sleep_until_ns(clock.now_ns() + _POLL_NS)

    async def _load_model(self, client: Client) -> None:
        if refusal := await client.load_model(self._scenario.target.model):
            raise TargetError(
                f"{self._address}: the model '{self._scenario.target.model}' was unloaded, and cannot be loaded again: {refusal}"
            )

    async def _until_unloaded(self, client: Client, deadline_ns: int) -> None:
        """Waits until the model is not ready, and the repository index, if there is one, no longer says that it is being unloaded."""
        model, version = self._scenario.target.model, self._scenario.target.version
        while await self._is_ready(client) or any(
            entry.name == model and entry.state in _BUSY and (not version or entry.version in ("", version))
            for entry in await client.model_index()
        ):
            if self._clock.now_ns() >= deadline_ns:
                raise TargetError(f"{self._address}: the model '{model}' was not unloaded within {self._load.timeout_ns // NS_PER_S} s")
            await self._clock.sleep_until_ns(self._clock.now_ns() + _POLL_NS)

    async def _is_ready(self, client: Client) -> bool:
        try:
            return await client.is_ready(self._scenario.target.model, self._scenario.target.version)
        except TargetError as error:
            if not error.may_pass:
                raise
            return False


_ANSWERED = (Outcome.OK, Outcome.INVALID_OUTPUT)


async def _done_before_cancelled(steps: Awaitable[_T]) -> _T:
    """Awaits a call to the end even if this is cancelled once; a second cancellation gives it up."""
    task = asyncio.ensure_future(steps)
    try:
        return await asyncio.shield(task)
    except asyncio.CancelledError:
        with contextlib.suppress(TargetError):
            await asyncio.shield(task)
        raise
