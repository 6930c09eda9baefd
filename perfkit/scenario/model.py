"""A scenario as frozen values. Field names carry their units; the aliases are the keys of the file."""

from typing import Annotated, Any, Literal, Self, get_args

import pydantic
from pydantic import BeforeValidator, Field, PlainSerializer, WithJsonSchema

from perfkit.scenario.load import ClosedLoadSpec, LoadSpec, OpenLoadSpec, SearchLoadSpec, Slo
from perfkit.scenario.section import Count, Cpus, Duration, OneOrMoreTexts, Section, Share, Text, parse_duration
from perfkit.scenario.target import Server, Target
from perfkit.scenario.telemetry import Gpu, Metrics
from perfkit.scenario.workload import Check, Workload
from perfkit.units import NS_PER_S, write_duration_ns

SCHEMA = "perfkit.scenario/1"
DEFAULT_DURATION_NS = 10_000_000_000
DEFAULT_DRAIN_NS = 30_000_000_000
AUTO_WARMUP_NS = 1_000_000_000

# the most load points of a run, and the most linear pieces of all its rates' shapes
_MAX_POINTS, _MAX_PIECES = 10_000, 1_000_000

GateMetric = Literal["throughput", "p50", "p95", "p99"]


class Measure(Section):
    """How long, how often and from which processes load is sent; `duration` or `requests` ends a window."""

    warmup_ns: Annotated[
        int | Literal["auto"],
        BeforeValidator(lambda value: value if value == "auto" else parse_duration(value)),
        PlainSerializer(lambda value: value if value == "auto" else write_duration_ns(value)),
        WithJsonSchema({"type": ["string", "integer"], "examples": ["auto", "2s"]}),
    ] = Field(default="auto", alias="warmup")
    """`auto` excludes the first second, and any part of the window's first third that is not steady yet."""
    duration_ns: Duration | None = Field(default=None, alias="duration", gt=0)
    requests: Count | None = None
    drain_ns: Duration | None = Field(default=None, alias="drain")
    repetitions: Count = 3
    abort_error_rate: Share | None = None
    """The run ends if a larger share of a load point's requests fails, judged from 20 requests on."""
    workers: Literal["auto"] | Count = "auto"
    """The number of load-generating processes; `auto` follows the machine's calibration, and is 1 without one."""
    cpus: Cpus | None = None

    @pydantic.model_validator(mode="after")
    def _has_one_end(self) -> Self:
        if self.duration_ns is not None and self.requests is not None:
            raise ValueError("duration and requests exclude each other, because each ends the window: remove one")
        return self


class Gate(Section):
    """How `perfkit gate` compares a candidate with a baseline; `perfkit run` ignores this section."""

    profile: Literal["standard"] | None = None
    """`standard` replaces the scenario's load: a closed loop that saturates the baseline (with the highest `load.closed.concurrency`,
    or one found by doubling), then Poisson arrivals at 70 % of its capacity."""
    metrics: Annotated[tuple[GateMetric, ...], Field(min_length=1)] | None = None
    """The metrics that decide; the default is all that a load point has. The error rate always decides, too."""

    @pydantic.field_validator("metrics")
    @classmethod
    def _is_unique(cls, metrics: tuple[GateMetric, ...] | None) -> tuple[GateMetric, ...] | None:
        if metrics is not None and len(set(metrics)) < len(metrics):
            raise ValueError(f"metrics must be unique, found {list(metrics)}")
        return metrics


RankFigure = Literal[
    "throughput", "goodput", "capacity", "energy", "gpu_memory", "error_rate", "p50", "p90", "p95", "p99", "p99_9", "p99_99"
]  # fmt: skip


class Rank(Section):
    """How the cases of a sweep are ranked; the SLO is always a constraint."""

    by: RankFigure | None = None
    """The default is the capacity of searches, the p99 of single rates, and the throughput of all else."""
    where: Annotated[tuple[Text, ...], OneOrMoreTexts] = ()
    """Constraints such as `p99 < 50ms` and `gpu_memory < 40GiB`."""

    @pydantic.field_validator("where")
    @classmethod
    def _can_be_read(cls, where: tuple[str, ...]) -> tuple[str, ...]:
        # imports NumPy, which scenarios without a ranking do not need
        from perfkit.stats.constraints import parse_constraint

        for text in where:
            parse_constraint(text, get_args(RankFigure))
        return where


