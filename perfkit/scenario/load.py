"""The `load` section of a scenario: a closed loop, an open loop, a surge, the replay of a trace, or a search for the capacity under an SLO."""

from collections.abc import Mapping
from typing import Annotated, Literal, Self, TypeAlias

import pydantic
from pydantic import BeforeValidator, Discriminator, Field, Tag
from pydantic_core import PydanticCustomError

from perfkit.scenario.abandonment import Abandon
from perfkit.scenario.retry import Retry
from perfkit.scenario.section import Count, Duration, Rate, Section, Share, Text
from perfkit.scenario.shape import Factor, Shape
from perfkit.scenario.slo import Slo
from perfkit.units import NS_PER_S

# a request in flight takes some KiB of memory
_MAX_CONCURRENCY, _MAX_IN_FLIGHT = 65_536, 1_048_576
_MAX_FOLLOWING = 100_000
_LEAST_LEAD_NS, _LEAST_AFTER_NS = 5 * NS_PER_S, 10 * NS_PER_S


_Concurrency = Annotated[Count, Field(le=_MAX_CONCURRENCY)]


class ConcurrencyRamp(Section):
    """A scan: the requests in flight rise steadily over the window, which lasts as long, and show where the knee is. It is no load point."""

    start: _Concurrency = Field(default=1, alias="from")
    """The requests in flight at first, and in the warm-up."""
    to: _Concurrency
    """The most requests in flight."""
    over_ns: Annotated[Duration, Field(gt=0)] = Field(alias="over")
    """How long the rise takes."""

    @pydantic.model_validator(mode="after")
    def _rises(self) -> Self:
        if self.to <= self.start:
            raise ValueError(f"to must be above from, found {self.to} and {self.start}")
        return self


class ClosedLoop(Section):
    """A fixed number of requests in flight; each value of `concurrency` is a load point."""

    concurrency: Annotated[
        Annotated[tuple[_Concurrency, ...], Field(min_length=1), Tag("values")] | Annotated[ConcurrencyRamp, Tag("ramp")],
        Discriminator(lambda value: "ramp" if isinstance(value, Mapping | ConcurrencyRamp) else "values"),
        BeforeValidator(
            lambda value: (value,) if isinstance(value, int) else value, json_schema_input_type=int | list[int] | ConcurrencyRamp
        ),
    ]
    """Requests in flight; each value is a load point. `{from: 1, to: 64, over: 60s}` is a scan that finds the knee in one pass."""
    think_time_ns: Duration = Field(default=0, alias="think_time")
    """The pause between an answer and the next request."""

    @pydantic.field_validator("concurrency")
    @classmethod
    def _is_unique(cls, concurrency: "tuple[int, ...] | ConcurrencyRamp") -> "tuple[int, ...] | ConcurrencyRamp":
        if isinstance(concurrency, tuple) and len(set(concurrency)) < len(concurrency):
            raise ValueError(f"values must be unique, found {list(concurrency)}; use measure.repetitions to measure a load again")
        return concurrency

    @property
    def ramp(self) -> ConcurrencyRamp | None:
        """The scan; None for load points."""
        return self.concurrency if isinstance(self.concurrency, ConcurrencyRamp) else None

    @property
    def levels(self) -> tuple[int, ...]:
        """The requests in flight of each load point; of a scan the most."""
        return (self.concurrency.to,) if isinstance(self.concurrency, ConcurrencyRamp) else self.concurrency


class IdleGaps(Section):
    """One request in flight, with idle gaps: after each, one request, then `then` more; each value of `gap` is a load point."""

    gaps_ns: Annotated[
        tuple[Annotated[Duration, Field(gt=0)], ...],
        Field(min_length=1),
        BeforeValidator(lambda value: value if isinstance(value, list | tuple) else (value,), json_schema_input_type=str | list[str]),
    ] = Field(alias="gap")
    """The time without a request; each value is a load point."""
    then: Annotated[Count, Field(le=_MAX_FOLLOWING)] = 20
    """The requests that follow the first one after a gap closely."""

    @pydantic.field_validator("gaps_ns")
    @classmethod
    def _is_unique(cls, gaps_ns: tuple[int, ...]) -> tuple[int, ...]:
        if len(set(gaps_ns)) < len(gaps_ns):
            raise ValueError("values must be unique; use measure.repetitions to measure a load again")
        return gaps_ns


