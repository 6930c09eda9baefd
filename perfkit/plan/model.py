"""The capacity plan, `perfkit.plan/1`, as frozen values.

Times are in nanoseconds. Rates are requests per second at one replica; demand, and all figures of a `ReplicaCount`, are inferences per
second: a request of batch size 8 is eight inferences. `dataclass_document` says what the JSON keys are.
"""

import dataclasses
from collections.abc import Mapping
from typing import Any

from perfkit.plan.capacity import ClosedLoopBounds, ClosedPoint, Energy, ReplicaCount
from perfkit.plan.forecast import Exhaustion, Forecast
from perfkit.plan.inputs import PlanInputs
from perfkit.plan.queueing import Validation
from perfkit.plan.rate_curve import Prediction, RateCurve
from perfkit.plan.risk import FleetRisk
from perfkit.plan.schedule_model import Schedule
from perfkit.plan.slo_capacity import Capacity
from perfkit.plan.usl import UslFit, UslRefusal
from perfkit.result.part import dataclass_document
from perfkit.stats.ranking import Judgement
from perfkit.stats.ratio_interval import Estimate
from perfkit.stats.slo import Verdict

SCHEMA = "perfkit.plan/1"
SHOWN = {"p50": 0.5, "p95": 0.95, "p99": 0.99}


@dataclasses.dataclass(frozen=True, slots=True)
class PartsVerdict:
    """Whether all limits on parts of answers, such as the first token, are met at a rate."""

    verdict: Verdict
    reason: str
    """What the limits with this verdict found, such as `the first token's p99 is 600 ms, above 500 ms`."""


@dataclasses.dataclass(frozen=True, slots=True)
class RatePoint:
    """The measurements at one rate, repetitions pooled."""

    rate_per_s: float
    state: str
    """`kept up`, or why the point is left out of the curves."""
    repetitions: int
    samples: int
    throughput_per_s: float
    goodput_per_s: float | None
    error_rate: float
    mean_ns: float | None
    percentiles_ns: Mapping[str, float]
    few_samples: tuple[str, ...]
    """Percentiles with fewer independent samples than they need."""
    gpu_utilization: float | None = None
    power_w: float | None = None
    """The mean power of all GPUs together."""
    idle_power_w: float | None = None
    """From the inputs, or as measured before the run."""
    energy: Energy | None = None
    meets_slo: bool | None = None
    """None if a limited percentile is unknown, or whether a limit on a part of answers is met is unclear."""
    parts: PartsVerdict | None = None
    """The verdict on the limits on parts of answers; None without any."""


@dataclasses.dataclass(frozen=True, slots=True)
class NamedPrediction:
    """The expected value of one percentile at a rate."""

    percentile: str
    expected: Prediction


@dataclasses.dataclass(frozen=True, slots=True)
class WhatIf:
    """A validated model's answer to a change; times at the planned rate of a replica, None if the replica would be saturated."""

    model: str
    change: str
    saturation_per_s: float
    """The rate at which a replica saturates."""
    capacity_per_s: float | None
    """Under the SLO; None for a model without percentiles."""
    mean_ns: float | None
    p99_ns: float | None


@dataclasses.dataclass(frozen=True, slots=True)
class Operation:
    """The replicas needed at one headroom, their cost, and the time of their requests."""

    headroom: float
    """The share of the capacity that is kept free."""
    replicas: int
    cost_per_hour: float | None
    cost_per_million: float | None
    rate_per_replica_per_s: float
    slo_percentile_ns: float


@dataclasses.dataclass(frozen=True, slots=True)
class TableRow:
    """One combination of demand, headroom and redundancy."""

    demand_per_s: float
    headroom: float
    redundancy: int
    replicas: int
    cost_per_hour: float | None
    cost_per_million: float | None


