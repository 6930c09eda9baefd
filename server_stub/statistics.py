"""What a model has done since it was loaded, counted as Triton counts."""

import dataclasses
import threading
import time
from typing import Any


@dataclasses.dataclass(frozen=True, slots=True)
class Timing:
    """The instants of one request, monotonic, in nanoseconds."""

    enqueued_ns: int
    started_ns: int
    input_ready_ns: int
    inferred_ns: int
    finished_ns: int


@dataclasses.dataclass(slots=True)
class _Duration:
    count: int = 0
    ns: int = 0

    def add(self, ns: int) -> None:
        self.count += 1
        self.ns += ns


_PHASES = ("compute_input", "compute_infer", "compute_output")
_DURATIONS = ("success", "fail", "queue", *_PHASES, "cache_hit", "cache_miss")


class Statistics:
    """Cumulative counts of one model; the model's thread adds to them, the fronts read them."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._durations = {name: _Duration() for name in _DURATIONS}
        self._batches: dict[int, dict[str, _Duration]] = {}
        self._inference_count = self._execution_count = self._last_inference_ms = 0

    def add_success(self, timing: Timing, batch_size: int) -> None:
        """Counts a request that was answered, executed on its own."""
        phases_ns = (
            timing.input_ready_ns - timing.started_ns,
            timing.inferred_ns - timing.input_ready_ns,
            timing.finished_ns - timing.inferred_ns,
        )
        with self._lock:
            batch = self._batches.setdefault(batch_size, {name: _Duration() for name in _PHASES})
            self._durations["success"].add(timing.finished_ns - timing.enqueued_ns)
            self._durations["queue"].add(timing.started_ns - timing.enqueued_ns)
            for name, ns in zip(_PHASES, phases_ns, strict=True):
                self._durations[name].add(ns)
                batch[name].add(ns)
            self._inference_count += batch_size
            self._execution_count += 1
            self._last_inference_ms = time.time_ns() // 1_000_000

    def add_failure(self, duration_ns: int) -> None:
        """Counts a request that was accepted and then failed."""
        with self._lock:
            self._durations["fail"].add(duration_ns)

    def document(self, name: str, version: str) -> dict[str, Any]:
        """The entry of `model_stats` for this model; `ParseDict` turns it into a message."""
        with self._lock:
            return {
                "name": name,
                "version": version,
                "last_inference": self._last_inference_ms,
                "inference_count": self._inference_count,
                "execution_count": self._execution_count,
                "inference_stats": {key: dataclasses.asdict(one) for key, one in self._durations.items()},
                "batch_stats": [
                    {"batch_size": size, **{key: dataclasses.asdict(one) for key, one in phases.items()}}
                    for size, phases in sorted(self._batches.items())
                ],
            }