class ColdStartOptions(Section):
    """Starts of the model or of the server; each repetition is one, followed by requests one after the other."""

    by: Literal["reload", "restart"] = "reload"
    """`reload` unloads and loads the model over the server's repository API; `restart` ends the server that perfkit started, and starts it again."""
    requests: Annotated[Count, Field(ge=40, le=10_000)] = 200
    """The requests after each start; the second half tells what a warm answer is."""
    timeout_ns: Annotated[Duration, Field(gt=0)] = Field(default=300_000_000_000, alias="timeout")
    """How long the model may take to be unloaded and until it is ready; for restarts see `target.ready_within`."""


class OpenLoop(Section):
    """Arrivals at a rate that does not depend on earlier answers; each value of `rate` is a load point."""

    rates_per_s: Annotated[
        tuple[Rate, ...],
        Field(alias="rate"),
        BeforeValidator(
            lambda value: value if isinstance(value, list | tuple) else (value,), json_schema_input_type=float | str | list[float | str]
        ),
    ] = ()
    """Arrivals per second; each value is a load point."""
    arrivals: Literal["poisson", "constant", "gamma", "trace"] = "poisson"
    """The law of the gaps between arrivals."""
    burstiness: Annotated[float, Field(gt=0, le=100)] | None = None
    """For gamma arrivals: standard deviation of the interarrival times divided by their mean; 1 is Poisson, higher is burstier."""
    shape: Shape | None = None
    """How the rate changes within the window."""
    trace: Text | None = None
    """For `arrivals: trace`: a file with a number of seconds on each line; `load.replay` reads all other traces."""
    trace_holds: Literal["timestamps", "intervals"] = "timestamps"
    """Whether the trace has instants since its start, or gaps between arrivals."""
    max_in_flight: Annotated[Count, Field(le=_MAX_IN_FLIGHT)] | None = None
    """Arrivals above this number of requests in flight are dropped and counted. The default is 65,536, and a point that reaches it is invalid."""

    @pydantic.model_validator(mode="after")
    def _is_consistent(self) -> Self:
        is_trace = self.arrivals == "trace"
        if is_trace != (self.trace is not None):
            raise ValueError("arrivals: trace needs a file: give trace" if is_trace else "trace is only for arrivals: trace")
        if is_trace and (self.rates_per_s or self.shape):
            raise ValueError("arrivals: trace has a rate and shape of its own: remove rate and shape")
        if not is_trace and not self.rates_per_s:
            raise ValueError("rate is missing, such as rate: 100 or rate: [50, 100]")
        _check_burstiness(self.arrivals, self.burstiness)
        if len(set(self.rates_per_s)) < len(self.rates_per_s):
            raise ValueError(f"rates must be unique, found {list(self.rates_per_s)}; use measure.repetitions to measure a load again")
        return self


SURGE_SLOT_NS = 100_000_000
"""The resolution of a surge's figures over time."""
_SlottedDuration = Annotated[Duration, Field(gt=0, multiple_of=SURGE_SLOT_NS)]


class Surge(Section):
    """An open loop whose rate rises above what the target can take for a while; see docs/how-to/overload.md. Times are multiples of 100 ms."""

    base_per_s: Rate = Field(alias="base")
    """Arrivals per second before and after the surge; the target should meet the SLO at them."""
    surge_per_s: Rate = Field(alias="surge")
    """Arrivals per second during the surge."""
    for_ns: _SlottedDuration = Field(alias="for")
    """How long the surge lasts."""
    before_ns: _SlottedDuration | None = Field(default=None, alias="before")
    """How long `base` is sent first, within the window; the default is as long as the surge, and at least 5 s."""
    after_ns: _SlottedDuration | None = Field(default=None, alias="after")
    """How long `base` is sent after the surge, in which the target must recover; the default is three times the surge, and at least 10 s."""
    arrivals: Literal["poisson", "constant"] = "poisson"
    """The law of the gaps between arrivals."""
    max_in_flight: Annotated[Count, Field(le=_MAX_IN_FLIGHT)] | None = None
    """Arrivals above this number of requests in flight are dropped, and count as beyond the SLO; see `open`."""

    @pydantic.model_validator(mode="after")
    def _rises(self) -> Self:
        if self.surge_per_s <= self.base_per_s:
            raise ValueError(f"surge must be above base, found {self.surge_per_s:g}/s and {self.base_per_s:g}/s")
        return self

    @property
    def lead_ns(self) -> int:
        """How long the base rate is sent before the surge."""
        return self.before_ns or max(self.for_ns, _LEAST_LEAD_NS)

    @property
    def window_ns(self) -> int:
        """The whole window."""
        return self.lead_ns + self.for_ns + (self.after_ns or max(3 * self.for_ns, _LEAST_AFTER_NS))


