"""A sampler in a thread of its own: sampled when it wants to be, asked in between."""

import concurrent.futures
import queue
import threading
import traceback
from collections.abc import Callable
from typing import Any, Generic, TypeVar

from perfkit.clock import Clock
from perfkit.telemetry.series import Sampler
from perfkit.units import NS_PER_S

_Answer = TypeVar("_Answer")
_Sampler = TypeVar("_Sampler", bound=Sampler[Any])
_SHORTEST_NS = NS_PER_S // 1000


class SamplerThread(Generic[_Sampler]):
    """Starts the sampler at once. A sampler that fails, which is a bug, is noted and sampled no more; the run goes on."""

    def __init__(self, name: str, sampler: _Sampler, clock: Clock) -> None:
        self.name = name
        self._sampler, self._clock = sampler, clock
        self._orders: queue.SimpleQueue[Callable[[], None] | None] = queue.SimpleQueue()
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)  # one that hangs in a driver keeps nobody
        self._thread.start()

    def ask(self, call: Callable[[_Sampler], _Answer]) -> "concurrent.futures.Future[_Answer]":
        """Has the sampler's thread make a call, after its start and what it was asked before."""
        answer: concurrent.futures.Future[_Answer] = concurrent.futures.Future()

        def order() -> None:
            try:
                answer.set_result(call(self._sampler))
            except Exception as error:  # noqa: BLE001 - it is raised where the answer is awaited
                answer.set_exception(error)

        self._orders.put(order)
        return answer

    def take_notes(self) -> "concurrent.futures.Future[list[str]]":
        """What it noted since it was last asked."""

        def take(sampler: _Sampler) -> list[str]:
            notes, sampler.notes = sampler.notes, []
            return notes

        return self.ask(take)

    def close(self, within_s: float) -> None:
        """Ends the thread, or leaves it where it hangs."""
        self._orders.put(None)
        self._thread.join(within_s)

    def _run(self) -> None:
        due_ns = self._clock.now_ns() if self._guarded(self._sampler.start) else None
        while True:
            try:
                order = self._orders.get(timeout=None if due_ns is None else max(due_ns - self._clock.now_ns(), 0) / NS_PER_S)
            except queue.Empty:
                now_ns, due_ns = self._clock.now_ns(), self._guarded(self._sampler.sample)
                due_ns = None if due_ns is None else max(due_ns, now_ns + _SHORTEST_NS)
                continue
            if order is None:
                break
            order()
        self._guarded(self._sampler.close)

    def _guarded(self, call: Callable[[], _Answer]) -> _Answer | None:
        try:
            return call()
        except Exception:  # noqa: BLE001 - a bug in telemetry is no reason to lose a measurement
            last = traceback.format_exc().strip().splitlines()[-1]
            self._sampler.notes.append(f"Sampling of {self.name} failed, and was given up: {last}.")
            return None
