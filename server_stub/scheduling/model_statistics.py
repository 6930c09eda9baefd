"""Statistics of a model since it was loaded, with Triton's meanings. Used from the event loop only."""

import dataclasses
import enum
import time
from collections.abc import Callable, Iterable, Mapping
from typing import Any, NamedTuple


class Timing(NamedTuple):
    """The monotonic instants of one execution, shared by all requests of its batch."""

    started_ns: int
    input_ready_ns: int
    inferred_ns: int
    finished_ns: int


class FailureReason(enum.Enum):
    """Why a queued request failed. The value is Triton's metric label."""

    REJECTED = "REJECTED"
    CANCELED = "CANCELED"
    BACKEND = "BACKEND"
    OTHER = "OTHER"


@dataclasses.dataclass(slots=True)
class _Duration:
    count: int = 0
    ns: int = 0

    def add(self, ns: int, count: int = 1) -> None:
        self.count += count
        self.ns += ns


_PHASES = ("compute_input", "compute_infer", "compute_output")
_DURATIONS = ("success", "fail", "queue", *_PHASES, "cache_hit", "cache_miss")


class Statistics:
    """The cumulative counts and durations of one model."""

    def __init__(self, epoch_ns: Callable[[], int] = time.time_ns) -> None:
        self._epoch_ns = epoch_ns
        self._durations = {name: _Duration() for name in _DURATIONS}
        self._success, self._queue = self._durations["success"], self._durations["queue"]
        self._phases = tuple(self._durations[name] for name in _PHASES)
        self._batches: dict[int, tuple[_Duration, ...]] = {}
        self._failures = dict.fromkeys(FailureReason, 0)
        self._inference_count = self._execution_count = self._last_inference_ms = 0

    def add_execution(self, timing: Timing, requests: Iterable[tuple[int, int]]) -> None:
        """Count one execution and its requests, given as (enqueued_ns, batch_size). Each request counts the full compute times."""
        phases_ns = (
            timing.input_ready_ns - timing.started_ns,
            timing.inferred_ns - timing.input_ready_ns,
            timing.finished_ns - timing.inferred_ns,
        )
        executed = count = total_ns = waited_ns = 0
        started_ns, _, _, finished_ns = timing
        for enqueued_ns, batch_size in requests:
            count += 1
            total_ns += finished_ns - enqueued_ns
            waited_ns += started_ns - enqueued_ns
            executed += batch_size
        self._success.add(total_ns, count)
        self._queue.add(waited_ns, count)
        batch = self._batches.get(executed)
        if batch is None:
            batch = self._batches[executed] = tuple(_Duration() for _ in _PHASES)
        for duration, of_batches, ns in zip(self._phases, batch, phases_ns, strict=True):
            duration.count += count
            duration.ns += count * ns
            of_batches.count += 1
            of_batches.ns += ns
        self._inference_count += executed
        self._execution_count += 1
        self._last_inference_ms = self._epoch_ns() // 1_000_000

    def add_failure(self, duration_ns: int, reason: FailureReason) -> None:
        """Count a request that failed after it was queued."""
        self._durations["fail"].add(duration_ns)
        self._failures[reason] += 1

    @property
    def failures(self) -> Mapping[FailureReason, int]:
        """The number of failed requests by reason."""
        return self._failures

    def document(self, name: str, version: str) -> dict[str, Any]:
        """The model's entry in `model_stats`, as JSON; protobuf's `ParseDict` accepts it too."""
        return {
            "name": name,
            "version": version,
            "last_inference": self._last_inference_ms,
            "inference_count": self._inference_count,
            "execution_count": self._execution_count,
            "inference_stats": {key: dataclasses.asdict(duration) for key, duration in self._durations.items()},
            "batch_stats": [
                {"batch_size": size, **{key: dataclasses.asdict(duration) for key, duration in zip(_PHASES, phases, strict=True)}}
                for size, phases in sorted(self._batches.items())
            ],
        }