class TraceColumns(Section):
    """The column of instants in a trace of others."""

    time: Text
    """Its name, in the file's own spelling."""
    unit: Literal["ns", "us", "ms", "s", "iso"]
    """The unit of its numbers, or `iso` for dates and times of ISO 8601."""


class Replay(Section):
    """The requests of a trace, each at the instant at which it was recorded."""

    trace: Text
    """A file of `perfkit record`, or another one with a column of instants: CSV, JSON lines, Parquet; see docs/how-to/traces.md."""
    format: Literal["auto", "csv", "jsonl", "parquet", "request_intervals", "fixed_schedule"] = "auto"
    """`auto` follows the file's suffix; `request_intervals` and `fixed_schedule` are perf_analyzer's."""
    columns: TraceColumns | None = None
    """For a trace whose column of instants has another name than those of perfkit, or does not say its unit."""
    speed: Factor = 1.0
    """How many times as fast as recorded; below 1 it is slower."""
    loop: Annotated[bool, Field(strict=True)] = False
    """Whether the trace begins anew after its last request, until the window ends."""
    model: Text | None = None
    """For a trace with several models: the one whose requests are sent, at their instants in the whole trace."""
    max_in_flight: Annotated[Count, Field(le=_MAX_IN_FLIGHT)] | None = None
    """Arrivals above this number of requests in flight are dropped and counted; see `open`."""


class SearchOptions(Section):
    """A search for the highest arrival rate that meets an SLO.

    Each probe is an open loop of `measure.duration`, or longer where the percentile needs more requests.
    """

    slo: Slo | None = None
    """The default is the scenario's `slo`."""
    arrivals: Literal["poisson", "constant", "gamma"] = "poisson"
    """The law of the gaps between arrivals."""
    burstiness: Annotated[float, Field(gt=0, le=100)] | None = None
    """For gamma arrivals: standard deviation of the interarrival times divided by their mean."""
    start_rate_per_s: Rate | None = Field(default=None, alias="start_rate")
    """The rate of the first probe; the default is half of the throughput with eight requests in flight, which is measured for a second."""
    min_rate_per_s: Rate | None = Field(default=None, alias="min_rate")
    """The lowest rate to probe."""
    max_rate_per_s: Rate | None = Field(default=None, alias="max_rate")
    """The highest rate to probe."""
    precision: Annotated[Share, Field(gt=0, le=0.5)] = 0.05
    """The search ends when the capacity's 90 % interval lies within this share of the capacity."""
    max_probes: Annotated[Count, Field(ge=3, le=10_000)] = 30
    """The largest number of probes."""
    budget_ns: Annotated[Duration, Field(gt=0)] | None = Field(default=None, alias="budget")
    """No probe starts whose window would end later. The default is an hour, or `max_probes` times `measure.duration` if that is longer."""
    max_in_flight: Annotated[Count, Field(le=_MAX_IN_FLIGHT)] | None = None
    """The number of requests in flight above which arrivals are dropped and counted."""

    @pydantic.model_validator(mode="after")
    def _is_consistent(self) -> Self:
        _check_burstiness(self.arrivals, self.burstiness)
        if self.slo is not None and self.slo.wrong_answers is not None:
            raise ValueError("a search finds a rate, on which wrong answers do not depend: give wrong_answers in the scenario's slo")
        low, high = self.min_rate_per_s, self.max_rate_per_s
        if low is not None and high is not None and low >= high:
            raise ValueError(f"min_rate must be below max_rate, found {low:g}/s and {high:g}/s")
        return self


def _check_burstiness(arrivals: str, burstiness: float | None) -> None:
    if (arrivals == "gamma") != (burstiness is not None):
        raise ValueError("burstiness and arrivals: gamma need each other: give both or neither")


class ClosedLoadSpec(Section):
    """The `closed` variant of `load`."""

    closed: ClosedLoop
    """A closed loop: a fixed number of requests in flight."""
    abandon: Abandon | None = None
    """Requests that the client gives up; None for none."""
    retry: Retry | None = None
    """Failed requests that the client sends again; None for none."""


