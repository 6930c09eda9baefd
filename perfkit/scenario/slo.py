"""The `slo` part of a scenario: limits that every load point must keep to."""

from typing import Annotated, Self

import pydantic
from pydantic import Field

from perfkit.scenario.part import Duration, Part, Share

_Limit = Annotated[Duration, Field(gt=0)]


class Slo(Part):
    """Judged on the response time, in a closed loop on the service time, with the repetitions pooled."""

    p50_ns: _Limit | None = Field(default=None, alias="p50")
    p90_ns: _Limit | None = Field(default=None, alias="p90")
    p95_ns: _Limit | None = Field(default=None, alias="p95")
    p99_ns: _Limit | None = Field(default=None, alias="p99")
    p99_9_ns: _Limit | None = Field(default=None, alias="p99_9")
    p99_99_ns: _Limit | None = Field(default=None, alias="p99_99")
    error_rate: Share | None = None

    @pydantic.model_validator(mode="after")
    def _something(self) -> Self:
        if not self.model_fields_set:
            raise ValueError("no limit is given, such as p99: 50ms or error_rate: 0.1%")
        return self

    @property
    def good_within_ns(self) -> int | None:
        """The limit of the highest percentile: an ok answer within it is a good one. None where no percentile is limited."""
        limits = self.percentiles_ns
        return max(limits.items(), key=lambda limit: float(limit[0][1:].replace("_", ".")))[1] if limits else None

    @property
    def percentiles_ns(self) -> dict[str, int]:
        """The limits on percentiles, by name."""
        limits = {name.removesuffix("_ns"): value for name, value in self if name.endswith("_ns")}
        return {name: int(value) for name, value in limits.items() if value is not None}
