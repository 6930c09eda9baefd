"""Messages between a run and its sampler process: plain values; see `perfkit.process.messages` for their form.

The run sends a `TelemetryConfig`, then any number of `FollowWorkers`, `WindowRequest`, `SpansRequest`, `PublishMetrics` and
`IntervalTimes`. The process answers the first with `Started`, each `WindowRequest` with a `WindowReport`, and each `SpansRequest` with a
`SpansReport`. For a live view the run also sends `LiveMessage`s and, in the end, `CloseScreen`, which is answered with `ScreenClosed`. After
`RunEnded` the process closes its samplers, and takes the `TelemetryConfig` of another run.
"""

import dataclasses
from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING, Any, Protocol, TypeAlias

from perfkit.clock import Clock
from perfkit.target.address import Address

if TYPE_CHECKING:  # the classes of what a message carries are imported when it is read
    from perfkit.figures.resources import Stage
    from perfkit.recorder.recent import LiveFigures
    from perfkit.spans.server_times import ServerTimes
    from perfkit.stats.buckets import BucketCounts
    from perfkit.telemetry.series import SamplerReport, Series


ModelVersion: TypeAlias = tuple[str, str]
"""A model's name, and its version or, for all versions, an empty text."""
NO_GPU_NOTE = "There is no NVIDIA driver on this machine"
"""How the note begins on a machine that has no GPU, and needs none: it is for the result, not for people who watch a run."""


@dataclasses.dataclass(frozen=True, slots=True)
class MetricsPageConfig:
    """A page of Prometheus metrics to sample."""

    url: str
    """Without credentials."""
    authorization: str = dataclasses.field(repr=False)
    """Value of the Authorization header; empty for none."""
    model: str
    """Metrics labelled with another model are left out."""
    names: tuple[str, ...]
    """Metrics to keep besides the known ones; `*` matches any part of a name."""
    interval_ns: int
    secrets: frozenset[str] = dataclasses.field(default=frozenset(), repr=False)
    """Texts that names and labels must not show: a server may repeat what it was sent."""
    version: str = ""
    """The times of other versions of the model are left out; empty for none."""
    mixed: tuple[ModelVersion, ...] = ()
    """In place of both, the models of a mix's workloads, whose times are told apart by the labels of the page."""
    stages: "Mapping[Stage, str]" = dataclasses.field(default_factory=dict)
    """The metrics that the scenario names for stages of the server."""


@dataclasses.dataclass(frozen=True, slots=True)
class StatisticsConfig:
    """A model whose v2 statistics are sampled."""

    address: Address
    model: str
    version: str
    interval_ns: int
    has_page: bool = False
    """Whether a page of the server's metrics is sampled, too."""


@dataclasses.dataclass(frozen=True, slots=True)
class GpuConfig:
    """Sampling of this machine's GPUs through NVML."""

    rate_per_s: float
    idle_ns: int
    """How long idle power is measured before any load."""


@dataclasses.dataclass(frozen=True, slots=True)
class ServerCpuConfig:
    """A server that perfkit started, whose CPU time is measured."""

    pid: int
    """Its first process."""
    with_instructions: bool = False


@dataclasses.dataclass(frozen=True, slots=True)
class SpansConfig:
    """Where the spans of the server are received, over OTLP/HTTP."""

    host: str
    port: int
    """0 for a free one."""
    run_prefix: str
    """The 16 hexadecimal digits with which the trace ids of this run begin; other spans are counted and dropped."""
    most_traces: int
    """The most traces that are kept; if there are more, those that came first are dropped."""


PUSH_FAILED = "Live metrics could not be pushed to"
"""How the note of a receiver that is away begins."""


@dataclasses.dataclass(frozen=True, slots=True)
class PublishConfig:
    """Where the live metrics of a run are seen; None and an empty text for nowhere."""

    listen: tuple[str, int] | None = None
    """Host and port at which Prometheus can read them."""
    otlp: str = ""
    """The URL of the OpenTelemetry receiver to which they are pushed."""
    run: str = ""
    """The name of the run among those of a gate or tune, pushed as the attribute `perfkit.run`; empty for a run by itself."""


@dataclasses.dataclass(frozen=True, slots=True)
class TelemetryConfig:
    """The sources that are sampled during a run; None leaves a source out."""

    addresses: tuple[Address, ...] = ()
    """Where the target listens, to recognise its processes if they run on this machine."""
    gpus: GpuConfig | None = None
    metrics: tuple[MetricsPageConfig, ...] = ()
    statistics: StatisticsConfig | None = None
    server_cpu: ServerCpuConfig | None = None
    listen: tuple[str, int] | None = None
    """As in `PublishConfig`, like the next."""
    otlp: str = ""
    otlp_run: str = ""
    """`run` of `PublishConfig`."""
    otlp_variables: Mapping[str, str] = dataclasses.field(default_factory=dict, repr=False)
    """The environment's variables of OpenTelemetry, which perfkit's processes do not inherit: some hold secrets."""
    screen: "OpenView | None" = None
    """Opens the live view; None for none."""
    spans: SpansConfig | None = None

    @property
    def may_see_gpus(self) -> bool:
        """Whether any source can report GPUs."""
        return self.gpus is not None or bool(self.metrics)