@dataclasses.dataclass(frozen=True, slots=True)
class ConfigurationPlan:
    """One configuration: its capacity, and the replicas that serve the demand."""

    name: str
    label: str
    """The configuration as tables name it."""
    model: str
    settings: str
    batch_size: int
    sources: tuple[str, ...]
    runs: int
    points: tuple[RatePoint, ...]
    closed: tuple[ClosedPoint, ...]
    refusal: str
    """Why it cannot be planned; empty if it can."""
    curves: Mapping[str, RateCurve]
    """By percentile, and `mean`; in nanoseconds."""
    slo_percentile: str
    """The percentile whose limit gives the lowest capacity."""
    capacity: Capacity | None
    fleet: ReplicaCount | None
    currency: str
    cost_per_hour: float | None
    """The cost of all replicas for an hour."""
    cost_per_million: float | None
    price_per_hour: float | None
    """The price of one replica for an hour."""
    energy: Energy | None
    """Per inference at the planned rate of a replica; None without GPUs."""
    target_concurrency: float | None
    """Requests in flight per replica to scale on, by Little's law."""
    autoscaler_rate_per_s: float | None
    """The autoscaler's target for a replica, in requests per second: with it the replica with the largest share keeps the headroom."""
    predictions: tuple[NamedPrediction, ...]
    """Expected percentiles at the planned rate of a replica."""
    usl: UslFit | UslRefusal | None
    """The fit of the Universal Scalability Law, or why there is none."""
    bounds: ClosedLoopBounds | None
    knee: ClosedPoint | None
    """The closed loop's load point nearest to the knee."""
    validations: tuple[Validation, ...]
    """How well each performance model predicts held-out rates."""
    what_if: tuple[WhatIf, ...]
    model_servers: int | None
    """The number of servers c of the queueing model M/G/c; None unless that model was accepted."""
    operations: tuple[Operation, ...]
    table: tuple[TableRow, ...]
    extrapolated: tuple[str, ...]
    notes: tuple[str, ...]

    @property
    def inferences_per_s(self) -> float | None:
        """The planned capacity, the lower limit λ*_L, in inferences per second."""
        return None if self.capacity is None else self.capacity.low_per_s * self.batch_size


@dataclasses.dataclass(frozen=True, slots=True)
class RankedConfiguration:
    """A configuration's rank, its figures with 90 % intervals, and the judgement of each constraint."""

    name: str
    rank: int | None
    """One plus the number of configurations that are cheaper, with a probability of at least `pair_confidence`; None if it is not ranked."""
    verdict: Judgement
    """The worst judgement of all constraints; `holds` without constraints."""
    judgements: tuple[tuple[str, Judgement], ...]
    """Each constraint and its judgement."""
    figures: Mapping[str, Estimate]
    """By name: `capacity` in inferences per second, `replicas`, `price` an hour, percentiles in nanoseconds at the planned rate, `error_rate`,
    `gpu_memory` in bytes, `energy` in joules per inference."""
    first_is_cheaper: float | None
    """The probability that the first configuration costs less, the lowest one where a capacity is known only to lie between two rates; None for the first itself."""
    times_as_much: float | None
    """How many times as much data would tell a tied configuration from the first; infinite above 100, None unless tied with the first."""


@dataclasses.dataclass(frozen=True, slots=True)
class CapacityPlan:
    """The plan over all configurations."""

    inputs: PlanInputs = dataclasses.field(metadata={"serialization_alias": "question"})
    """What was asked: demand, SLO, prices, redundancy."""
    configurations: tuple[ConfigurationPlan, ...]
    cheapest: str
    """The first of the ranking, with the lowest cost or, without prices, the fewest replicas; others may be tied with it."""
    compares_costs: bool
    front: tuple[tuple[str, float], ...]
    """The Pareto front of cost and time: configuration and headroom."""
    forecast: Forecast | None
    """None without daily peaks, and with too few of them."""
    last_peak_date: str
    """The day of the last daily peak; empty without any."""
    exhaustion: Exhaustion | None
    """None without daily peaks."""
    exhaustion_replicas: int
    """The replicas whose exhaustion is forecast."""
    risk: FleetRisk
    """The risk of the chosen configuration."""
    schedule: Schedule | None
    """The schedule of the chosen configuration; None without a demand profile."""
    assumptions: tuple[str, ...]
    ranking: tuple[RankedConfiguration, ...] = ()
    """All configurations, the best first."""
    hardware: tuple[str, ...] = ()
    """What the configurations ran on, such as `4 × H100`; unknown hardware is left out."""
    measured_on: str = ""
    """The date of the last measurement."""
    notes: tuple[str, ...] = ()
    """Cautions about the plan as a whole."""

    @property
    def chosen(self) -> ConfigurationPlan:
        """The first of the ranking."""
        return next(configuration for configuration in self.configurations if configuration.name == self.cheapest)

    @property
    def verdict(self) -> Judgement:
        """The worst judgement of the chosen configuration: of its constraints, and of the SLO's error rate, which few requests cannot show."""
        first, limit = self.ranking[0], self.inputs.slo.error_rate
        errors = first.figures.get("error_rate")
        is_shown = limit is None or errors is None or errors.high is None or errors.high <= limit
        return first.verdict if is_shown or first.verdict == "violated" else "cannot be told"


def plan_document(plan: CapacityPlan) -> dict[str, Any]:
    """Convert the plan to plain values for JSON; infinite numbers become None."""
    return dataclass_document(SCHEMA, plan)
