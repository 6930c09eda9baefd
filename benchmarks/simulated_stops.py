"""Load points in virtual time whose workers stand still or start late: the model behind `benchmarks.generator_stops`.

The workers, their recorders and the judgement are perfkit's own; the server is a queue with two servers and exponential times.
"""

import asyncio
import dataclasses
import heapq
import itertools
from collections.abc import Callable, Iterator, Sequence

import numpy as np

from perfkit.clock import ManualClock
from perfkit.load.arrivals import Schedule, constant_rate
from perfkit.load.load_plan import ClosedPlan, LoadPlan, OpenPlan
from perfkit.points.measured import PointMeasurement
from perfkit.points.point import point
from perfkit.recorder.window import Window, cut
from perfkit.result.counts import Connections
from perfkit.result.generator import Generator
from perfkit.result.load import ClosedLoad, Load, OpenLoad
from perfkit.result.model import Point
from perfkit.target.address import Address
from perfkit.transport.base import Outcome, Prepared
from perfkit.transport.scripted import ScriptedTransport
from perfkit.units import NS_PER_S
from perfkit.workers.messages import WorkerSpec
from perfkit.workers.point_recording import merge_points
from tests.measured_points import point_spec, run_point

WARMUP_NS, START_NS = NS_PER_S, 7 * NS_PER_S
SERVERS, SERVICE_NS = 2, 10_000_000
Span = tuple[int, int]
"""Start and end in nanoseconds."""


@dataclasses.dataclass(frozen=True, slots=True)
class LoadModel:
    """A load: requests in flight or arrivals per second."""

    is_open: bool
    level: float
    workers: int = 1

    @property
    def plan(self) -> Callable[[int], LoadPlan]:
        """The load's plan by seed."""
        if not self.is_open:
            return lambda _: ClosedPlan(int(self.level), 0)
        return lambda seed: OpenPlan(self.level, "poisson", Schedule("poisson", constant_rate(self.level), (seed,)), None, None)

    @property
    def described(self) -> Load:
        """The load as a result describes it."""
        if self.is_open:
            return OpenLoad(rate_per_s=self.level, arrivals="poisson")
        return ClosedLoad(concurrency=int(self.level))


def arrivals_ns(load: LoadModel, seed: int, window_ns: int) -> list[int]:
    """The scheduled instants of an open loop's window, counted from its start."""
    plan = load.plan(seed)
    assert isinstance(plan, OpenPlan)
    instants = np.concatenate(list(itertools.islice(plan.schedule.chunks(), 1))) - WARMUP_NS
    return [int(instant_ns) for instant_ns in instants[(instants >= 0) & (instants < window_ns)]]


class StoppableClock:
    """A worker's view of virtual time: a sleeper that is due while the worker stands still wakes at the end of the stop."""

    def __init__(self, clock: ManualClock, stops: Sequence[Span]) -> None:
        self._clock, self._stops = clock, stops
        self.now_ns = clock.now_ns

    async def sleep_until_ns(self, instant_ns: int) -> None:
        """See `Clock.sleep_until_ns`."""
        due_ns = max(instant_ns, self.now_ns())
        for start_ns, end_ns in self._stops:
            if start_ns <= due_ns < end_ns:
                instant_ns = end_ns
        await self._clock.sleep_until_ns(instant_ns)


class Queue:
    """A first-come-first-served queue before two servers, which works on while a worker of the generator stands still.

    The n-th request that it gets takes the same time with and without a stop, whichever worker sent it. Otherwise every
    request after a stop would draw another time, and the two runs would differ by chance as well (common random numbers,
    A. M. Law, *Simulation Modeling and Analysis*, section 11.2).
    """

    def __init__(self, clock: ManualClock, seed: int) -> None:
        self._now_ns = clock.now_ns
        self._free_ns = [0] * SERVERS
        self._services_ns = _service_times_ns(seed)

    def time_ns(self) -> int:
        """The time of a request that is sent now."""
        now_ns = self._now_ns()
        end_ns = max(now_ns, heapq.heappop(self._free_ns)) + next(self._services_ns)
        heapq.heappush(self._free_ns, end_ns)
        return end_ns - now_ns


def _service_times_ns(seed: int) -> Iterator[int]:
    draw = np.random.default_rng(seed)
    while True:
        yield from draw.exponential(SERVICE_NS, 1024).astype(np.int64).tolist()


def simulate(load: LoadModel, *, seed: int, window_ns: int = 10 * NS_PER_S, stops: Sequence[Span] = ()) -> tuple[Point, Window]:
    """The point of one run whose first worker stands still at these spans, counted from the start of the window; and its recording."""
    clock = ManualClock(START_NS)
    queue = Queue(clock, seed)
    begin_ns = START_NS + NS_PER_S
    spans = [(begin_ns + WARMUP_NS + start_ns, begin_ns + WARMUP_NS + end_ns) for start_ns, end_ns in stops]
    spec = point_spec(load=load.plan(seed), warmup_ns=WARMUP_NS, window_ns=window_ns, requests=None, drain_ns=30 * NS_PER_S, connections=1)

    async def begin_at() -> int:
        return begin_ns

    async def run(part: WorkerSpec) -> object:
        own = StoppableClock(clock, spans if part.worker == 0 else ())
        transport = ScriptedTransport(own, lambda _: (queue.time_ns(), Outcome.OK))
        return await run_point(
            part,
            transport,
            [Prepared(())],
            clock=own,
            address=Address("http", "simulated", 1),
            on_loop=lambda _: None,
            begin_at=begin_at,
        )

    async def run_all() -> list[object]:
        return await asyncio.gather(*map(run, spec.split(load.workers)))

    recorded = merge_points(clock.run(run_all()))  # type: ignore[arg-type]  # gather's results
    window = cut(recorded.recording, recorded.recording.origin_ns, is_open=load.is_open)
    measured = point(
        PointMeasurement(
            protocol="http",
            load=load.described,
            batch_size=1,
            repetition=0,
            window=window,
            warmup_ns=WARMUP_NS,
            connections=Connections(opened=1, reconnects=0),
            generator=Generator(workers=load.workers, cpu_share=0.1, steal_share=0.0),
            warnings=(),
        )
    )
    return measured, window
