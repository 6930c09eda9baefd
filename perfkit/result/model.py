"""The models of `perfkit.result/1`. JSON keys are the field names; times are in nanoseconds, rates per second."""

from typing import Annotated, Any, ClassVar, Literal, NamedTuple

import pydantic
from pydantic import ConfigDict, Field

from perfkit.errors import MeasurementWarning
from perfkit.telemetry.figures import GpuFigures, MetricFigures, OtherProcesses, ServerFigures
from perfkit.units import NS_PER_S, write_duration_ns

SCHEMA = "perfkit.result/1"
METRIC_DEFINITIONS = 1
"""Increased when a figure changes its meaning; figures of different definitions are not compared."""

Status = Literal["complete", "interrupted", "incomplete", "invalid"]


Protocol = Literal["http", "grpc", "mixed"]
"""`mixed` is that of a whole mix of workloads over both."""


class Part(pydantic.BaseModel):
    """The base of all parts: frozen, and tolerant of keys of later versions."""

    model_config = ConfigDict(frozen=True, extra="ignore", populate_by_name=True)

    def document(self) -> dict[str, Any]:
        """The part as JSON values, in the order of the schema."""
        return self.model_dump(mode="json", by_alias=True)


class Distribution(Part):
    """The figures of a distribution of times; percentiles with too few samples are None."""

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
    """The load of a closed loop: a fixed number of requests in flight."""

    quantity: ClassVar[str] = "concurrency"
    """What the level is, in words."""
    kind: Literal["closed"] = "closed"
    concurrency: int

    @property
    def level(self) -> float:
        """The number that distinguishes load points, for axes and sorting."""
        return self.concurrency

    @property
    def amount(self) -> str:
        """The level as text."""
        return f"{self.concurrency:,}"

    @property
    def title(self) -> str:
        """The load in a few words."""
        return f"concurrency {self.amount}"


class OpenLoad(Part):
    """The load of an open loop: arrivals at a rate, independent of earlier requests."""

    quantity: ClassVar[str] = "rate"
    kind: Literal["open"] = "open"
    rate_per_s: float
    arrivals: str
    burstiness: float | None = None
    max_in_flight: int | None = None
    speed: float | None = None
    """Of a replay: how many times as fast as recorded the trace was sent."""

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
        return f"{self.amount} {self.arrivals}{'' if self.speed in (None, 1) else f' at speed {self.speed:g}'}"


class IdleLoad(Part):
    """The load of one request in flight with idle gaps: after each gap one request, then `then` more."""

    quantity: ClassVar[str] = "idle gap"
    kind: Literal["idle"] = "idle"
    gap_s: float
    then: int

    @property
    def level(self) -> float:
        """See `ClosedLoad.level`."""
        return self.gap_s

    @property
    def amount(self) -> str:
        """See `ClosedLoad.amount`."""
        return write_duration_ns(round(self.gap_s * NS_PER_S))

    @property
    def title(self) -> str:
        """See `ClosedLoad.title`."""
        return f"idle gap {self.amount}"


class ColdStartLoad(Part):
    """Starts of the model or the server, each followed by requests one after the other."""

    quantity: ClassVar[str] = "start by"
    kind: Literal["cold_start"] = "cold_start"
    by: Literal["reload", "restart"]
    requests: int

    @property
    def level(self) -> float:
        """See `ClosedLoad.level`."""
        return self.requests

    @property
    def amount(self) -> str:
        """See `ClosedLoad.amount`."""
        return self.by

    @property
    def title(self) -> str:
        """See `ClosedLoad.title`."""
        return f"cold start by {self.by}"


class MixedLoad(Part):
    """The load of a whole mix of which some workloads have closed and others open loops: the sums of each."""

    quantity: ClassVar[str] = "load"
    kind: Literal["mixed"] = "mixed"
    concurrency: int
    """The requests in flight of the closed loops."""
    rate_per_s: float
    """The arrivals per second of the open loops."""

    @property
    def level(self) -> float:
        """See `ClosedLoad.level`."""
        return self.concurrency + self.rate_per_s

    @property
    def amount(self) -> str:
        """See `ClosedLoad.amount`."""
        return f"{self.concurrency:,} in flight + {self.rate_per_s:,.6g}/s"

    @property
    def title(self) -> str:
        """See `ClosedLoad.title`."""
        return self.amount


