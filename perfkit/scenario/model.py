"""A scenario as frozen values. Field names carry their units; the aliases are the keys of the file."""

import math
from collections.abc import Mapping
from typing import Annotated, Any, Self

import pydantic
from pydantic import Field

from perfkit.scenario.api_rules import check_api
from perfkit.scenario.load import (
    ClosedLoadSpec,
    ColdStartLoadSpec,
    ConcurrencyRamp,
    IdleLoadSpec,
    LoadSpec,
    OpenLoadSpec,
    ReplayLoadSpec,
    SearchLoadSpec,
    SurgeLoadSpec,
    is_scan,
)
from perfkit.scenario.load_rules import Beside, check_load, retry_of
from perfkit.scenario.measure import Fleet, Gate, Measure, Rank, Tune, check_fleet
from perfkit.scenario.mix import MOST_WORKLOADS, MixedWorkload, check_mix, fill_common_parts, plain_document
from perfkit.scenario.retry import Retry
from perfkit.scenario.section import Section, Text
from perfkit.scenario.sequence_rules import check_sequences, check_stream
from perfkit.scenario.sequences import Sequences, Stream
from perfkit.scenario.slo import Slo
from perfkit.scenario.target import Server, Target
from perfkit.scenario.telemetry import Gpu, Metrics, Traces, check_traces
from perfkit.scenario.workload import Check, SharedMemorySpec, Workload
from perfkit.target.address import Address, redacted_url
from perfkit.target.apis import APIS
from perfkit.units import NS_PER_S, write_duration_ns

SCHEMA = "perfkit.scenario/1"
_DEFAULT_DURATION_NS, _DEFAULT_DRAIN_NS, _AUTO_WARMUP_NS = 10 * NS_PER_S, 30 * NS_PER_S, NS_PER_S
FEWEST_GAPS, USEFUL_GAPS = 6, 20
"""The idle gaps of a load that are needed for an interval of its penalty, and for a narrow one."""
_SURGES = 5
"""The repetitions of a surge unless the scenario gives them: an interval over fewer is wide."""

# the most load points of a run, and the most linear pieces of all its rates' shapes
_MAX_POINTS, _MAX_PIECES = 10_000, 1_000_000


def _need_fewer_parts_in_a_mix(schema: dict[str, Any]) -> None:
    """Target and load are required unless the workloads of a mix have their own; the name is optional in a file, whose own name is the default."""
    schema["required"] = [key for key in schema["required"] if key not in ("name", "target", "load")]
    schema["anyOf"] = [{"required": ["target", "load"]}, {"required": ["workloads"]}]


