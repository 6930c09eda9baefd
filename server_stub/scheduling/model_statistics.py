"""Statistics of a model since it was loaded, with Triton's meanings. Used from the event loop only."""

import enum
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
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


_PHASES = ("compute_input", "compute_infer", "compute_output")


class Statistics:
    """The cumulative counts and durations of one model."""

    def __init__(self, epoch_ns: Callable[[], int] = time.time_ns) -> None:
        self._epoch_ns = epoch_ns
        self._requests = self._success_ns = self._queue_ns = 0
        self._phases_ns = [0, 0, 0]  # of all requests
        self._batches: dict[int, list[int]] = {}  # by their size, how many there were, and the times of their phases
        self._failed = self._failed_ns = 0
        self._failures = dict.fromkeys(FailureReason, 0)
        self._inference_count = self._execution_count = self._last_inference_ms = 0

    def add_execution(self, timing: Timing, requests: Iterable[tuple[int, int]]) -> None:
        """Count one execution and its requests, given as (enqueued_ns, batch_size). Each request counts the full compute times."""
        started_ns, input_ready_ns, inferred_ns, finished_ns = timing
        executed = count = 0
        for enqueued_ns, batch_size in requests:
            count += 1
            self._success_ns += finished_ns - enqueued_ns
            self._queue_ns += started_ns - enqueued_ns
            executed += batch_size
        self._requests += count
        batch = self._batches.get(executed)
        if batch is None:
            batch = self._batches[executed] = [0, 0, 0, 0]
        input_ns, infer_ns, output_ns = input_ready_ns - started_ns, inferred_ns - input_ready_ns, finished_ns - inferred_ns
        phases_ns = self._phases_ns
        phases_ns[0] += count * input_ns
        phases_ns[1] += count * infer_ns
        phases_ns[2] += count * output_ns
        batch[0] += 1
        batch[1] += input_ns
        batch[2] += infer_ns
        batch[3] += output_ns
        self._inference_count += executed
        self._execution_count += 1
        self._last_inference_ms = self._epoch_ns() // 1_000_000

    def add_failure(self, duration_ns: int, reason: FailureReason) -> None:
        """Count a request that failed after it was queued."""
        self._failed += 1
        self._failed_ns += duration_ns
        self._failures[reason] += 1

    @property
    def failures(self) -> Mapping[FailureReason, int]:
        """The number of failed requests by reason."""
        return self._failures

    def document(self, name: str, version: str) -> dict[str, Any]:
        """The model's entry in `model_stats`, as JSON; protobuf's `ParseDict` accepts it too."""
        requests = self._requests
        return {
            "name": name,
            "version": version,
            "last_inference": self._last_inference_ms,
            "inference_count": self._inference_count,
            "execution_count": self._execution_count,
            "inference_stats": {
                "success": _duration(requests, self._success_ns),
                "fail": _duration(self._failed, self._failed_ns),
                "queue": _duration(requests, self._queue_ns),
                **_phases(requests, self._phases_ns),
                "cache_hit": _duration(0, 0),
                "cache_miss": _duration(0, 0),
            },
            "batch_stats": [
                {"batch_size": size, **_phases(count, phases_ns)} for size, (count, *phases_ns) in sorted(self._batches.items())
            ],
        }


def _duration(count: int, ns: int) -> dict[str, int]:
    return {"count": count, "ns": ns}


def _phases(count: int, phases_ns: Sequence[int]) -> dict[str, dict[str, int]]:
    return {phase: _duration(count, ns) for phase, ns in zip(_PHASES, phases_ns, strict=True)}