Load = Annotated[ClosedLoad | OpenLoad | IdleLoad | ColdStartLoad | MixedLoad, Field(discriminator="kind")]


class PointKey(NamedTuple):
    """What tells the load points of a result apart, whatever their repetitions."""

    workload: str | None
    alone: bool
    protocol: Protocol
    load: ClosedLoad | OpenLoad | IdleLoad | ColdStartLoad | MixedLoad

    @property
    def title(self) -> str:
        """Workload, protocol and load in words: `small alone, grpc, concurrency 16`."""
        workload = "" if self.workload is None else f"{self.workload}{' alone' * self.alone}, "
        return f"{workload}{self.protocol}, {self.load.title}"


class Requests(Part):
    """Requests of the window by outcome: scheduled = dropped + sent, and sent is the sum of the outcomes after it."""

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
    """Connections opened during the load point, and those of them that replaced a lost one."""

    opened: int
    reconnects: int
    retried: int = 0
    """Requests sent again because an idle connection was closed before any byte of their answer."""
    rotated: int = 0
    """Connections closed after the requests or the time of `target.connections`."""
    connect_time_ns: Distribution | None = None
    """How long connections took to open: the name's resolution, TCP, TLS, HTTP/2's settings. None in results of earlier versions."""


class GcPauses(Part):
    """Pauses of the workers' event loops for Python's garbage collection."""

    count: int
    total_ns: int
    max_ns: int


class Stops(Part):
    """Spans of at least 4 ms in which a worker did not run: stopped by a signal, a quota, the host, or other processes."""

    count: int
    total_ns: int
    max_ns: int
    touched_requests: int
    """Requests that were in flight or due in a stop, or were delayed by its consequences."""


class ContextSwitches(Part):
    """Context switches of the workers' main threads: voluntary ones to wait, involuntary ones for other processes."""

    voluntary: int
    involuntary: int


class Tcp(Part):
    """TCP segments sent by all processes of the generator's machine, and retransmits."""

    segments_sent: int
    retransmits: int


class Generator(Part):
    """The load generator itself: its busy share of one core, and the share of the machine that others took."""

    workers: int = 1
    """The number of processes that sent the load; for pooled repetitions, the largest."""
    cpu_share: float
    event_loop_lag_ns: Distribution | None = None
    """How late timers of the workers' event loops fired."""
    pacing_delay_ns: Distribution | None = None
    """Open loops only: how late the generator came to send each request, without waiting for a connection."""
    steal_share: float
    throttled_share: float = 0.0
    """The share of the window in which a CPU quota stopped the generator."""
    stops: Stops | None = None
    """None in results of earlier versions."""
    transport_ns: int | None = None
    """What transport and wake-up of both sides take of a service time, from this machine's calibration; None without one for such a load."""
    suspended_ns: int = 0
    """How long its machine was suspended, while the clock of all times stood still."""
    worker_cpu_shares: tuple[float | None, ...] = ()
    """Each worker's share of one core; for pooled repetitions, the mean."""
    machine_cpu_share: float | None = None
    """The utilisation of its machine, over all CPUs and processes."""
    gc_pauses: GcPauses | None = None
    context_switches: ContextSwitches | None = None
    tcp: Tcp | None = None
    sockets_max: int | None = None
    """TCP sockets of its machine, including those in TIME_WAIT."""
    open_files_max: int | None = None
    """Open files and sockets of the worker with the most."""
    open_files_limit: int | None = None
    others: OtherProcesses | None = None
    """What processes besides perfkit and the target used on its machine; None in results of earlier versions."""


