"""What crosses between a run and the process that samples for it: plain values, pickled one behind the other.

Down go a `TelemetryConfig`, then `FollowWorkers`, `WindowRequest`, `PublishMetrics` and `IntervalTimes`; up come `Started` for the first, and a `WindowReport` for each window.
"""

import dataclasses
from collections.abc import Mapping
from typing import Any

from perfkit.stats.buckets import BucketCounts
from perfkit.target.address import Address
from perfkit.telemetry.series import SamplerReport


@dataclasses.dataclass(frozen=True, slots=True)
class MetricsPageConfig:
    """A page of Prometheus metrics to read every so often."""

    url: str
    """Without credentials."""
    authorization: str = dataclasses.field(repr=False)
    """The header's value, empty for none."""
    model: str
    """Metrics of other models are left out."""
    names: tuple[str, ...]
    """What is kept besides what is known; `*` stands for anything."""
    interval_ns: int


@dataclasses.dataclass(frozen=True, slots=True)
class StatisticsConfig:
    """A model whose v2 statistics are read every so often."""

    address: Address
    model: str
    version: str
    interval_ns: int


@dataclasses.dataclass(frozen=True, slots=True)
class GpuConfig:
    """This machine's GPUs, read through their driver: at most so often, and for so long before any load."""

    rate_per_s: float
    rest_ns: int
    addresses: tuple[Address, ...]
    """Where the target listens, to tell its processes from others."""


@dataclasses.dataclass(frozen=True, slots=True)
class TelemetryConfig:
    """What a run has sampled; None leaves a source out."""

    gpus: GpuConfig | None = None
    metrics: tuple[MetricsPageConfig, ...] = ()
    statistics: StatisticsConfig | None = None
    listen: tuple[str, int] | None = None
    """Where the run is published for Prometheus."""

    @property
    def may_see_gpus(self) -> bool:
        """Whether there is any source that may know of GPUs."""
        return self.gpus is not None or bool(self.metrics)


@dataclasses.dataclass(frozen=True, slots=True)
class Started:
    """The samplers run. `port` is where the run is published; `error` why it cannot be."""

    notes: tuple[str, ...]
    port: int | None = None
    error: str = ""


@dataclasses.dataclass(frozen=True, slots=True)
class FollowWorkers:
    """The processes that generate the load from now on."""

    pids: tuple[int, ...]


@dataclasses.dataclass(frozen=True, slots=True)
class WindowRequest:
    """A span of the monotonic clock that has just passed."""

    start_ns: int
    end_ns: int


@dataclasses.dataclass(frozen=True, slots=True)
class WindowReport:
    """What each sampler saw of the window, by its name, and what they noted since they were asked last."""

    observed: Mapping[str, SamplerReport[Any]]
    notes: tuple[str, ...]


@dataclasses.dataclass(frozen=True, slots=True)
class PublishMetrics:
    """Figures of the run for who watches it, in place of those of the same key."""

    key: str
    metrics: tuple["Metric", ...]


@dataclasses.dataclass(frozen=True, slots=True)
class IntervalTimes:
    """The times of the requests of one second of a load point, of one worker."""

    point: int
    index: int
    times: Mapping[str, BucketCounts]


@dataclasses.dataclass(frozen=True, slots=True)
class Metric:
    """One figure of the run as Prometheus takes it; `name` without the prefix."""

    name: str
    text: str
    """What it is, a sentence."""
    kind: str
    """`gauge` or `counter`."""
    labels: Mapping[str, str]
    value: float
