"""A worker's event loop measured from inside: how late its timers fire, and how long garbage collections pause it.

It costs some 20 timers a second and two clock readings per collection, and nothing per request. In loads of many minutes the timers become
rarer, so that the samples never take more than some hundred kilobytes.
"""

import gc
from types import TracebackType
from typing import Any, Self

from perfkit.clock import Clock
from perfkit.telemetry.series import Series, SeriesBuffer
from perfkit.units import NS_PER_S

_INTERVAL_NS = NS_PER_S // 20
_MOST_SAMPLES = 12_000
EVENT_LOOP_LAG, GC_PAUSE = "event_loop_lag", "gc_pause"
"""Names of the series."""


class EventLoopMonitor:
    """Records garbage collections while its `with` block lasts, and late timers while `measure_lag` runs."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._lag, self._pauses = SeriesBuffer(EVENT_LOOP_LAG, "ns"), SeriesBuffer(GC_PAUSE, "ns")
        self._collection_start_ns = 0

    def __enter__(self) -> Self:
        gc.callbacks.append(self._on_collection)
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None) -> None:
        gc.callbacks.remove(self._on_collection)

    async def measure_lag(self, from_ns: int) -> None:
        """Records how late timers fire, from an instant on until it is cancelled; asyncio's timers have a precision of 1 ms."""
        due_ns, interval_ns = from_ns, _INTERVAL_NS
        while True:
            await self._clock.sleep_until_ns(due_ns)
            now_ns = self._clock.now_ns()
            self._lag.add(now_ns, now_ns - due_ns)
            if self._lag.size >= _MOST_SAMPLES:
                self._lag.drop_every_second()
                interval_ns *= 2
            due_ns = now_ns + interval_ns

    def series(self, worker: int) -> tuple[Series, ...]:
        """The series with samples, labelled with the worker's number from 1; `worker` counts from 0."""
        labels = {"worker": str(worker + 1)}
        recorded = (buffer.whole() for buffer in (self._lag, self._pauses))
        return tuple(Series(series.name, series.unit, labels, series.times_ns, series.values) for series in recorded if series.values)

    def _on_collection(self, phase: str, _: dict[str, Any]) -> None:
        now_ns = self._clock.now_ns()
        if phase == "start":
            self._collection_start_ns = now_ns
        else:
            self._pauses.add(now_ns, now_ns - self._collection_start_ns)
