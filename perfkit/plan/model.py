"""`perfkit.plan/1` as frozen values.

Times are nanoseconds. Rates are requests a second of one replica; demand, and all of a `ReplicaCount`, are inferences a second: a request
of batch size 8 is eight.
"""

import dataclasses
import math
from collections.abc import Mapping
from typing import Any

from perfkit.plan.inputs import PlanInputs
from perfkit.stats.capacity import ClosedLoopBounds, ClosedPoint, Energy, ReplicaCount
from perfkit.stats.forecast import Exhaustion, Forecast
from perfkit.stats.rate_curve import Prediction, RateCurve
from perfkit.stats.slo_capacity import Capacity
from perfkit.stats.usl import UslFit, UslRefusal
from perfkit.stats.validation import Validation

SCHEMA = "perfkit.plan/1"
SHOWN = {"p50": 0.5, "p95": 0.95, "p99": 0.99}


@dataclasses.dataclass(frozen=True, slots=True)
class RatePoint:
    """What was measured at a rate, repetitions pooled."""

    rate_per_s: float
    state: str
    """`kept up`, or why no curve was fitted to it."""
    repetitions: int
    samples: int
    throughput_per_s: float
    goodput_per_s: float | None
    error_rate: float
    mean_ns: float | None
    percentiles_ns: Mapping[str, float]
    few_samples: tuple[str, ...]
    """Percentiles that fewer samples carry than they need."""
    gpu_utilization: float | None = None
    power_w: float | None = None
    """Of all GPUs together."""
    idle_power_w: float | None = None
    """As measured before the run, or as the question gives it."""
    energy: Energy | None = None
    meets_slo: bool | None = None
    """None where its percentile is not known."""


@dataclasses.dataclass(frozen=True, slots=True)
class NamedPrediction:
    """What one percentile is expected to be at a rate."""

    percentile: str
    expected: Prediction


@dataclasses.dataclass(frozen=True, slots=True)
class WhatIf:
    """What a validated model gives for a change; the times are those at the rate planned for a replica, None where it would be saturated."""

    model: str
    change: str
    saturation_per_s: float
    capacity_per_s: float | None
    """Under the SLO; None of a model that knows no percentiles."""
    mean_ns: float | None
    p99_ns: float | None


@dataclasses.dataclass(frozen=True, slots=True)
class Operation:
    """A fleet at some headroom: what it costs, and how long its requests take."""

    headroom: float
    replicas: int
    cost_per_hour: float | None
    cost_per_million: float | None
    rate_per_replica_per_s: float
    slo_percentile_ns: float


@dataclasses.dataclass(frozen=True, slots=True)
class TableRow:
    """A cell of demand × headroom × redundancy."""

    demand_per_s: float
    headroom: float
    redundancy: int
    replicas: int
    cost_per_hour: float | None
    cost_per_million: float | None


@dataclasses.dataclass(frozen=True, slots=True)
class ConfigurationPlan:
    """One configuration: what it can take, and what serves the demand with it."""

    name: str
    label: str
    model: str
    settings: str
    batch_size: int
    sources: tuple[str, ...]
    runs: int
    points: tuple[RatePoint, ...]
    closed: tuple[ClosedPoint, ...]
    refusal: str
    """Why it cannot be planned with; empty where it can."""
    curves: Mapping[str, RateCurve]
    """By percentile, and `mean`; nanoseconds."""
    slo_percentile: str
    """The limit that decides."""
    capacity: Capacity | None
    fleet: ReplicaCount | None
    currency: str
    cost_per_hour: float | None
    cost_per_million: float | None
    price_per_hour: float | None
    energy: Energy | None
    """Of an inference at the rate planned for a replica; None without GPUs."""
    target_concurrency: float | None
    autoscaler_rate_per_s: float | None
    predictions: tuple[NamedPrediction, ...]
    usl: UslFit | UslRefusal | None
    bounds: ClosedLoopBounds | None
    knee: ClosedPoint | None
    validations: tuple[Validation, ...]
    what_if: tuple[WhatIf, ...]
    operations: tuple[Operation, ...]
    table: tuple[TableRow, ...]
    extrapolated: tuple[str, ...]
    notes: tuple[str, ...]

    @property
    def inferences_per_s(self) -> float | None:
        """The capacity that is planned with, λ*_L, in inferences a second."""
        return None if self.capacity is None else self.capacity.low_per_s * self.batch_size


@dataclasses.dataclass(frozen=True, slots=True)
class CapacityPlan:
    """The answer."""

    inputs: PlanInputs = dataclasses.field(metadata={"key": "question"})
    configurations: tuple[ConfigurationPlan, ...]
    cheapest: str
    """The configuration that serves the demand at the least cost, or with the fewest replicas where no prices are given."""
    compares_costs: bool
    front: tuple[tuple[str, float], ...]
    """The Pareto front: configuration and headroom."""
    forecast: Forecast | None
    last_peak_date: str
    exhaustion: Exhaustion | None
    exhaustion_replicas: int
    assumptions: tuple[str, ...]

    @property
    def chosen(self) -> ConfigurationPlan:
        """The cheapest configuration."""
        return next(one for one in self.configurations if one.name == self.cheapest)


def plan_document(plan: CapacityPlan) -> dict[str, Any]:
    """The plan as plain values for JSON; what is unbounded is None."""
    document = _plain(dataclasses.replace(plan, forecast=None))
    assert isinstance(document, dict)
    if plan.forecast is not None:
        fields = dataclasses.fields(plan.forecast)
        document["forecast"] = {one.name: _plain(getattr(plan.forecast, one.name)) for one in fields if one.name != "paths_per_s"}
    return {"schema": SCHEMA, **document}


def _plain(value: Any) -> Any:
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return {field.metadata.get("key", field.name): _plain(getattr(value, field.name)) for field in dataclasses.fields(value)}
    if isinstance(value, Mapping):
        return {str(key): _plain(one) for key, one in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(one) for one in value]
    if isinstance(value, float) and not math.isfinite(value):
        return None
    return value
