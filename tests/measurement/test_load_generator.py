"""A load begins after the readings that are due before it, which are taken while its workers get ready."""

import asyncio
import contextlib
import types
from typing import TYPE_CHECKING, Any, cast

import pytest

from perfkit.clock import ManualClock
from perfkit.measurement.load_generator import LoadGenerator
from perfkit.workers.local import Placement

if TYPE_CHECKING:
    from perfkit.measurement.point_telemetry import PointTelemetry
    from perfkit.workers.local import LocalWorkers


class Workers:
    """Takes the place of the worker processes, and of their group: they are ready at once."""

    pids = (1, 2)

    def __init__(self, events):
        self._events = events

    @contextlib.asynccontextmanager
    async def group(self, _specs, _listener, begin_at):
        self._begin_at = begin_at
        try:
            yield self
        finally:
            self._events.append("workers end")

    async def run(self):
        self._events.append("ready")
        at_ns = await self._begin_at()
        self._events.append(("begin", at_ns))
        return "what was recorded"


class Telemetry:
    """Its first readings take a second."""

    show_live = None

    def __init__(self, events, clock):
        self._events, self._clock = events, clock

    async def begin(self):
        self._events.append("read")
        try:
            await self._clock.sleep_until_ns(10**9)
            self._events.append("has read")
        except asyncio.CancelledError:
            self._events.append("cancelled")
            raise

    def follow(self, pids):
        self._events.append(("follow", pids))


class Start:
    """A cold start that is ready three seconds after its begin."""

    async def begin(self):
        return 3 * 10**9


def sending(events, clock, start=None):
    spec: Any = types.SimpleNamespace(split=lambda *_: ["spec"])
    nothing: Any = None
    generator = LoadGenerator(nothing, Placement((), ()), None, None, cast("LocalWorkers", Workers(events)), clock)
    telemetry = cast("PointTelemetry", Telemetry(events, clock))
    return generator.send(spec, 1, nothing, telemetry, start, lambda _group: events.append("can stop"))


@pytest.mark.parametrize(("start", "at_ns"), [(None, None), (Start(), 3 * 10**9)])
def test_the_load_begins_once_the_readings_are_taken_and_can_be_stopped_from_then_on(monkeypatch, start, at_ns):
    monkeypatch.setattr("perfkit.measurement.load_generator.dataclasses.replace", lambda spec, **_: spec)
    events, clock = list[Any](), ManualClock()
    assert clock.run(sending(events, clock, start)) == "what was recorded"
    assert events == [("follow", (1, 2)), "ready", "read", "has read", "can stop", ("begin", at_ns), "workers end"]


def test_an_interrupt_ends_the_wait_for_the_readings(monkeypatch):
    monkeypatch.setattr("perfkit.measurement.load_generator.dataclasses.replace", lambda spec, **_: spec)
    events, clock = list[Any](), ManualClock()

    async def interrupted():
        task = asyncio.ensure_future(sending(events, clock))
        await clock.sleep_until_ns(10**8)
        task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await task
        await asyncio.sleep(0)  # the readings are cancelled in the next turn

    clock.run(interrupted())
    assert events == [("follow", (1, 2)), "ready", "read", "cancelled", "workers end"]
