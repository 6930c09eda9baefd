"""The statistics extension: what a v2 server counts for a model since it was loaded."""

import dataclasses
import json
import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from perfkit.errors import ErrorKind, ProtocolError
from perfkit.protocol.tensor import Buffer

_DIGITS = re.compile("[0-9]{1,20}")
DURATIONS = ("success", "fail", "queue", "compute_input", "compute_infer", "compute_output", "cache_hit", "cache_miss")


@dataclasses.dataclass(frozen=True, slots=True)
class TotalTime:
    """How often something happened, and the total time it took."""

    count: int = 0
    ns: int = 0

    @classmethod
    def added(cls, parts: "Iterable[TotalTime]") -> "TotalTime":
        """The sum of several."""
        parts = list(parts)
        return cls(sum(part.count for part in parts), sum(part.ns for part in parts))

    @property
    def mean_ns(self) -> float | None:
        """The mean time; None if it never happened."""
        return self.ns / self.count if self.count else None


@dataclasses.dataclass(frozen=True, slots=True)
class ModelStatistics:
    """The work of one version of a model since it was loaded.

    Queue and compute times count once for each request, with the whole time of its batch; `inferences` adds batch sizes,
    `executions` counts batches. Compute times exclude answers from the server's cache.
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

    @property
    def times(self) -> dict[str, TotalTime]:
        """The times by the names of `DURATIONS`."""
        return {name: getattr(self, name) for name in DURATIONS}

    @classmethod
    def added(cls, parts: "Sequence[ModelStatistics]") -> "ModelStatistics":
        """The sum of several versions; `version` lists them."""
        return cls(
            version=", ".join(part.version for part in parts),
            inferences=sum(part.inferences for part in parts),
            executions=sum(part.executions for part in parts),
            **{name: TotalTime.added(getattr(part, name) for part in parts) for name in DURATIONS},
        )


def decode_model_statistics(body: Buffer) -> tuple[ModelStatistics, ...]:
    """Reads the answer to `GET /v2/models/NAME/stats`; raises ProtocolError, which names the field, if it is invalid.

    Missing fields count as 0: servers from before the response cache have no `cache_hit`.
    """
    try:
        document = json.loads(bytes(body))
        return tuple(_read_version(entry) for entry in document["model_stats"])
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise ProtocolError(f"the server's model statistics are not v2: {type(error).__name__} {error}", ErrorKind.INTERNAL) from None


def _read_version(entry: Mapping[str, Any]) -> ModelStatistics:
    times = entry["inference_stats"]
    durations = {}
    for name in DURATIONS:
        if name in times:
            where = f"inference_stats.{name}."
            durations[name] = TotalTime(_count(times[name], "count", where), _count(times[name], "ns", where))
    return ModelStatistics(str(entry.get("version", "")), _count(entry, "inference_count"), _count(entry, "execution_count"), **durations)


def _count(entry: Mapping[str, Any], key: str, where: str = "") -> int:
    """A count; JSON made from protobuf messages omits zeros and has 64-bit numbers as text."""
    value = entry.get(key, 0)
    number = -1
    if isinstance(value, int) and not isinstance(value, bool):
        number = value
    elif (isinstance(value, str) and _DIGITS.fullmatch(value)) or (isinstance(value, float) and value.is_integer()):
        number = int(value)
    if not 0 <= number < 2**64:
        message = f"the server's model statistics are not v2: {where}{key} is {str(value)[:50]}, which is no count of 64 bits"
        raise ProtocolError(message, ErrorKind.INTERNAL)
    return number
