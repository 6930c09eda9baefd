"""The `load` part of a scenario: how requests come, a fixed number in flight, arrivals at a rate, or at rates that are searched."""

from collections.abc import Mapping
from typing import Annotated, Literal, Self, TypeAlias

import pydantic
from pydantic import BeforeValidator, Discriminator, Field, Tag
from pydantic_core import PydanticCustomError

from perfkit.scenario.part import Count, Duration, Part, Rate, Text
from perfkit.scenario.search import Search

Factor = Annotated[float, Field(gt=0, allow_inf_nan=False)]


def _one_or_several(value: object) -> object:
    return value if isinstance(value, list | tuple) else (value,)


class ClosedLoop(Part):
    """A fixed number of requests in flight, each `concurrency` its own load point."""

    concurrency: Annotated[
        tuple[Count, ...],
        Field(min_length=1),
        BeforeValidator(lambda value: (value,) if isinstance(value, int) else value, json_schema_input_type=int | list[int]),
    ]
    think_time_ns: Duration = Field(default=0, alias="think_time")

    @pydantic.field_validator("concurrency")
    @classmethod
    def _each_once(cls, concurrency: tuple[int, ...]) -> tuple[int, ...]:
        if len(set(concurrency)) < len(concurrency):
            raise ValueError(f"each concurrency stands once; measure.repetitions measures it again, found {list(concurrency)}")
        return concurrency


class Ramp(Part):
    """From the rate to `to` times the rate in a straight line, and on at that."""

    to: Factor
    over_ns: Duration = Field(alias="over", gt=0)


class Steps(Part):
    """Multiples of the rate, one after the other; the last one stays."""

    levels: Annotated[tuple[Factor, ...], Field(min_length=1)]
    each_ns: Duration = Field(alias="each", gt=0)


class Spike(Part):
    """`to` times the rate for a while."""

    to: Factor
    at_ns: Duration = Field(alias="at")
    length_ns: Duration = Field(alias="for", gt=0)


class Sine(Part):
    """The rate up and down by a share of it."""

    amplitude: Annotated[float, Field(gt=0, lt=1)]
    period_ns: Duration = Field(alias="period", gt=0)


class Shape(Part):
    """How the rate moves through the window; exactly one of these. During the warm-up it is what it begins with."""

    ramp: Ramp | None = None
    steps: Steps | None = None
    spike: Spike | None = None
    sine: Sine | None = None

    @pydantic.model_validator(mode="after")
    def _exactly_one(self) -> Self:
        if len(self.model_fields_set) != 1:
            raise ValueError(
                f"takes exactly one of ramp, steps, spike, sine; found {' and '.join(sorted(self.model_fields_set)) or 'none'}"
            )
        return self


class OpenLoop(Part):
    """Arrivals at a rate, whatever became of those before; each rate its own load point."""

    rates_per_s: Annotated[
        tuple[Rate, ...], Field(alias="rate"), BeforeValidator(_one_or_several, json_schema_input_type=float | str | list[float | str])
    ] = ()
    arrivals: Literal["poisson", "constant", "gamma", "trace"] = "poisson"
    burstiness: Annotated[float, Field(gt=0, le=100)] | None = None
    """For gamma arrivals: the gaps' standard deviation over their mean; 1 is Poisson, above is burstier."""
    shape: Shape | None = None
    trace: Text | None = None
    """For arrivals from a file: one number of seconds a line."""
    trace_holds: Literal["timestamps", "intervals"] = "timestamps"
    max_in_flight: Count | None = None
    """Arrivals that find so many in flight are dropped, and counted. Where it is left out 65,536 are held, and a point that would need more is not valid."""

    @pydantic.model_validator(mode="after")
    def _fitting_together(self) -> Self:
        is_trace = self.arrivals == "trace"
        if is_trace != (self.trace is not None):
            raise ValueError("arrivals: trace needs a file: give trace as well" if is_trace else "trace is a file for arrivals: trace")
        if is_trace and (self.rates_per_s or self.shape):
            raise ValueError("a trace has its own rate and shape: leave rate and shape out")
        if not is_trace and not self.rates_per_s:
            raise ValueError("rate is missing, such as rate: 100 or rate: [50, 100]")
        if (self.arrivals == "gamma") != (self.burstiness is not None):
            raise ValueError("burstiness belongs to arrivals: gamma, and to those alone")
        if len(set(self.rates_per_s)) < len(self.rates_per_s):
            raise ValueError(f"each rate stands once; measure.repetitions measures it again, found {list(self.rates_per_s)}")
        return self


class ClosedLoadSpec(Part):
    """The `closed` variant of `load`."""

    closed: ClosedLoop


class OpenLoadSpec(Part):
    """The `open` variant of `load`."""

    open: OpenLoop


class SearchLoadSpec(Part):
    """The `search` variant of `load`."""

    search: Search


def _exactly_one_load(data: object) -> object:
    keys = [str(key) for key in data] if isinstance(data, Mapping) else []
    if len(keys) != 1:
        found = " and ".join(keys) or repr(data)
        raise PydanticCustomError("variant", "takes exactly one of closed, open, search; found {found}", {"found": found})
    return data


def _variant(data: object) -> str:
    keys = data if isinstance(data, Mapping) else getattr(data, "model_fields_set", ())
    return next((key for key in ("open", "search") if key in keys), "closed")


LoadSpec: TypeAlias = Annotated[
    Annotated[ClosedLoadSpec, Tag("closed")] | Annotated[OpenLoadSpec, Tag("open")] | Annotated[SearchLoadSpec, Tag("search")],
    Discriminator(_variant),
    BeforeValidator(_exactly_one_load),
]


def closed_loop(concurrency: int) -> ClosedLoadSpec:
    """A closed loop, as a scenario would say it."""
    return ClosedLoadSpec.model_validate({"closed": {"concurrency": concurrency}})


def poisson(rate_per_s: float) -> OpenLoadSpec:
    """An open loop with Poisson arrivals, as a scenario would say it."""
    return OpenLoadSpec.model_validate({"open": {"rate": rate_per_s, "arrivals": "poisson"}})
