"""A model's statistics, which v2 servers count since it was loaded: the protocol's statistics extension, as values."""

import dataclasses
import json
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from perfkit.errors import ErrorKind, ProtocolError
from perfkit.protocol.tensor import Buffer

DURATIONS = ("success", "fail", "queue", "compute_input", "compute_infer", "compute_output", "cache_hit", "cache_miss")


@dataclasses.dataclass(frozen=True, slots=True)
class TotalTime:
    """How often something happened, and how long that took together."""

    count: int = 0
    ns: int = 0

    @classmethod
    def added(cls, parts: "Iterable[TotalTime]") -> "TotalTime":
        """Of several versions, or several spans, together."""
        parts = list(parts)
        return cls(sum(part.count for part in parts), sum(part.ns for part in parts))


@dataclasses.dataclass(frozen=True, slots=True)
class ModelStatistics:
    """What one version of a model did since it was loaded.

    Queue and compute times count once a request, and every request bears the whole time of its batch; `inferences` adds
    batch sizes, `executions` counts batches. Compute times leave out what the server's cache answered.
    """

    version: str
    inferences: int
    executions: int
    success: TotalTime = TotalTime()
    fail: TotalTime = TotalTime()
    queue: TotalTime = TotalTime()
    compute_input: TotalTime = TotalTime()
    compute_infer: TotalTime = TotalTime()
    compute_output: TotalTime = TotalTime()
    cache_hit: TotalTime = TotalTime()
    cache_miss: TotalTime = TotalTime()

    @classmethod
    def added(cls, parts: "Sequence[ModelStatistics]") -> "ModelStatistics":
        """Of several versions together, named by all of them."""
        return cls(
            version=", ".join(part.version for part in parts),
            inferences=sum(part.inferences for part in parts),
            executions=sum(part.executions for part in parts),
            **{name: TotalTime.added(getattr(part, name) for part in parts) for name in DURATIONS},
        )


def decode_model_statistics(body: Buffer) -> tuple[ModelStatistics, ...]:
    """Reads `GET /v2/models/NAME/stats`; raises ProtocolError where it is not what the protocol says.

    What a server leaves out counts as 0: those before the response cache have no `cache_hit`.
    """
    try:
        document = json.loads(bytes(body))
        return tuple(_read_version(entry) for entry in document["model_stats"])
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise ProtocolError(f"the server's model statistics are not v2: {type(error).__name__} {error}", ErrorKind.INTERNAL) from None


def _read_version(entry: Mapping[str, Any]) -> ModelStatistics:
    times = entry["inference_stats"]
    durations = {name: TotalTime(_count(times[name], "count"), _count(times[name], "ns")) for name in DURATIONS if name in times}
    return ModelStatistics(str(entry.get("version", "")), _count(entry, "inference_count"), _count(entry, "execution_count"), **durations)


def _count(entry: Mapping[str, Any], key: str) -> int:
    """JSON made from protobuf messages leaves out zeros, and writes 64-bit numbers as text."""
    return int(entry.get(key, 0))
