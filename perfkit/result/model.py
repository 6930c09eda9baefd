"""The models of `perfkit.result/1`. JSON keys are the field names; times are in nanoseconds, rates per second."""

import functools
from collections.abc import Sequence
from typing import Annotated, Any, Literal, NamedTuple

from pydantic import Field

from perfkit.errors import MeasurementWarning
from perfkit.figures.declaration import KEY, OF_ALL, Declared, Figure, Unit, declared
from perfkit.figures.resources import GpuFigures, MetricFigures, ServerCpuFigures, ServerFigures
from perfkit.result.cold_start import ColdStarts
from perfkit.result.counts import Abandonment, Connections, Requests, Responses, Retries, SequenceCounts, Tokens
from perfkit.result.distribution import PERCENTILES, Distribution
from perfkit.result.generator import Generator
from perfkit.result.load import Load, RampLoad
from perfkit.result.part import Part
from perfkit.result.point_parts import Failure, IdleGaps, Incident, Machine, Replica, SloJudgement
from perfkit.result.scan import Scan
from perfkit.result.search import Search
from perfkit.result.surge import Surges
from perfkit.spans.breakdown import Breakdown
from perfkit.stats.slo import CheckedAnswers, FailedShare

SCHEMA = "perfkit.result/1"
METRIC_DEFINITIONS = 1
"""Increased when a figure changes its meaning; figures of different definitions are not compared."""

MOST_FAILED_SHARE = 0.5
"""The share of failed requests above which a load point is unsuccessful: its figures are those of the few that did not fail."""

Status = Literal["complete", "unsuccessful", "interrupted", "incomplete", "invalid"]

_Times = Distribution | None
_Number = float | None

Protocol = Literal["http", "grpc", "mixed"]
"""`mixed` is that of a whole mix of workloads over both."""


class PointKey(NamedTuple):
    """What tells the load points of a result apart, whatever their repetitions."""

    workload: str | None
    alone: bool
    protocol: Protocol
    load: Load

    @property
    def title(self) -> str:
        """Workload, protocol and load in words: `small alone, grpc, concurrency 16`."""
        workload = "" if self.workload is None else f"{self.workload}{' alone' * self.alone}, "
        return f"{workload}{self.protocol}, {self.load.title}"


class Exported(NamedTuple):
    """A figure for other programs, with its 95 % interval; an end is None where it is not known."""

    value: float
    low: float | None = None
    high: float | None = None


