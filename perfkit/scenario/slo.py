"""The SLO of a scenario: limits on percentiles of times, on errors, and on wrong answers."""

from typing import Annotated, Self

import pydantic
from pydantic import Field

from perfkit.scenario.section import Duration, Section, Share

FURTHER_TIMES = {"first_response": "first_response_time", "first_token": "first_token_time", "per_token": "time_per_output_token"}
"""The keys of an SLO with limits on other times than that of the whole answer, and the names under which these are recorded."""
FURTHER_KEYS = {recorded: key for key, recorded in FURTHER_TIMES.items()}
_Limit = Annotated[Duration, Field(gt=0)]


class PercentileLimits(Section):
    """The longest allowed percentiles of a time."""

    p50_ns: _Limit | None = Field(default=None, alias="p50")
    """The longest allowed 50th percentile."""
    p90_ns: _Limit | None = Field(default=None, alias="p90")
    """The longest allowed 90th percentile."""
    p95_ns: _Limit | None = Field(default=None, alias="p95")
    """The longest allowed 95th percentile."""
    p99_ns: _Limit | None = Field(default=None, alias="p99")
    """The longest allowed 99th percentile."""
    p99_9_ns: _Limit | None = Field(default=None, alias="p99_9")
    """The longest allowed 99.9th percentile."""
    p99_99_ns: _Limit | None = Field(default=None, alias="p99_99")
    """The longest allowed 99.99th percentile."""

    @pydantic.model_validator(mode="after")
    def _has_a_limit(self) -> Self:
        if not self.model_fields_set:
            raise ValueError("give at least one limit, such as p99: 50ms or error_rate: 0.1%")
        return self

    @property
    def percentiles_ns(self) -> dict[str, int]:
        """The limits on percentiles by name."""
        limits = {name.removesuffix("_ns"): value for name, value in self if name.endswith("_ns")}
        return {name: int(value) for name, value in limits.items() if value is not None}


class Slo(PercentileLimits):
    """Limits for every load point, on response time (closed loop: service time); repetitions are pooled."""

    error_rate: Share | None = None
    """The largest allowed share of failed requests."""
    wrong_answers: Share | None = None
    """The largest allowed share of answers with other outputs than expected, judged by those that `check` checks."""
    first_response: PercentileLimits | None = None
    """Limits on the time to the first response of a stream, such as `{p99: 200ms}`."""

    first_token: PercentileLimits | None = None
    """Limits on the time to a stream's first event with content or reasoning over OpenAI's API, such as `{p99: 500ms}`."""
    per_token: PercentileLimits | None = None
    """Limits on a stream's time per output token over OpenAI's API, such as `{p99: 40ms}`."""

    @property
    def further(self) -> dict[str, PercentileLimits]:
        """The limits on other times than that of the whole answer, by the names under which these are recorded."""
        return {name: limits for key, name in FURTHER_TIMES.items() if (limits := getattr(self, key)) is not None}

    @property
    def limits_ns(self) -> dict[str, tuple[str, str, int]]:
        """All limits on times by name, `p99` or `first_token.p99`: the name under which the time is recorded, the percentile, and the limit."""
        own = {name: ("response_time", name, limit_ns) for name, limit_ns in self.percentiles_ns.items()}
        return own | {
            f"{FURTHER_KEYS[recorded]}.{name}": (recorded, name, limit_ns)
            for recorded, limits in self.further.items()
            for name, limit_ns in limits.percentiles_ns.items()
        }

    @property
    def beyond_share(self) -> float:
        """The largest share of requests that may fail or exceed one of the limits of `good_within_ns` while the SLO is met."""
        limits = [one.percentiles_ns for one in (self, *self.further.values())]
        return sum(1 - max(map(_quantile, each.items())) for each in limits if each) + (self.error_rate or 0.0)

    @property
    def good_within_ns(self) -> dict[str, int]:
        """For each time with limits that of the highest percentile, within which an ok answer counts as good; `waited` is that of the whole answer."""
        limits = {name: one.percentiles_ns for name, one in {"waited": self, **self.further}.items()}
        return {name: max(each.items(), key=_quantile)[1] for name, each in limits.items() if each}


def _quantile(limit: tuple[str, int]) -> float:
    """The quantile of a limit's name: 0.999 of `p99_9`."""
    return float(limit[0][1:].replace("_", ".")) / 100
