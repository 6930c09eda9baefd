"""`perfkit.result/1` as frozen values; the JSON keys are the field names. Times are nanoseconds, rates per second."""

from typing import Annotated, Any, Literal

import pydantic
from pydantic import ConfigDict, Field

from perfkit.errors import MeasurementWarning
from perfkit.telemetry.figures import GpuFigures, MetricFigures, ServerFigures

SCHEMA = "perfkit.result/1"
METRIC_DEFINITIONS = 1
"""Counts up when a figure of a result changes its meaning: figures of different definitions are not compared."""

Status = Literal["complete", "interrupted", "incomplete", "invalid"]


Protocol = Literal["http", "grpc"]


class Part(pydantic.BaseModel):
    """The base of every part: frozen; keys of later versions are kept out of the way."""

    model_config = ConfigDict(frozen=True, extra="ignore")


class Distribution(Part):
    """Nanoseconds. A percentile that too few samples carry is None."""

    count: int
    min: int
    mean: float
    stddev: float
    p50: int | None
    p90: int | None
    p95: int | None
    p99: int | None
    p99_9: int | None
    p99_99: int | None
    max: int


class ClosedLoad(Part):
    """A closed loop's load: that many requests in flight."""

    kind: Literal["closed"] = "closed"
    concurrency: int

    @property
    def level(self) -> float:
        """What tells one load point from another, and where it stands on an axis."""
        return self.concurrency

    @property
    def amount(self) -> str:
        """The level as people read it."""
        return f"{self.concurrency:,}"

    @property
    def title(self) -> str:
        """The load in a few words."""
        return f"concurrency {self.amount}"


class OpenLoad(Part):
    """An open loop's load: arrivals at that rate, whatever became of those before."""

    kind: Literal["open"] = "open"
    rate_per_s: float
    arrivals: str
    burstiness: float | None = None
    max_in_flight: int | None = None

    @property
    def level(self) -> float:
        """See `ClosedLoad.level`."""
        return self.rate_per_s

    @property
    def amount(self) -> str:
        """See `ClosedLoad.amount`."""
        return f"{self.rate_per_s:,.6g}/s"

    @property
    def title(self) -> str:
        """See `ClosedLoad.title`."""
        return f"{self.amount} {self.arrivals}"


Load = Annotated[ClosedLoad | OpenLoad, Field(discriminator="kind")]


class Requests(Part):
    """What became of the window's requests: scheduled = dropped + sent; sent = the sum of what follows it."""

    scheduled: int
    dropped: int
    sent: int
    ok: int
    rejected: int
    timed_out: int
    connect_failed: int
    broken: int
    invalid_output: int
    unfinished: int


class Connections(Part):
    """Connections opened during the point, and how many of them replaced a lost one."""

    opened: int
    reconnects: int
    retried: int = 0
    """Requests sent again, since a kept connection was closed before any byte of their answer."""


class GcPauses(Part):
    """Python's garbage collections in the workers, each of which stops its event loop."""

    count: int
    total_ns: int
    max_ns: int


class ContextSwitches(Part):
    """Of the workers' main threads: how often they waited, and how often another process took their CPU."""

    voluntary: int
    involuntary: int


class Tcp(Part):
    """TCP segments of the generator's machine, whoever sent them, and those sent again."""

    segments_sent: int
    retransmits: int


class Generator(Part):
    """The load generator itself: its busy share of one core, and the share of the machine that others took."""

    workers: int = 1
    """So many processes sent the load; where repetitions are pooled, the most."""
    cpu_share: float
    event_loop_lag_ns: Distribution | None = None
    """How late timers of the workers' event loops fired."""
    pacing_delay_ns: Distribution | None = None
    """Open loops only: how late the generator came to send each request, without waiting for a connection."""
    steal_share: float
    throttled_share: float = 0.0
    """The share of the window in which a CPU quota stopped it."""
    worker_cpu_shares: tuple[float | None, ...] = ()
    """Of one core, of each worker; where repetitions are pooled, the mean."""
    machine_cpu_share: float | None = None
    """How busy its machine was, all CPUs and processes together."""
    gc_pauses: GcPauses | None = None
    context_switches: ContextSwitches | None = None
    tcp: Tcp | None = None
    sockets_max: int | None = None
    """TCP sockets of its machine, those in TIME_WAIT among them."""
    open_files_max: int | None = None
    """Files and sockets of the worker that held most."""
    open_files_limit: int | None = None


class SloJudgement(Part):
    """Whether a load point keeps to the scenario's SLO, and why."""

    verdict: Literal["satisfied", "violated", "inconclusive"]
    reason: str