@dataclasses.dataclass(frozen=True, slots=True)
class Started:
    """All samplers have started. `port` serves the live metrics; `error` says why it cannot."""

    notes: tuple[str, ...]
    port: int | None = None
    error: str = ""
    has_screen: bool = False
    """Whether the live view is drawn."""
    spans_port: int | None = None
    """Where spans are received; `spans_error` says why they cannot be."""
    spans_error: str = ""


class RunEnded:
    """Ends the sampling of a run."""


class Waiting:
    """Sent once a second while the process waits for its samplers, to show that it is alive."""


@dataclasses.dataclass(frozen=True, slots=True)
class FollowWorkers:
    """The numbers of the processes that generate the load from now on."""

    pids: tuple[int, ...]


@dataclasses.dataclass(frozen=True, slots=True)
class WindowRequest:
    """Asks for the report of a span of the monotonic clock that has just ended."""

    start_ns: int
    end_ns: int


@dataclasses.dataclass(frozen=True, slots=True)
class WindowReport:
    """Each sampler's report of a window, by the sampler's name, and the notes since the previous report."""

    samplers: "Mapping[str, SamplerReport[Any]]"
    notes: tuple[str, ...]


@dataclasses.dataclass(frozen=True, slots=True)
class SpansRequest:
    """Asks for the server's times of these traces, when all their spans have come, or else after `within_s`."""

    trace_ids: tuple[str, ...]
    within_s: float


@dataclasses.dataclass(frozen=True, slots=True)
class SpanCounts:
    """The spans received since the previous report. Each span is counted in `received`, `strangers` or `malformed`."""

    received: int = 0
    """Spans of the run's traces."""
    strangers: int = 0
    """Spans of other traces."""
    malformed: int = 0
    """Spans without the ids or times that a span must have."""
    duplicates: int = 0
    """The received spans that had come before."""
    late: int = 0
    """The received spans of traces that were reported before."""
    dropped: int = 0
    """The received spans for which there was no room."""
    refused_bodies: int = 0
    """Requests that were too large, no OTLP, in another encoding, or not sent in time."""


@dataclasses.dataclass(frozen=True, slots=True)
class SpansReport:
    """The server's times by trace id, of those traces whose spans have come."""

    times: "Mapping[str, ServerTimes]"
    counts: SpanCounts


@dataclasses.dataclass(frozen=True, slots=True)
class LiveMetric:
    """A live metric of the run; `name` is without the prefix `perfkit_`."""

    name: str
    documentation: str
    kind: str
    """`gauge` or `counter`."""
    labels: Mapping[str, str]
    value: float


@dataclasses.dataclass(frozen=True, slots=True)
class PublishMetrics:
    """Live metrics that replace those published under the same key."""

    key: str
    metrics: tuple[LiveMetric, ...]


@dataclasses.dataclass(frozen=True, slots=True)
class IntervalTimes:
    """One worker's request times of one second of a load point."""

    point: int
    index: int
    times: "Mapping[str, BucketCounts]"


@dataclasses.dataclass(frozen=True, slots=True)
class EndedPoint:
    """A load point that was measured before, for the live view: the figures of its newest repetition, and what any of them found."""

    title: str
    repetitions: int
    throughput_per_s: float
    p50_ns: float | None
    p99_ns: float | None
    """The p99 of response times, in a closed loop of service times."""
    failed_share: float
    """The highest error rate of its repetitions."""
    is_valid: bool
    """Whether all repetitions are valid."""
    codes: tuple[str, ...] = ()
    """The codes of the warnings of all repetitions."""


@dataclasses.dataclass(frozen=True, slots=True)
class PointBegins:
    """The start of a load point, for the live view. `number` counts from 1; unknown durations are None."""

    number: int
    total: int
    title: str
    times_name: str
    seconds: float | None
    seconds_left: float | None
    """The remaining seconds of the whole run, this load point included."""
    ended: tuple[EndedPoint, ...] = ()
    """The newest of the load points before it, in the order of their first repetitions."""


@dataclasses.dataclass(frozen=True, slots=True)
class ScreenLines:
    """Lines that stay on the terminal, above the live view; `left_out` counts those before them that were too many."""

    texts: tuple[str, ...]
    left_out: int = 0


LiveMessage: TypeAlias = "PointBegins | LiveFigures | ScreenLines"
"""A message for the live view."""


class LiveView(Protocol):
    """The live view of a run on a terminal, in the sampler process."""

    def show(self, message: LiveMessage) -> None:
        """Shows a message of the run."""

    def close(self) -> None:
        """Removes the view from the terminal."""


OpenView: TypeAlias = "Callable[[Clock, Callable[[], Iterable[Series]]], LiveView | None]"
"""Opens the live view, in the sampler process; it can be pickled. It gets a function that returns the samplers' newest samples, and returns
None if the terminal cannot be opened."""


class CloseScreen:
    """The request to remove the live view from the terminal."""


class ScreenClosed:
    """The answer to `CloseScreen`: the live view is gone, and the run may write to the terminal itself."""