class Scenario(Section):
    """A validated scenario file."""

    schema_version: str = Field(default=SCHEMA, alias="schema")
    name: Annotated[str, Field(strict=True, pattern=r"^[A-Za-z0-9][\w.-]*$")]
    target: Target
    server: Server = Server()
    workload: Workload = Workload()
    load: LoadSpec
    measure: Measure = Measure()
    check: Check = Check()
    slo: Slo | None = None
    telemetry: Annotated[bool, Field(strict=True)] = True
    """False samples nothing besides the requests."""
    metrics: Metrics = Metrics()
    gpu: Gpu = Gpu()
    gate: Gate | None = None
    sweep: Annotated[dict[Text, Annotated[tuple[Any, ...], Field(min_length=1)]], Field(min_length=1)] | None = None
    """Dotted keys and the values of each: every combination is measured. None in a scenario that was read from a file."""
    rank: Rank | None = None
    """Only with `sweep`; None in a scenario that was read from a file."""

    @pydantic.model_validator(mode="after")
    def _fits_a_search(self) -> Self:
        if not isinstance(self.load, SearchLoadSpec):
            return self
        if (self.load.search.slo is None) == (self.slo is None):
            raise ValueError("load.search needs exactly one SLO: give either load.search.slo, such as {p99: 50ms}, or slo")
        if self.measure.requests is not None:
            raise ValueError("load.search measures for measure.duration: remove measure.requests")
        if "repetitions" in self.measure.model_fields_set and self.measure.repetitions > 1:
            raise ValueError("load.search decides itself how often it measures: remove measure.repetitions")
        if len(self.target.load_protocols) > 1:
            keys = "target.urls: [{http: URL}, {grpc: URL}]" if self.target.urls else "target.protocols: [[http], [grpc]]"
            raise ValueError(f"load.search takes one protocol; to search over each in turn, use sweep: {{{keys}}}")
        return self

    @pydantic.model_validator(mode="after")
    def _has_a_countable_number_of_points(self) -> Self:
        protocols, repetitions = len(self.target.load_protocols), self.measure.repetitions
        loads = 1
        if isinstance(self.load, ClosedLoadSpec):
            loads = len(self.load.closed.concurrency)
        elif isinstance(self.load, OpenLoadSpec):
            rates, window_s = self.load.open.rates_per_s, None if self.window_ns is None else self.window_ns / NS_PER_S
            loads = len(rates) or 1
            if self.load.open.shape is not None:
                requests = self.measure.requests or 0
                pieces = sum(self.load.open.shape.count_pieces(window_s or 2 * requests / rate_per_s) for rate_per_s in rates)
                if pieces > _MAX_PIECES:
                    raise ValueError(
                        f"load.open.shape: {loads:,} rates of {pieces:,} linear pieces together, and {_MAX_PIECES:,} are the most: give a "
                        "longer period, fewer levels, or a shorter window"
                    )
        if (points := loads * protocols * repetitions) > _MAX_POINTS and not isinstance(self.load, SearchLoadSpec):
            raise ValueError(
                f"{loads:,} loads × {protocols} protocols × {repetitions:,} repetitions = {points:,} load points, and {_MAX_POINTS:,} are the "
                "most: reduce measure.repetitions, or the values of load"
            )
        return self

    @pydantic.field_validator("schema_version")
    @classmethod
    def _is_supported(cls, schema: str) -> str:
        if schema != SCHEMA:
            raise ValueError(f"this version of perfkit reads {SCHEMA}, found {schema!r}; a newer version may read it")
        return schema

    @property
    def objective(self) -> Slo | None:
        """The SLO that load points are judged by; for a search its own."""
        return self.load.search.slo or self.slo if isinstance(self.load, SearchLoadSpec) else self.slo

    @property
    def window_ns(self) -> int | None:
        """The length of the measured window; None if a number of requests ends it."""
        if self.measure.requests is not None:
            return None
        return self.measure.duration_ns or DEFAULT_DURATION_NS

    @property
    def warmup_ns(self) -> int:
        """The minimum warm-up; 0 for a trace, all of which is measured."""
        if self.measure.warmup_ns != "auto":
            return self.measure.warmup_ns
        return 0 if isinstance(self.load, OpenLoadSpec) and self.load.open.trace else AUTO_WARMUP_NS

    @property
    def finds_warm_up(self) -> bool:
        """Whether the end of the warm-up is detected, which needs a steady load and a window of fixed length."""
        varies = isinstance(self.load, OpenLoadSpec) and (self.load.open.trace is not None or self.load.open.shape is not None)
        return self.measure.warmup_ns == "auto" and self.window_ns is not None and not varies

    @property
    def drain_ns(self) -> int:
        """How long to wait for answers after the window."""
        return self.measure.drain_ns if self.measure.drain_ns is not None else min(self.target.timeout_ns, DEFAULT_DRAIN_NS)
