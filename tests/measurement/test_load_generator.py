"""A load begins after the readings that are due before it, which are taken while its workers get ready."""

import asyncio
import contextlib
import dataclasses
from typing import TYPE_CHECKING, Any, cast

import pytest

from perfkit.clock import ManualClock
from perfkit.errors import TargetError
from perfkit.load.loop import StopCause
from perfkit.measurement.load_generator import LoadGenerator
from perfkit.workers.group import WorkerGroup
from perfkit.workers.local import Placement
from perfkit.workers.messages import Begin, Ready, StopOrder

if TYPE_CHECKING:
    from perfkit.measurement.point_telemetry import PointTelemetry
    from perfkit.workers.local import LocalWorkers

S = 1_000_000_000
LEAD_NS = 7


@dataclasses.dataclass(frozen=True)
class Spec:
    is_live: bool = False
    reports_replies: bool = False

    def split(self, _workers, _cpus):
        return [self]


class Link:
    """A worker that is ready after a time, and finds its target gone after 9 s."""

    workers, name, pids = 1, "worker 1", (1,)

    def __init__(self, events, clock, ready_ns):
        self._events, self._clock, self._ready_ns, self._is_ready = events, clock, ready_ns, False

    def send(self, message):
        self._events.append((self._clock.now_ns(), message))

    async def receive(self):
        if not self._is_ready:
            await self._clock.sleep_until_ns(self._ready_ns)
            self._is_ready = True
            return Ready()
        await self._clock.sleep_until_ns(9 * S)
        return TargetError("it is gone")


class Workers:
    """Takes the place of the worker processes; the group of a load point is a real one, of one `Link`."""

    def __init__(self, events, clock, ready_ns):
        self._how = events, clock, ready_ns

    @contextlib.asynccontextmanager
    async def group(self, _specs, listener, begins_after, begin_at):
        link: Any = Link(*self._how)
        yield WorkerGroup([link], self._how[1], listener, lead_ns=LEAD_NS, begins_after=begins_after, begin_at=begin_at)


class Telemetry:
    """Its first readings take a second."""

    show_live = None

    def __init__(self, events, clock):
        self._events, self._clock = events, clock

    async def begin(self):
        try:
            await self._clock.sleep_until_ns(S)
        except asyncio.CancelledError:
            self._events.append("readings end")
            raise

    def follow(self, _pids):
        pass


class Start:
    """A cold start that is ready three seconds after the start of the clock."""

    async def begin(self):
        return 3 * S


class Log:
    def expect(self, _workers):
        pass


def sending(events, clock, ready_ns, start=None, set_loop=lambda _loop: None):
    nothing, spec, log = cast("Any", None), cast("Any", Spec()), cast("Any", Log())
    workers = cast("LocalWorkers", Workers(events, clock, ready_ns))
    generator = LoadGenerator(nothing, Placement((), ()), None, None, workers, clock)
    return generator.send(spec, 1, log, cast("PointTelemetry", Telemetry(events, clock)), start, set_loop)


@pytest.mark.parametrize(("ready_ns", "began_ns"), [(S // 2, S), (S, S), (2 * S, 2 * S)])
def test_the_load_begins_once_both_the_workers_are_ready_and_the_readings_are_taken(ready_ns, began_ns):
    events, clock = list[Any](), ManualClock()
    with pytest.raises(TargetError, match="it is gone"):
        clock.run(sending(events, clock, ready_ns))
    assert events == [(began_ns, Begin(began_ns + LEAD_NS))]


def test_a_cold_start_begins_after_the_readings_at_its_own_time():
    events, clock = list[Any](), ManualClock()
    with pytest.raises(TargetError, match="it is gone"):
        clock.run(sending(events, clock, S // 2, cast("Any", Start())))
    assert events == [(S, Begin(3 * S))]


@pytest.mark.parametrize("cause", [StopCause.INTERRUPTED, StopCause.TARGET_LOST])
@pytest.mark.parametrize("ready_ns", [S // 4, 2 * S])
def test_a_load_that_is_stopped_before_the_readings_are_taken_does_not_wait_for_them(cause, ready_ns):
    events, clock = list[Any](), ManualClock()

    async def stopped():
        loops = list[Any]()
        sent = asyncio.ensure_future(sending(events, clock, ready_ns, set_loop=loops.append))
        await clock.sleep_until_ns(S // 2)
        loops[0].stop("why", cause)
        await asyncio.wait([sent])
        events.append(clock.now_ns())
        return sent

    sent = clock.run(stopped())
    assert events == [(S // 2, StopOrder("why", cause, drain=True)), "readings end", S // 2]
    assert sent.cancelled() is (cause is StopCause.INTERRUPTED)