class Point(Part):
    """One load point, of one repetition or pooled over several."""

    protocol: Protocol
    load: Load
    repetition: int | None
    """None where repetitions are pooled."""
    valid: bool
    warnings: tuple[MeasurementWarning, ...]
    warmup_s: float = 0.0
    """From the load's start to the window's; the longest of the pooled repetitions."""
    duration_s: float
    requests: Requests
    rejected_by_status: dict[str, int] = Field(default_factory=dict)
    """What rejected requests were answered with: an HTTP status, or the name of a gRPC one."""
    checked: int = 0
    """How many answers were read and compared with what the model promises."""
    error_rate: float
    throughput_per_s: float
    inferences_per_s: float
    goodput_per_s: float | None = None
    service_time_ns: Distribution
    response_time_ns: Distribution | None = None
    start_delay_ns: Distribution | None = None
    failure_time_ns: Distribution | None
    intervals: dict[str, tuple[float, float | None]] = Field(default_factory=dict)
    effective_samples: dict[str, float] = Field(default_factory=dict)
    """How many independent requests would fix each percentile as well as those that were measured."""
    slo: SloJudgement | None = None
    """Of the pooled repetitions, where the scenario has an SLO."""
    connections: Connections
    generator: Generator
    server: ServerFigures | None = None
    """The server's own figures, from its v2 statistics; None where it has none, or they tell nothing of this load."""
    gpus: tuple[GpuFigures, ...] = ()
    energy_per_inference_j: float | None = None
    """What the GPUs drew in the window ÷ its inferences."""
    energy_above_idle_per_inference_j: float | None = None
    """The same without what they draw at rest."""
    metrics: tuple[MetricFigures, ...] = ()
    """Of the pages of metrics that the scenario names."""
    throughput_series_per_s: tuple[int, ...] | None = None
    """Ok completions in each second of the window; None where repetitions are pooled."""
    errors: dict[str, tuple[str, ...]] = Field(default_factory=dict)
    """A few of the sentences that failures came with, by outcome."""

    @property
    def times(self) -> Distribution:
        """What a user waited: the response time; in a closed loop, which knows none, the service time."""
        return self.response_time_ns or self.service_time_ns

    @property
    def times_name(self) -> str:
        """What `times` are."""
        return "service time" if self.response_time_ns is None else "response time"


class FittedLine(Part):
    """The line that a search drew: (1 - (limit ÷ measured)^power) ÷ power = intercept + slope · (rate ÷ centre - 1)."""

    limit: str
    """The limit of the SLO that it belongs to, `p99` for instance."""
    centre_per_s: float
    intercept: float
    slope: float
    power: float
    points: int


class SearchProbe(Part):
    """One probe of a search, in their order; its figures are the load point's."""

    rate_per_s: float
    stage: Literal["bracket", "bisect", "refine", "confirm"]
    margins: dict[str, float]
    """ln(measured ÷ limit) by limit; above 0 it is missed."""
    met: bool
    overloaded: bool
    valid: bool
    took_s: float


class Search(Part):
    """What a `search` load came to; capacities are arrivals a second, None where they are not known."""

    slo: dict[str, str]
    capacity_per_s: float | None
    low_per_s: float | None
    high_per_s: float | None
    confidence: float
    """Of the interval, where a line was fitted; otherwise it lies between what was met and what was missed."""
    precision: float
    stopped_because: Literal[
        "precision",
        "cliff",
        "non_monotone",
        "not_confirmed",
        "never_met",
        "never_missed",
        "generator",
        "max_probes",
        "budget",
        "interrupted",
    ]
    reason: str
    """One sentence for all of it."""
    confirmation: Literal["passed", "not_steady", "too_few_samples", "missed"] | None = None
    """What a fresh probe at the lower limit came to."""
    missed_below_per_s: float | None = None
    """A rate far below the capacity at which the SLO is missed as well."""
    line: FittedLine | None = None
    probes: tuple[SearchProbe, ...] = ()


class Result(Part):
    """What `result.json` holds."""

    schema_version: Annotated[str, Field(alias="schema")] = SCHEMA
    scenario: dict[str, Any]
    overrides: tuple[str, ...] = ()
    environment: dict[str, Any]
    status: Status
    status_reason: str = ""
    started_at: str
    points: tuple[Point, ...]
    summary: tuple[Point, ...]
    search: Search | None = None
    """Of a `search` load alone."""

    model_config = ConfigDict(frozen=True, extra="ignore", populate_by_name=True)


def result_document(result: Result) -> dict[str, Any]:
    """The result as plain values, in the order of the schema."""
    document: dict[str, Any] = result.model_dump(mode="json", by_alias=True)
    if result.search is None:
        del document["search"]
    return document