class Failure(Part):
    """Failed requests of the window with one message."""

    outcome: str
    status: str | None
    """The HTTP status, or the name of the gRPC status, of a rejection."""
    message: str | None
    """The server's words, at most 300 characters; None for all other messages together."""
    cause: Literal["queue_full", "queue_timeout"] | None
    """Whether the server's queue was full, or the request's time in it ran out, by the words of Triton's schedulers."""
    count: int


class Incident(Part):
    """A part of the window in which the target stood still, or in which most failures of the window lie close together."""

    kind: Literal["stall", "error_burst"]
    """`stall`: nothing was answered, not even with an error. `error_burst`: failures in whole seconds."""
    repetition: int
    start_s: float
    """Since the window's start."""
    length_s: float
    failed: int = 0
    """The number of failures of an error burst."""

    @property
    def end_s(self) -> float:
        """The end, since the window's start."""
        return self.start_s + self.length_s


class Responses(Part):
    """The responses to streamed requests. A final marker without data is not a response."""

    count: int
    """Responses to the requests of the window."""
    per_s: float
    """Responses that came in the window, per second."""
    without_response: int
    """Requests of the window that ended ok without any response."""
    cancelled: int
    """Requests of the window that the load generator cancelled: they timed out, or were unfinished at the end."""


class SequenceCounts(Part):
    """Sequences by what happened to them in the window; one that is open at either end of it is not in all of the counts."""

    started: int
    ended: int
    """Sequences whose last request was answered."""
    failed: int
    """Sequences that ended early because a request failed."""


class Replica(Part):
    """The requests of one address, of a target with several; the counts of all add up to those of the load point."""

    address: str
    """A URL, followed by the IP address where the URL's name has several."""
    requests: int
    """Requests sent."""
    ok: int
    errors: int
    throughput_per_s: float
    times_ns: Distribution
    """Response times, in a closed loop service times."""
    intervals: dict[str, tuple[float, float | None]] = Field(default_factory=dict)
    """Of p50 and p99."""
    connections: int
    """Connections opened during the load point, before and after its window, too."""


class Estimated(Part):
    """A figure with its 95 % interval."""

    value: float
    low: float
    high: float


class IdleGaps(Part):
    """What idle gaps do to the first request after them."""

    gaps: int
    """The requests after a gap."""
    reconnected: int
    """Those of them for which a connection was opened, in the gap or after it, because the server had closed it."""
    penalty_ns: Estimated | None = None
    """The median time after a gap minus the median of the following requests; None for fewer than 6 gaps."""
    penalty_ratio: Estimated | None = None
    """The first median divided by the second."""


class ColdStart(Part):
    """One start of the model or the server; times count from the call of load, or from the start of the server's process."""

    repetition: int
    unload_ns: int | None
    """From the call of unload until the model was gone; None for a restart, as is the next."""
    load_ns: int | None
    """Until load was answered."""
    ready_ns: int
    """Until the model was ready."""
    first_answer_ns: int | None
    """The service time of the first request that was answered; None without an answer."""
    first_answer_after_ns: int | None
    """Until that answer."""
    failed_before_answer: int
    """Requests that failed before it."""
    steady_after_requests: int | None
    """The number of requests before the first from which on the times are those of a warm model; None if half of them did not suffice."""
    steady_after_ns: int | None
    """Until that request was sent."""
    warm_p50_ns: int | None
    """The median of the second half of the requests."""
    times_ns: tuple[int | None, ...]
    """The service time of each request in turn; None for those that failed."""


class Spread(Part):
    """The median and the range of a figure over the starts that have it."""

    median: float
    min: float
    max: float


class ColdStarts(Part):
    """The starts of a load point."""

    starts: tuple[ColdStart, ...]
    figures: dict[str, Spread]
    """By the names of the figures of a start."""


class SloJudgement(Part):
    """Whether a load point meets the scenario's SLO, and why."""

    verdict: Literal["satisfied", "violated", "inconclusive"]
    reason: str


