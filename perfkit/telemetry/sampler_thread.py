"""A sampler in a thread of its own, sampled when it is due and called in between."""

import concurrent.futures
import queue
import threading
import traceback
from collections.abc import Callable
from typing import Any, Generic, TypeVar

from perfkit.clock import Clock
from perfkit.telemetry.series import Sampler
from perfkit.units import NS_PER_S

_Result = TypeVar("_Result")
_Sampler = TypeVar("_Sampler", bound=Sampler[Any])
_MIN_INTERVAL_NS = NS_PER_S // 1000


def take_notes(sampler: Sampler[Any]) -> list[str]:
    """The sampler's notes since the previous call."""
    notes, sampler.notes = sampler.notes, []
    return notes


class SamplerThread(Generic[_Sampler]):
    """Starts a sampler at once. If the sampler raises, which is a bug, it is noted and no longer sampled; the run continues."""

    def __init__(self, name: str, sampler: _Sampler, clock: Clock) -> None:
        self.name = name
        self._sampler, self._clock = sampler, clock
        self._calls: queue.SimpleQueue[Callable[[], None] | None] = queue.SimpleQueue()
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)  # a hanging driver must not keep the process
        self._thread.start()

    def submit(self, call: Callable[[_Sampler], _Result]) -> "concurrent.futures.Future[_Result]":
        """Calls a function with the sampler, in its thread, after its start and all earlier calls."""
        future: concurrent.futures.Future[_Result] = concurrent.futures.Future()

        def run_call() -> None:
            try:
                future.set_result(call(self._sampler))
            except Exception as error:  # noqa: BLE001 - raised where the result is awaited
                future.set_exception(error)

        self._calls.put(run_call)
        return future

    def close(self, timeout_s: float) -> None:
        """Ends the thread; one that hangs is abandoned after the timeout."""
        self._calls.put(None)
        self._thread.join(timeout_s)

    def _run(self) -> None:
        due_ns = self._clock.now_ns() if self._guarded(self._sampler.start) else None
        while True:
            try:
                call = self._calls.get(timeout=None if due_ns is None else max(due_ns - self._clock.now_ns(), 0) / NS_PER_S)
            except queue.Empty:
                now_ns, due_ns = self._clock.now_ns(), self._guarded(self._sampler.sample)
                due_ns = None if due_ns is None else max(due_ns, now_ns + _MIN_INTERVAL_NS)
                continue
            if call is None:
                break
            call()
        self._guarded(self._sampler.close)

    def _guarded(self, call: Callable[[], _Result]) -> _Result | None:
        try:
            return call()
        except Exception:  # noqa: BLE001 - a bug in telemetry must not lose a measurement
            reason = traceback.format_exc().strip().splitlines()[-1]
            self._sampler.notes.append(f"Sampling of {self.name} failed and has ended: {reason}.")
            return None
