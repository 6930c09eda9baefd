"""The `load.search` part of a scenario: the highest arrival rate that keeps to an SLO is looked for."""

from typing import Annotated, Literal, Self

import pydantic
from pydantic import Field

from perfkit.scenario.part import Count, Duration, Part, Rate, Share
from perfkit.scenario.slo import Slo


class Search(Part):
    """Each probe is an open loop of `measure.duration` at one rate, with arrivals of its own."""

    slo: Slo | None = None
    """Left out, it is the scenario's `slo`."""
    arrivals: Literal["poisson", "constant", "gamma"] = "poisson"
    burstiness: Annotated[float, Field(gt=0, le=100)] | None = None
    """For gamma arrivals: the gaps' standard deviation over their mean."""
    start_rate_per_s: Rate | None = Field(default=None, alias="start_rate")
    """The first probe's; left out, half of what one request after the other would come to."""
    min_rate_per_s: Rate | None = Field(default=None, alias="min_rate")
    max_rate_per_s: Rate | None = Field(default=None, alias="max_rate")
    precision: Annotated[Share, Field(gt=0, le=0.5)] = 0.05
    """The search is over where the 90 % interval lies within that share of the capacity."""
    max_probes: Annotated[Count, Field(ge=3)] = 16
    budget_ns: Annotated[Duration, Field(gt=0)] | None = Field(default=None, alias="budget")
    """No probe begins whose window would end after that."""
    max_in_flight: Count | None = None

    @pydantic.model_validator(mode="after")
    def _fitting_together(self) -> Self:
        if (self.arrivals == "gamma") != (self.burstiness is not None):
            raise ValueError("burstiness belongs to arrivals: gamma, and to those alone")
        low, high = self.min_rate_per_s, self.max_rate_per_s
        if low is not None and high is not None and low >= high:
            raise ValueError(f"min_rate lies below max_rate, found {low:g}/s and {high:g}/s")
        return self