class OpenLoadSpec(Section):
    """The `open` variant of `load`."""

    open: OpenLoop
    """An open loop: arrivals that do not wait for answers."""
    abandon: Abandon | None = None
    """Requests that the client gives up; None for none."""
    retry: Retry | None = None
    """Failed requests that the client sends again; None for none."""


class IdleLoadSpec(Section):
    """The `idle` variant of `load`."""

    idle: IdleGaps
    """Single requests with idle gaps between them."""


class SearchLoadSpec(Section):
    """The `search` variant of `load`."""

    search: SearchOptions
    """A search for the highest arrival rate that meets an SLO."""


class SurgeLoadSpec(Section):
    """The `surge` variant of `load`."""

    surge: Surge
    """An overload for a while, and the recovery from it."""
    retry: Retry | None = None
    """Failed requests that the client sends again; None for none."""


class ReplayLoadSpec(Section):
    """The `replay` variant of `load`."""

    replay: Replay
    """The requests of a trace, each at its recorded instant."""


class ColdStartLoadSpec(Section):
    """The `cold_start` variant of `load`."""

    cold_start: ColdStartOptions
    """Starts of the model or of the server."""


_OF_CLIENTS = {
    "abandon": (("closed", "open"), "closed and open loads"),
    "retry": (("closed", "open", "surge"), "closed and open loads and surges"),
}
"""What clients do beside sending a load, and the loads for which it is known what that means."""
_VARIANTS = ("closed", "cold_start", "idle", "open", "replay", "search", "surge")


def _exactly_one_load(data: object) -> object:
    keys = [str(key) for key in data] if isinstance(data, Mapping) else []
    for key, (kinds, words) in _OF_CLIENTS.items():
        if key in keys and len(keys) > 1:
            keys.remove(key)
            if wrong := [kind for kind in keys if kind in _VARIANTS and kind not in kinds]:
                raise PydanticCustomError("variant", f"load.{key} is for {words}: remove it, or load.{wrong[0]}", {})
    if len(keys) != 1:
        found = " and ".join(keys) or repr(data)
        raise PydanticCustomError("variant", f"give exactly one of {', '.join(_VARIANTS)}; found {{found}}", {"found": found})
    return data


def _variant(data: object) -> str:
    keys = data if isinstance(data, Mapping) else getattr(data, "model_fields_set", ())
    return next((key for key in _VARIANTS if key in keys), "closed")


LoadSpec: TypeAlias = Annotated[
    Annotated[ClosedLoadSpec, Tag("closed")]
    | Annotated[OpenLoadSpec, Tag("open")]
    | Annotated[ColdStartLoadSpec, Tag("cold_start")]
    | Annotated[IdleLoadSpec, Tag("idle")]
    | Annotated[ReplayLoadSpec, Tag("replay")]
    | Annotated[SearchLoadSpec, Tag("search")]
    | Annotated[SurgeLoadSpec, Tag("surge")],
    Discriminator(_variant),
    BeforeValidator(_exactly_one_load),
]


def is_scan(load: object) -> bool:
    """Whether a load is a scan, before it is validated or after."""
    if isinstance(load, ClosedLoadSpec):
        return load.closed.ramp is not None
    closed = load.get("closed") if isinstance(load, Mapping) else None
    return isinstance(closed, Mapping) and isinstance(closed.get("concurrency"), Mapping)


def _closed_or_open(data: object) -> object:
    keys = [str(key) for key in data if key not in _OF_CLIENTS] if isinstance(data, Mapping) else []
    if keys not in (["closed"], ["open"]):
        context = {"found": " and ".join(keys) or repr(data), "example": "{closed: {concurrency: 8}}"}
        raise PydanticCustomError("variant", "the load of a warm-up is closed or open: give one, such as {example}; found {found}", context)
    return data


WarmUpLoadSpec: TypeAlias = Annotated[
    Annotated[ClosedLoadSpec, Tag("closed")] | Annotated[OpenLoadSpec, Tag("open")],
    Discriminator(_variant),
    BeforeValidator(_closed_or_open),
]


def closed_loop(concurrency: int) -> ClosedLoadSpec:
    """A closed loop with one load point."""
    return ClosedLoadSpec.model_validate({"closed": {"concurrency": concurrency}})


def poisson(rate_per_s: float) -> OpenLoadSpec:
    """An open loop with Poisson arrivals and one load point."""
    return OpenLoadSpec.model_validate({"open": {"rate": rate_per_s, "arrivals": "poisson"}})
