"""The worker's event loop from inside: how late its timers fire, and how long garbage collections stop it.

It takes some 20 timers a second and, at a collection, two readings of the clock; nothing on the way of a request.
"""

import gc
from types import TracebackType
from typing import Any, Self

from perfkit.clock import Clock
from perfkit.telemetry.series import Series, SeriesBuffer
from perfkit.units import NS_PER_S

_EVERY_NS = NS_PER_S // 20
EVENT_LOOP_LAG, GC_PAUSE = "event_loop_lag", "gc_pause"


class EventLoopMonitor:
    """For the length of a `with` block it notes collections; `watch` is a task that notes late timers."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._lag, self._pauses = SeriesBuffer(EVENT_LOOP_LAG, "ns"), SeriesBuffer(GC_PAUSE, "ns")
        self._began_ns = 0

    def __enter__(self) -> Self:
        gc.callbacks.append(self._on_collection)
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None) -> None:
        gc.callbacks.remove(self._on_collection)

    async def watch(self, from_ns: int) -> None:
        """Until it is cancelled, from that instant on; a timer of asyncio is right to 1 ms by itself."""
        due_ns = from_ns
        while True:
            await self._clock.sleep_until_ns(due_ns)
            now_ns = self._clock.now_ns()
            self._lag.add(now_ns, now_ns - due_ns)
            due_ns = now_ns + _EVERY_NS

    def series(self, worker: int) -> tuple[Series, ...]:
        """What was noted; `worker` is counted from 0, and shown from 1 on."""
        tracks = [track.whole() for track in (self._lag, self._pauses)]
        return tuple(Series(one.name, one.unit, {"worker": str(worker + 1)}, one.times_ns, one.values) for one in tracks if one.values)

    def _on_collection(self, phase: str, _: dict[str, Any]) -> None:
        now_ns = self._clock.now_ns()
        if phase == "start":
            self._began_ns = now_ns
        else:
            self._pauses.add(now_ns, now_ns - self._began_ns)