class Point(Part):
    """A load point of one repetition, or pooled over all repetitions."""

    workload: str | None = None
    """The workload of a mix that these figures are of; None for the whole mix, and for a scenario that is no mix."""
    alone: bool = False
    """Whether the workload was measured without the others."""
    protocol: Protocol
    load: Load
    repetition: int | None
    """The number of the repetition, from 0; None for pooled repetitions."""
    valid: bool
    """Whether the figures are the target's: false where the load generator limited them."""
    warnings: tuple[MeasurementWarning, ...]
    warmup_s: float = 0.0
    """From the start of the load to that of the window; for pooled repetitions, the longest."""
    duration_s: float
    requests: Requests
    rejected_by_status: dict[str, int] = Field(default_factory=dict)
    """Rejected requests by HTTP status, or by the name of the gRPC status."""
    checked: Annotated[int, Figure(recorded=KEY)] = 0
    """The number of answers, chosen at random, whose outputs were compared with the model's metadata and the expected values."""
    wrong_answer_rate: float | None = None
    """The share of the answers checked at random that were wrong; None if none was checked. What every answer shows, such as
    another model's name, is an invalid output, too, but not part of it."""
    wrong_answer_interval: tuple[float, float] | None = None
    """The 95 % interval of the wrong share of all answers; a single value if all were checked."""
    error_rate: Annotated[float, Figure("errors", "share", "requests", column="error_rate")]
    """1 - ok / scheduled, without the requests that the client gave up on purpose."""
    throughput_per_s: Annotated[float, Figure("throughput", "per_s", "rates", "finished", column="throughput_per_s", metric="throughput")]
    """Ok answers that ended in the window, per second."""
    inferences_per_s: Annotated[float, Figure("inferences", "per_s", "rates", column="inferences_per_s")]
    """Throughput times the batch size."""
    goodput_per_s: Annotated[float | None, Figure("goodput", "per_s", "rates", "good", column="goodput_per_s")] = None
    """Ok answers per second that also meet the SLO; null without an SLO on a percentile."""
    output_tokens_per_s: Annotated[
        float | None,
        Figure("output tokens", "per_s", "tokens", "output_tokens_ended", column="output_tokens_per_s", metric="output_tokens"),
    ] = None
    """Output tokens of the ok answers that ended in the window, per second; None unless all of them report their tokens."""
    input_tokens_per_s: Annotated[
        float | None, Figure("input tokens", "per_s", "tokens", "input_tokens_ended", column="input_tokens_per_s")
    ] = None
    """Input tokens of the ok answers that ended in the window, per second; None unless all of them report their tokens."""
    service_time_ns: Annotated[Distribution, Figure("service time", "ns", None, KEY, log_tag="service", counted_by=OF_ALL)]
    """Finished - started."""
    response_time_ns: Annotated[_Times, Figure("response time", "ns", None, KEY, log_tag="response", counted_by=OF_ALL)] = None
    """Finished - intended start; null for closed loops, which have no intended starts."""
    start_delay_ns: Annotated[_Times, Figure("start delay", "ns", "requests", KEY, "start_delay", "delay", ("p99",), OF_ALL)] = None
    """Started - intended start; null for closed loops."""
    first_response_time_ns: Annotated[_Times, Figure("first", "ns", "streams", KEY, "first_response", "first_response")] = None
    """Streams only: the time to the first response, from the intended start, or in a closed loop from the start."""
    response_gap_ns: Annotated[_Times, Figure("gap", "ns", "streams", KEY, "response_gap", "gap")] = None
    """Streams only: the times between consecutive responses to a request."""
    stream_time_ns: Annotated[_Times, Figure("last", "ns", "streams", KEY, log_tag="stream")] = None
    """Streams only: the time to the last response, from the same start as that to the first."""
    first_token_time_ns: Annotated[_Times, Figure("first token", "ns", "tokens", KEY, "first_token", "first_token")] = None
    """Streams of tokens only: the time to the first event with content or reasoning, from the intended start, or in a closed loop from the start."""
    event_gap_ns: Annotated[_Times, Figure("event gap", "ns", "tokens", KEY, "event_gap", "event_gap")] = None
    """Streams of tokens only: the times between consecutive events with content of a request, each of which may hold several tokens."""
    time_per_output_token_ns: Annotated[_Times, Figure("per token", "ns", "tokens", KEY, "per_token", "per_token")] = None
    """Streams of tokens only: the time from a request's first event to its last, per token after those of the first; of the answers whose server
    reports both."""
    sequence_time_ns: Annotated[_Times, Figure("", "ns", "sequences", KEY, "sequence", "sequence", counted_by="sequences.ended")] = None
    """Sequences only: from the start of the first request (open loop: the intended one) to the end of the last, of those that ended in the
    window."""
    after_gap_time_ns: Annotated[_Times, Figure("after the gap", "ns", "idle gaps", KEY, "after_gap", "after_gap", ("p50",), order=-1)] = (
        None
    )
    """Loads with idle gaps only: the first request after each gap, with the time to connect anew if the server had closed the connection."""
    following_time_ns: Annotated[_Times, Figure("following", "ns", "idle gaps", KEY, "following", "following", ("p50",), order=-1)] = None
    """Loads with idle gaps only: the other requests, timed alike. `service_time_ns` has both."""
    failure_time_ns: Annotated[_Times, Figure("failure time", "ns", None, KEY, counted_by="requests.untimed")]
    """Times of requests that failed at once; null without any."""
    intervals: dict[str, tuple[float, float | None]] = Field(default_factory=dict)
    """95 % intervals of percentiles in nanoseconds; an end is null where too few samples bound it."""
    mean_interval_ns: tuple[float, float] | None = None
    """The 95 % interval of the mean response time (closed loop: service time); None if the window is too short to tell."""
    throughput_interval_per_s: tuple[float, float] | None = None
    """The 95 % interval of the throughput, as it varied within the window; None as above."""
    further_intervals: dict[str, dict[str, tuple[float, float | None]]] = Field(default_factory=dict)
    """The 95 % intervals of the percentiles of the times of streams, sequences and idle gaps, by the name of their times without `_ns`."""
    effective_samples: dict[str, float] = Field(default_factory=dict)
    """By percentile, the number of independent requests that would give it the same precision."""
    slo: SloJudgement | None = None
    """For pooled repetitions, if the scenario has an SLO."""
    responses: Responses | None = None
    """Streams only; None in other loads."""
    tokens: Tokens | None = None
    """Language models over OpenAI's API only; None in other loads."""
    sequences: SequenceCounts | None = None
    """Sequences only; None in other loads."""
    cold_start: ColdStarts | None = None
    """Cold starts only; None in other loads."""
    surge: Surges | None = None
    """Surges only; None in other loads."""
    scan: Scan | None = None
    """Scans of a closed loop only; None in other loads."""
    idle: IdleGaps | None = None
    """Loads with idle gaps only; None in other loads."""
    abandonment: Abandonment | None = None
    """Loads with `load.abandon` only; None in other loads."""
    retries: Retries | None = None
    """Loads with `load.retry` only; None in other loads."""
    connections: Connections
    replicas: tuple[Replica, ...] | None = None
    """The part of each address in the load; None for a target with a single address."""
    machines: tuple[Machine, ...] | None = None
    """The part of each machine in the load of a fleet; None for a load that this machine sent by itself."""
    generator: Generator
    server: ServerFigures | None = None
    """The server's own figures, from its v2 statistics, or else from its page of metrics; None if it has neither, or none of this load."""
    server_cpu: ServerCpuFigures | None = None
    """The CPU time of the server's processes in the window; None unless perfkit started them."""
    gpus: tuple[GpuFigures, ...] = ()
    energy_per_inference_j: Annotated[_Number, Figure("energy per inference", "energy_j", "gpus", "", "energy_per_inference_j")] = None
    """The GPUs' energy in the window, divided by its inferences."""
    energy_above_idle_per_inference_j: float | None = None
    """The GPUs' energy in the window beyond their idle consumption, divided by its inferences."""
    metrics: tuple[MetricFigures, ...] = ()
    """Metrics of the Prometheus pages that the scenario names."""
    throughput_series_per_s: tuple[int, ...] | None = None
    """Ok completions in each second of the window; None for pooled repetitions."""
    failed_series_per_s: tuple[int, ...] | None = None
    """Requests that ended without an ok answer in each second of the window, and arrivals dropped in it, but not unfinished requests. None
    for pooled repetitions."""
    incidents: tuple[Incident, ...] = ()
    """Stalls and error bursts, in the order of repetitions and time."""
    failures: tuple[Failure, ...] = ()
    """Failed requests by message, the most frequent first: ten of each outcome, then the others together."""
    breakdown: Breakdown | None = None
    """Where the time of the traced requests went; None without `traces`."""

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

    def compared(self, percentiles: Sequence[str] = PERCENTILES) -> dict[str, tuple[Unit, float | None]]:
        """The figures by which gates, histories and comparisons know it, with their units.

        Throughput, percentiles, those of the parts of streamed answers, and the others declared.
        """
        declared_ones = {one.figure.metric: (one.figure.unit, one.value_of(self)) for one in declared(Point) if one.figure.metric}
        times: dict[str, tuple[Unit, float | None]] = {name: ("ns", getattr(self.times, name)) for name in percentiles}
        times |= {
            f"{one.figure.column}_{name}": ("ns", getattr(one.value_of(self), name, None))
            for one in parts_of_answers()
            for name in one.figure.percentiles
        }
        return {"throughput": declared_ones.pop("throughput"), **times, **declared_ones}

    def exported(self) -> dict[str, Exported]:
        """The known ones of `compared`, the mean, goodput and error rate, for other programs; names end in the unit, as columns of frames do."""
        figures: dict[str, float | None] = {
            f"{name}_{unit}" if unit in ("ns", "per_s") else name: value for name, (unit, value) in self.compared().items()
        }
        figures |= {"mean_ns": self.times.mean, "goodput_per_s": self.goodput_per_s, "error_rate": self.error_rate}
        intervals: dict[str, tuple[float | None, float | None]] = {f"{name}_ns": ends for name, ends in self.intervals.items()}
        for one in parts_of_answers():
            further = self.further_intervals.get(one.key.removesuffix("_ns"), {})
            intervals |= {f"{one.figure.column}_{name}_ns": ends for name, ends in further.items()}
        unknown = (None, None)
        intervals |= {"throughput_per_s": self.throughput_interval_per_s or unknown, "mean_ns": self.mean_interval_ns or unknown}
        return {name: Exported(value, *intervals.get(name, unknown)) for name, value in figures.items() if value is not None}

    @property
    def checked_answers(self) -> CheckedAnswers:
        """The sample of the answers, and how many of it were wrong."""
        wrong = round((self.wrong_answer_rate or 0.0) * self.checked)
        return CheckedAnswers(self.requests.ok + wrong, self.checked, wrong, max(self.requests.invalid_output - wrong, 0))

    @property
    def failed_share(self) -> FailedShare:
        """The share of the scheduled requests that failed, or that the sample of the answers shows to be wrong."""
        return FailedShare.of(self.error_rate, self.checked_answers)

    @property
    def has_mostly_failed(self) -> bool:
        """Whether more than half of the scheduled requests failed, by no limit of perfkit's own."""
        ours = self.requests.dropped + self.requests.unfinished
        return self.failed_share.low * self.requests.judged - ours > MOST_FAILED_SHARE * self.requests.judged

    def count_unknown(self, name: str) -> int:
        """The number of requests whose time of this name is not known, such as `time_per_output_token`; see `Window.count_unknown`."""
        if self.tokens is None or name != "time_per_output_token":
            return 0
        return self.tokens.per_token_unknown + self.tokens.per_token_cut_off

    @property
    def server_gpus(self) -> list[GpuFigures]:
        """The GPUs, without those that the target is known not to use."""
        return [gpu for gpu in self.gpus if gpu.may_serve]


