"""A scenario as frozen values. Fields carry their units in their names; the keys that people write are the aliases."""

from typing import Annotated, Any, Literal, Self

import pydantic
from pydantic import BeforeValidator, Field, PlainSerializer, WithJsonSchema

from perfkit.scenario.check import Check
from perfkit.scenario.gate import Gate
from perfkit.scenario.load import LoadSpec, OpenLoadSpec, SearchLoadSpec
from perfkit.scenario.metrics import Gpu, Metrics
from perfkit.scenario.part import Count, Cpus, Duration, Part, Share, Text
from perfkit.scenario.slo import Slo
from perfkit.scenario.target import Server, Target
from perfkit.scenario.workload import Workload
from perfkit.units import parse_duration_ns, write_duration_ns

SCHEMA = "perfkit.scenario/1"


class Measure(Part):
    """How long, how often and from where; `duration` or `requests` ends a window."""

    warmup_ns: Annotated[
        int | Literal["auto"],
        BeforeValidator(lambda value: value if value == "auto" else parse_duration_ns(value)),
        PlainSerializer(lambda value: value if value == "auto" else write_duration_ns(value)),
        WithJsonSchema({"type": ["string", "integer"], "examples": ["auto", "2s"]}),
    ] = Field(default="auto", alias="warmup")
    """`auto` leaves out the first second, and what else of the first third turns out not to be steady yet."""
    duration_ns: Duration | None = Field(default=None, alias="duration", gt=0)
    requests: Count | None = None
    drain_ns: Duration | None = Field(default=None, alias="drain")
    repetitions: Count = 3
    abort_error_rate: Share | None = None
    """The run ends where a larger share of a load point's requests failed; of the first twenty at the earliest."""
    workers: Literal["auto"] | Count = "auto"
    """Load-generating processes; for `auto` as many as the machine's calibration says are needed, one without."""
    cpus: Cpus | None = None

    @pydantic.model_validator(mode="after")
    def _one_end(self) -> Self:
        if self.duration_ns is not None and self.requests is not None:
            raise ValueError("duration and requests exclude each other: each ends the window")
        return self


DEFAULT_DURATION_NS = 10_000_000_000
DEFAULT_DRAIN_NS = 30_000_000_000
AUTO_WARMUP_NS = 1_000_000_000


class Scenario(Part):
    """One scenario file, validated."""

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
    """False samples nothing beside the requests, and asks the server for nothing else."""
    metrics: Metrics = Metrics()
    gpu: Gpu = Gpu()
    gate: Gate | None = None
    sweep: Annotated[dict[Text, Annotated[tuple[Any, ...], Field(min_length=1)]], Field(min_length=1)] | None = None
    """Dotted keys of a scenario, and the values that each takes in turn: every combination is measured. None in what is read for one."""

    @pydantic.model_validator(mode="after")
    def _searchable(self) -> Self:
        if not isinstance(self.load, SearchLoadSpec):
            return self
        if (self.load.search.slo is None) == (self.slo is None):
            raise ValueError("load.search needs one SLO to search by: give load.search.slo, such as {p99: 50ms}, or slo beside load")
        if self.measure.requests is not None:
            raise ValueError("load.search takes probes of measure.duration: leave measure.requests out")
        if "repetitions" in self.measure.model_fields_set and self.measure.repetitions > 1:
            raise ValueError("load.search decides itself how often it measures: leave measure.repetitions out")
        if len(self.target.load_protocols) > 1:
            raise ValueError(
                "load.search goes over one protocol; sweep: {target.protocols: [[http], [grpc]]} searches over one after the other"
            )
        return self

    @pydantic.field_validator("schema_version")
    @classmethod
    def _readable(cls, schema: str) -> str:
        if schema != SCHEMA:
            raise ValueError(f"this perfkit reads {SCHEMA}, found {schema!r}: a newer perfkit may read it")
        return schema

    @property
    def objective(self) -> Slo | None:
        """The SLO that load points are held to; that of a search is what it searches by."""
        return self.load.search.slo or self.slo if isinstance(self.load, SearchLoadSpec) else self.slo

    @property
    def window_ns(self) -> int | None:
        """The measured window's length; None where a number of requests ends it."""
        if self.measure.requests is not None:
            return None
        return self.measure.duration_ns or DEFAULT_DURATION_NS

    @property
    def warmup_ns(self) -> int:
        """What is left out in any case; a trace has nothing to warm up with that would not be part of it."""
        if self.measure.warmup_ns != "auto":
            return self.measure.warmup_ns
        return 0 if isinstance(self.load, OpenLoadSpec) and self.load.open.trace else AUTO_WARMUP_NS

    @property
    def finds_warm_up(self) -> bool:
        """Whether the warm-up is looked for in what was measured: it can be, under a load that is meant to be steady, in a window of time."""
        moves = isinstance(self.load, OpenLoadSpec) and (self.load.open.trace is not None or self.load.open.shape is not None)
        return self.measure.warmup_ns == "auto" and self.window_ns is not None and not moves

    @property
    def drain_ns(self) -> int:
        """How long answers are awaited after the window."""
        return self.measure.drain_ns if self.measure.drain_ns is not None else min(self.target.timeout_ns, DEFAULT_DRAIN_NS)
