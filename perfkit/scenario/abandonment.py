"""The key `load.abandon`: which requests the client gives up, and when."""

from collections.abc import Mapping
from typing import Annotated, Self

import pydantic
from pydantic import BeforeValidator, Field

from perfkit.scenario.section import Count, Duration, Section, Share

_Time = Annotated[Duration, Field(gt=0)]


class GivenUpAfter(Section):
    """When a client gives a request up; give exactly one of `time`, `uniform`, `lognormal` and `events`."""

    time_ns: Annotated[Duration, Field(gt=0)] | None = Field(default=None, alias="time")
    """A time after which each of the requests is given up."""
    uniform_ns: tuple[_Time, _Time] | None = Field(default=None, alias="uniform")
    """The shortest and the longest time; all between them are equally likely."""
    lognormal_ns: _Time | None = Field(default=None, alias="lognormal")
    """The median of times whose logarithm is normally distributed."""
    sigma: Annotated[float, Field(gt=0, le=5, allow_inf_nan=False)] = 0.5
    """For `lognormal`: the standard deviation of the logarithm."""
    events: Count | None = None
    """Streams only: with that many responses, instead of after a time."""

    @pydantic.model_validator(mode="after")
    def _is_exactly_one(self) -> Self:
        if [self.time_ns, self.uniform_ns, self.lognormal_ns, self.events].count(None) != 3:
            raise ValueError(
                "give exactly one of time, uniform, lognormal (with sigma) and events, such as after: 200ms or after: {events: 3}"
            )
        if self.uniform_ns is not None and self.uniform_ns[0] > self.uniform_ns[1]:
            raise ValueError("uniform takes the shortest time and the longest")
        return self


class Abandon(Section):
    """Requests that the client gives up before they are answered: it closes the connection over HTTP, and cancels the call over gRPC."""

    share: Annotated[Share, Field(ge=0.001, le=1)]
    """The share of the requests, at least 0.1 %; which ones follows from `workload.seed`."""
    after: Annotated[
        GivenUpAfter,
        BeforeValidator(
            lambda value: value if isinstance(value, Mapping | GivenUpAfter) else {"time": value},
            json_schema_input_type=str | GivenUpAfter,
        ),
    ]
    """The client's patience since it sent the request, such as `200ms`; requests answered before count as ok, but have no part in percentiles."""