class Point(Part):
    """A load point of one repetition, or pooled over all repetitions."""

    workload: str | None = None
    """The workload of a mix that these figures are of; None for the whole mix, and for a scenario that is no mix."""
    alone: bool = False
    """Whether the workload was measured without the others."""
    protocol: Protocol
    load: Load
    repetition: int | None
    """None for pooled repetitions."""
    valid: bool
    warnings: tuple[MeasurementWarning, ...]
    warmup_s: float = 0.0
    """From the start of the load to that of the window; for pooled repetitions, the longest."""
    duration_s: float
    requests: Requests
    rejected_by_status: dict[str, int] = Field(default_factory=dict)
    """Rejected requests by HTTP status, or by the name of the gRPC status."""
    checked: int = 0
    """The number of answers, chosen at random, whose outputs were compared with the model's metadata and the expected values."""
    wrong_answer_rate: float | None = None
    """The share of the checked answers that were wrong; None if none was checked, and in results of earlier versions."""
    wrong_answer_interval: tuple[float, float] | None = None
    """The 95 % interval of the wrong share of all answers; a single value if all were checked."""
    error_rate: float
    throughput_per_s: float
    inferences_per_s: float
    goodput_per_s: float | None = None
    service_time_ns: Distribution
    response_time_ns: Distribution | None = None
    start_delay_ns: Distribution | None = None
    first_response_time_ns: Distribution | None = None
    """Streams only: the time to the first response, from the intended start, or in a closed loop from the start."""
    response_gap_ns: Distribution | None = None
    """Streams only: the times between consecutive responses to a request."""
    stream_time_ns: Distribution | None = None
    """Streams only: the time to the last response, from the same start as that to the first."""
    sequence_time_ns: Distribution | None = None
    """Sequences only: from the start of the first request (open loop: the intended one) to the end of the last, of those that ended in the
    window."""
    after_gap_time_ns: Distribution | None = None
    """Loads with idle gaps only: the first request after each gap, with the time to connect anew if the server had closed the connection."""
    following_time_ns: Distribution | None = None
    """Loads with idle gaps only: the other requests, timed alike. `service_time_ns` has both."""
    failure_time_ns: Distribution | None
    intervals: dict[str, tuple[float, float | None]] = Field(default_factory=dict)
    further_intervals: dict[str, dict[str, tuple[float, float | None]]] = Field(default_factory=dict)
    """The 95 % intervals of the percentiles of streams and sequences, by the name of their times without `_ns`."""
    effective_samples: dict[str, float] = Field(default_factory=dict)
    """By percentile, the number of independent requests that would give it the same precision."""
    slo: SloJudgement | None = None
    """For pooled repetitions, if the scenario has an SLO."""
    responses: Responses | None = None
    """Streams only; None in other loads."""
    sequences: SequenceCounts | None = None
    """Sequences only; None in other loads."""
    cold_start: ColdStarts | None = None
    """Cold starts only; None in other loads."""
    idle: IdleGaps | None = None
    """Loads with idle gaps only; None in other loads."""
    connections: Connections
    replicas: tuple[Replica, ...] | None = None
    """None for a target with a single address."""
    generator: Generator
    server: ServerFigures | None = None
    """The server's own figures, from its v2 statistics; None if it has none, or none of this load."""
    gpus: tuple[GpuFigures, ...] = ()
    energy_per_inference_j: float | None = None
    """The GPUs' energy in the window, divided by its inferences."""
    energy_above_idle_per_inference_j: float | None = None
    """The same, without the GPUs' idle consumption."""
    metrics: tuple[MetricFigures, ...] = ()
    """Metrics of the Prometheus pages that the scenario names."""
    throughput_series_per_s: tuple[int, ...] | None = None
    """Ok completions in each second of the window; None for pooled repetitions."""
    failed_series_per_s: tuple[int, ...] | None = None
    """Requests that ended without an ok answer in each second of the window, and arrivals dropped in it, but not unfinished requests. None
    for pooled repetitions and in results of earlier versions."""
    incidents: tuple[Incident, ...] = ()
    """Stalls and error bursts, in the order of repetitions and time."""
    failures: tuple[Failure, ...] = ()
    """Failed requests by message, the most frequent first: ten of each outcome, then the others together."""

    @property
    def key(self) -> PointKey:
        """What tells this load point from the others."""
        return PointKey(self.workload, self.alone, self.protocol, self.load)

    @property
    def title(self) -> str:
        """Protocol and load in words: `grpc, concurrency 16`; in a mix also the workload."""
        return self.key.title

    @property
    def times(self) -> Distribution:
        """How long a user waited: the response time; in a closed loop, which has none, the service time."""
        return self.response_time_ns or self.service_time_ns

    @property
    def times_name(self) -> str:
        """The name of `times`."""
        return "service time" if self.response_time_ns is None else "response time"

    @property
    def server_gpus(self) -> list[GpuFigures]:
        """The GPUs, without those that the target is known not to use."""
        return [gpu for gpu in self.gpus if gpu.used_by_server is not False]