@functools.cache
def parts_of_answers() -> tuple[Declared, ...]:
    """The times of parts of streamed answers, which frames have."""
    found = (one for one in declared(Point) if one.figure.subject in ("streams", "tokens"))
    return tuple(one for one in found if one.figure.unit == "ns" and one.figure.column)


class Resumption(Part):
    """A continuation of a run that was interrupted, killed or had lost its target."""

    at: str
    """The time at which the run was resumed."""
    after_points: int
    """The number of load points that were measured as a whole before."""
    paused_s: float
    """The time from the end of the last of them until the run was resumed."""
    changes: tuple[str, ...] = ()
    """What differed in the environment since the run's beginning, such as the machine or the server's version, a sentence each."""


class Result(Part):
    """The contents of `result.json`."""

    schema_version: Annotated[str, Field(alias="schema")] = SCHEMA
    scenario: dict[str, Any]
    """The scenario with every default stated, without secrets."""
    overrides: tuple[str, ...] = ()
    """Keys that the environment, the command line or a sweep set."""
    environment: dict[str, Any]
    """What was known of the generator's machine, the target and the source."""
    status: Status
    """complete; unsuccessful, as most requests of a load point failed; interrupted by a person; incomplete, as the target was lost; or
    invalid."""
    status_reason: str = ""
    """A sentence that says why it is not complete; otherwise empty."""
    warnings: tuple[MeasurementWarning, ...] = ()
    """Warnings about the run as a whole, such as `report_missing`; those about figures are in their load points."""
    started_at: str
    resumptions: tuple[Resumption, ...] = ()
    """When the run was resumed after an interruption; empty for a run in one go."""
    points: tuple[Point, ...]
    """Each load point of each repetition, in the order of measurement."""
    summary: tuple[Point, ...]
    """Each load point with its repetitions pooled."""
    search: Search | None = None
    """Only for a `search` load."""

    @property
    def is_mix(self) -> bool:
        """Whether several workloads were measured together."""
        return any(point.workload is not None for point in self.summary)

    @property
    def is_scan(self) -> bool:
        """Whether the load rose within the window, so that no figure is that of a load point."""
        return any(isinstance(point.load, RampLoad) for point in self.summary)


def result_document(result: Result) -> dict[str, Any]:
    """The result as JSON values, in the order of the schema."""
    document = result.document()
    if result.search is None:
        del document["search"]
    return document