class Scenario(Section):
    """A validated scenario file."""

    model_config = pydantic.ConfigDict(json_schema_extra=_need_fewer_parts_in_a_mix)

    schema_version: str = Field(default=SCHEMA, alias="schema")
    """The format and its version, `perfkit.scenario/1`; a newer one is refused."""
    name: Annotated[str, Field(strict=True, pattern=r"^[A-Za-z0-9][\w.-]*$")]
    """The scenario's name, which result folders and reports carry; the default is the file's name."""
    target: Target
    """The server under test."""
    server: Server = Server.model_construct()
    """Options of the bundled server, where perfkit starts it."""
    workload: Workload = Workload.model_construct()
    """What requests carry."""
    shared_memory: SharedMemorySpec = None
    """`none`, `system` or `cuda`, or a mapping: whether inputs and outputs are in memory shared with the server."""
    workloads: Annotated[tuple[MixedWorkload, ...], Field(min_length=1, max_length=MOST_WORKLOADS)] | None = None
    """A mix: several workloads in one run, either with weights, which share `load`, or with loads of their own."""
    alone: Annotated[bool, Field(strict=True)] = False
    """For a mix, also measures each workload alone, with its part of the load, to show what the others do to it."""
    load: LoadSpec
    """When requests start: exactly one of `closed`, `cold_start`, `idle`, `open`, `replay`, `search` and `surge`."""
    sequences: Sequences | None = None
    """Requests that belong together; null for requests that do not."""
    stream: Stream | None = None
    """Sends requests on streams; None sends each as a call of its own."""
    measure: Measure = Measure.model_construct()
    """How long, how often and from which processes load is sent."""
    fleet: Fleet | None = None
    """Machines that send the load together; None sends it from this one."""
    check: Check = Check.model_construct()
    """What answers are compared with."""
    slo: Slo | None = None
    """Limits that each load point is judged by."""
    telemetry: Annotated[bool, Field(strict=True)] = True
    """False samples nothing besides the requests."""
    metrics: Metrics = Metrics.model_construct()
    """Prometheus pages to sample beside the target's own."""
    gpu: Gpu = Gpu.model_construct()
    """How GPUs of this machine are sampled."""
    traces: Traces | None = None
    """Traces sampled requests in the server; None traces none."""
    gate: Gate | None = None
    """How `perfkit gate` compares servers."""
    tune: Tune | None = None
    """What `perfkit tune` varies."""
    sweep: Annotated[dict[Text, Annotated[tuple[Any, ...] | dict[Text, Any], Field(min_length=1)]], Field(min_length=1)] | None = None
    """Dotted keys and the values of each, or `choices`, which are named sets of keys: every combination is measured. None in a scenario
    that was read from a file."""
    rank: Rank | None = None
    """Only with `sweep`; None in a scenario that was read from a file."""

    @pydantic.model_validator(mode="before")
    @classmethod
    def _has_common_parts(cls, data: Any) -> Any:
        return fill_common_parts(data) if isinstance(data, Mapping) else data

    @pydantic.model_validator(mode="before")
    @classmethod
    def _has_own_repetitions(cls, data: Any) -> Any:
        load, measure = (data.get("load"), data.get("measure") or {}) if isinstance(data, Mapping) else (None, {})
        is_surge = isinstance(load, SurgeLoadSpec) or (isinstance(load, Mapping) and "surge" in load)
        repetitions = _SURGES if is_surge else 1 if is_scan(load) else None
        if repetitions is not None and isinstance(measure, Mapping) and "repetitions" not in measure:
            return {**data, "measure": {**measure, "repetitions": repetitions}}
        return data

    @pydantic.model_validator(mode="after")
    def _is_one_mix(self) -> Self:
        entries = self.workloads
        if entries is None:
            if self.alone:
                raise ValueError("alone: true compares the workloads of a mix: give workloads, or remove alone")
            return self
        if self.gate is not None:
            raise ValueError("gate compares one workload: remove gate, or workloads")
        check_mix(entries, self.load, alone=self.alone, sequences=self.sequences, shared_memory=self.shared_memory)
        if not self.weights and self.measure.requests is not None:
            raise ValueError("measure.requests: workloads with loads of their own end together: give measure.duration instead")
        return self

    @pydantic.model_validator(mode="after")
    def _fits_its_api(self) -> Self:
        if self.workloads is None:
            check_api(self, self.target, self.workload.prompts, is_streamed=self.stream is not None)
        return self

    @pydantic.model_validator(mode="after")
    def _can_be_decided(self) -> Self:
        if not self.measure.until_decided:
            return self
        if isinstance(self.load, SearchLoadSpec):
            raise ValueError("measure.until_decided: load.search decides itself how long it measures: remove it")
        if all(one is None for one in (self.slo, *(entry.slo for entry in self.workloads or ()))):
            raise ValueError("measure.until_decided measures until the SLO's verdict is clear: give slo, such as {p99: 50ms}, or remove it")
        return self

    @pydantic.model_validator(mode="after")
    def _fits_its_load(self) -> Self:
        sections = (self.slo, self.measure, self.target, self.sequences, self.stream, self.shared_memory, self.traces)
        check_load(self.load, Beside(*sections), is_mix=self.workloads is not None)
        return self

    @pydantic.model_validator(mode="after")
    def _can_use_its_connections(self) -> Self:
        if self.workloads is not None:
            return self  # each workload is checked by itself
        target = self.target
        if self.sequences is not None and (target.resolve == "all" or any(len(urls) > 1 for urls in target.urls_by_protocol.values())):
            raise ValueError("sequences need one address, since the server that answers a step must hold the state: give a single url")
        if target.engine == "reference" and (self.stream is not None or target.connections is not None):
            key, what = ("stream", "sends no streams") if self.stream is not None else ("target.connections", "rotates no connections")
            raise ValueError(f"{key}: the reference engine {what}: use engine: wire")
        return self

    @pydantic.model_validator(mode="after")
    def _has_sequences_that_fit(self) -> Self:
        if self.sequences is not None and self.workloads is None:
            check_sequences(self.sequences, self.load, self.workload, self.shared_memory)
        return self

    @pydantic.model_validator(mode="after")
    def _can_judge_parts_of_answers(self) -> Self:
        if self.objective is None:
            return self
        for key, api in ((key, one) for one in APIS.values() for key in one.slo_parts):
            if getattr(self.objective, key) is None:
                continue
            if self.workloads is not None:
                raise ValueError(f"slo.{key}: not all workloads need be streams: give {key} in the slo of each that is one")
            if self.stream is None:
                what = {"first_response": "have first responses", "first_token": "have first tokens", "per_token": "have times per token"}
                raise ValueError(f"slo.{key}: only streams {what[key]}: add stream: {{}}, or remove {key}")
            if key not in self.target.spoken_api.slo_parts:
                raise ValueError(f"slo.{key} is for api: {api.name}: remove it")
        return self

    @pydantic.model_validator(mode="after")
    def _can_be_streamed(self) -> Self:
        if self.stream is not None and self.workloads is None:
            beside = (self.target, self.workload, self.sequences, self.shared_memory, self.check, self.objective)
            check_stream(self.stream, *beside)
        return self

    @property
    def retry(self) -> Retry | None:
        """Which failed requests are sent again; None for none."""
        return retry_of(self.load)

    @property
    def has_retries(self) -> bool:
        """Whether failed requests are sent again, in a mix those of every workload."""
        return all(retry_of(load) for load in ([entry.load or self.load for entry in self.workloads] if self.workloads else [self.load]))

    @pydantic.model_validator(mode="after")
    def _has_enough_idle_gaps(self) -> Self:
        if not isinstance(self.load, IdleLoadSpec):
            return self
        if self.sequences is not None:
            raise ValueError("load.idle sends single requests: remove sequences, or measure them with load.closed")
        longest_ns, repetitions, requests = max(self.load.idle.gaps_ns), self.measure.repetitions, self.measure.requests
        if requests is not None:
            each, key, enough = requests // (1 + self.load.idle.then), "requests", f"{self.useful_gaps * (1 + self.load.idle.then)}"
        else:
            each, key = (self.window_ns or 0) // longest_ns, "duration"
            enough = write_duration_ns(math.ceil(self.useful_gaps * 1.1 * longest_ns / NS_PER_S) * NS_PER_S)
        if each * repetitions < FEWEST_GAPS:
            raise ValueError(
                f"load.idle.gap: {write_duration_ns(longest_ns)} fits {each} times into each of {repetitions} windows, and a median needs "
                f"{FEWEST_GAPS} gaps: measure longer, such as measure.{key}: {enough}"
            )
        return self

    @pydantic.model_validator(mode="after")
    def _has_a_countable_number_of_points(self) -> Self:
        protocols, repetitions = len(self.target.load_protocols), self.measure.repetitions * self.measure.most_times
        if self.workloads is not None:  # a mix is a single point over all its protocols
            protocols = 1 + len(self.workloads) * self.alone
        loads = 1
        if isinstance(self.load, ClosedLoadSpec):
            loads = len(self.load.closed.levels)
        elif isinstance(self.load, IdleLoadSpec):
            loads = len(self.load.idle.gaps_ns)
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

    @pydantic.model_validator(mode="after")
    def _can_share_memory(self) -> Self:
        shared, workload = self.shared_memory, self.workload
        if shared is None:
            return self
        if remote := [url for urls in self.target.urls_by_protocol.values() for url in urls if not Address.parse(url).is_local]:
            raise ValueError(
                f"shared_memory needs a server on this machine, such as http://127.0.0.1:8000, found {redacted_url(remote[0])}"
            )
        if shared.inputs and "json" in (workload.encoding, *(one.encoding for one in workload.inputs.values())):
            raise ValueError("inputs in shared memory have no encoding: remove encoding, or set shared_memory.inputs to false")
        if shared.outputs and any(one.classes or one.encoding for one in workload.outputs):
            raise ValueError(
                "outputs in shared memory are whole tensors: remove classes and encoding, or set shared_memory.outputs to false"
            )
        return self

    @pydantic.model_validator(mode="after")
    def _can_be_sent_by_a_fleet(self) -> Self:
        if self.fleet is not None:
            check_fleet(self.load, self.shared_memory)
        return self

    @pydantic.model_validator(mode="after")
    def _can_be_traced(self) -> Self:
        if self.traces is not None and self.workloads is None:
            check_traces(self.traces, self.target, self.load, is_streamed=self.stream is not None, telemetry=self.telemetry)
        return self

    @pydantic.field_validator("schema_version")
    @classmethod
    def _is_supported(cls, schema: str) -> str:
        if schema != SCHEMA:
            raise ValueError(f"this version of perfkit reads {SCHEMA}, found {schema!r}; a newer version may read it")
        return schema

    def plain_scenarios(self) -> "tuple[Scenario, ...]":
        """The scenario of each workload of a mix by itself, in order; for a scenario that is no mix, itself."""
        if self.workloads is None:
            return (self,)
        document = self.model_dump(by_alias=True, exclude_unset=True)
        return tuple(Scenario.model_validate(plain_document(document, index)) for index in range(len(self.workloads)))

    @property
    def weights(self) -> tuple[int, ...]:
        """The weights of a mix whose workloads share the load; otherwise empty."""
        return tuple(entry.weight for entry in self.workloads or () if entry.weight is not None)

    @property
    def objective(self) -> Slo | None:
        """The SLO that load points are judged by; for a search its own."""
        return self.load.search.slo or self.slo if isinstance(self.load, SearchLoadSpec) else self.slo

    @property
    def requests(self) -> int | None:
        """The number of requests that ends a window; None if its length does."""
        return self.load.cold_start.requests if isinstance(self.load, ColdStartLoadSpec) else self.measure.requests

    @property
    def window_ns(self) -> int | None:
        """The length of the measured window; None if a number of requests ends it."""
        if self.requests is not None:
            return None
        if self.ramp is not None:
            return self.ramp.over_ns
        return self.load.surge.window_ns if isinstance(self.load, SurgeLoadSpec) else self.measure.duration_ns or _DEFAULT_DURATION_NS

    @property
    def ramp(self) -> ConcurrencyRamp | None:
        """The scan of a closed loop; None for all other loads."""
        return self.load.closed.ramp if isinstance(self.load, ClosedLoadSpec) else None

    @property
    def warmup_ns(self) -> int:
        """The minimum warm-up, with that of a load of its own."""
        return self.own_warmup_ns + self.warm_load_ns

    @property
    def warm_load_ns(self) -> int:
        """How long the warm-up sends a load of its own; 0 without one."""
        given = self.measure.warmup
        return given.for_ns if given.load is not None and given.for_ns != "auto" else 0

    @property
    def own_warmup_ns(self) -> int:
        """The minimum warm-up with the load of the load point; by default 0 for a trace, all of which is measured."""
        if self.measure.warmup_ns != "auto" and self.measure.warmup.load is None:
            return self.measure.warmup_ns
        return 0 if self.has_trace or isinstance(self.load, ColdStartLoadSpec) else _AUTO_WARMUP_NS

    @property
    def finds_warm_up(self) -> bool:
        """Whether the end of the warm-up is detected, which needs a steady load and a window of fixed length."""
        return self.measure.warmup_ns == "auto" and self.window_ns is not None and not self.load_varies

    @property
    def load_varies(self) -> bool:
        """Whether the load changes within the window: a trace, a shape, a scan, a surge, idle gaps."""
        has_shape = isinstance(self.load, OpenLoadSpec) and self.load.open.shape is not None
        return (
            self.has_trace or has_shape or self.ramp is not None or isinstance(self.load, IdleLoadSpec | ColdStartLoadSpec | SurgeLoadSpec)
        )

    @property
    def has_trace(self) -> bool:
        """Whether the arrivals, in a mix those of any workload, are those of a file."""
        loads = [self.load, *(entry.load for entry in self.workloads or ())]
        return any(isinstance(load, ReplayLoadSpec) or (isinstance(load, OpenLoadSpec) and load.open.trace is not None) for load in loads)

    @property
    def useful_gaps(self) -> int:
        """The number of idle gaps in each window with which a penalty has a useful interval."""
        return math.ceil(USEFUL_GAPS / self.measure.repetitions)

    @property
    def drain_ns(self) -> int:
        """How long to wait for answers after the window."""
        return self.measure.drain_ns if self.measure.drain_ns is not None else min(self.longest_request_ns, _DEFAULT_DRAIN_NS)

    @property
    def longest_request_ns(self) -> int:
        """How long a request may take at most, all its attempts and the pauses between them included."""
        attempts, longest_pause_ns = (1, 0) if self.retry is None else (self.retry.attempts, self.retry.backoff_ns[1])
        return attempts * self.target.timeout_ns + (attempts - 1) * longest_pause_ns