class FittedCurve(Part):
    """The curve that a search fitted: share beyond the limit = floor + exp(intercept + slope · (rate ÷ centre - 1))."""

    limit: str
    """The name of the SLO's limit, such as `p99`."""
    centre_per_s: float
    floor: float
    intercept: float
    slope: float
    points: int
    effective_beyond: float
    """The number of independent requests beyond the limit that would carry as much information."""
    dispersion: float
    """The variance of a probe's count beyond the limit, divided by its mean, at the capacity."""


class ProbeLimit(Part):
    """The requests of a probe that were beyond one limit of the SLO: slower than a percentile's limit, or failed."""

    beyond: int
    count: int
    allowed_share: float
    """The share that may be beyond the limit, such as 0.01 for a p99."""
    dispersion: float
    """The variance of `beyond` divided by its mean, from the parts of the window; 1 for independent requests."""


class SearchProbe(Part):
    """One probe of a search; its figures are those of the load point with the same index."""

    rate_per_s: float
    stage: Literal["bracket", "bisect", "refine", "confirm"]
    limits: dict[str, ProbeLimit]
    met: bool
    overloaded: bool
    valid: bool
    took_s: float


class Search(Part):
    """The result of a `search` load; capacities are arrivals per second, None if unknown."""

    slo: dict[str, str]
    capacity_per_s: float | None
    low_per_s: float | None
    high_per_s: float | None
    confidence: float
    """The confidence of the interval if a curve was fitted; otherwise the interval lies between a rate that met the SLO and one that missed it."""
    precision: float
    budget_s: float | None = None
    """The time limit of the search; None if it was not recorded."""
    stopped_because: Literal[
        "precision", "cliff", "non_monotone", "not_confirmed", "never_met", "never_missed", "generator", "too_short", "max_probes", "budget",
        "interrupted",
    ]  # fmt: skip
    reason: str
    """The result in one sentence."""
    confirmation: Literal["passed", "not_steady", "too_few_samples", "missed"] | None = None
    """The result of a new probe at the lower limit."""
    missed_below_per_s: float | None = None
    """A rate far below the capacity that misses the SLO as well."""
    needed_s: float | None = None
    """The time that the whole search would take; None unless it ended as `too_short`."""
    drifted_at_per_s: tuple[float, ...] = ()
    """The rates of the probes during which the response times drifted."""
    curve: FittedCurve | None = None
    probes: tuple[SearchProbe, ...] = ()


class Result(Part):
    """The contents of `result.json`."""

    schema_version: Annotated[str, Field(alias="schema")] = SCHEMA
    scenario: dict[str, Any]
    overrides: tuple[str, ...] = ()
    environment: dict[str, Any]
    status: Status
    status_reason: str = ""
    warnings: tuple[MeasurementWarning, ...] = ()
    """Warnings about the run as a whole, such as `report_missing`; those about figures are in their load points."""
    started_at: str
    points: tuple[Point, ...]
    summary: tuple[Point, ...]
    search: Search | None = None
    """Only for a `search` load."""

    @property
    def is_mix(self) -> bool:
        """Whether several workloads were measured together."""
        return any(point.workload is not None for point in self.summary)


def result_document(result: Result) -> dict[str, Any]:
    """The result as JSON values, in the order of the schema."""
    document = result.document()
    if result.search is None:
        del document["search"]
    return document
