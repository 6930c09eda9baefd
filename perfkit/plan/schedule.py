"""Demand over the day: replicas over time, their cost, and a simulation of the time in which the SLO is missed."""

import math
from collections.abc import Iterator, Sequence

import numpy as np

from perfkit.errors import UsageError
from perfkit.plan.day_inputs import DayInputs
from perfkit.plan.evidence import KEPT_UP, Evidence
from perfkit.plan.fleet_simulation import FEWEST_PERIODS, FleetDay, FleetOutcome, Policy, Sampling, choose_sampling, simulate_fleet
from perfkit.plan.inputs import PlanInputs
from perfkit.plan.model import ConfigurationPlan
from perfkit.plan.rate_points import has_gpu_power
from perfkit.plan.replica_queue import Limit, ServiceLaw, calibrated_law, response_times
from perfkit.plan.schedule_costs import ALLOWED_MISSED_TIME, NO_POWER, fleet_power_w, offers, ranked
from perfkit.plan.schedule_model import AUTOSCALED, FIXED, SCHEDULED, SPOT, FleetWay, HourRow, Schedule, SimulatedReplica
from perfkit.plan.steps import HOUR_S, SYNC_S, WEEKDAYS, Autoscaler, PeriodicSteps, ReplicaCourse, Steps, autoscale, interrupt, scheduled
from perfkit.result.distribution import QUANTILES
from perfkit.stats.buckets import BucketCounts
from perfkit.units import NS_PER_S, format_duration_ns, format_percent, format_rate_per_s

_LAW_QUANTILES, _CHECK_REQUESTS, _WARM_UP_S = 1000, 200_000, 3600.0
_QUARTERS_PER_HOUR, _LEAST_DEMAND = 4, 1e-9  # share of the peak: an hour without demand is planned for this demand
_AGREES_WITHIN, _LATER_AT_MOST = 0.25, 0.1
_NO_LAW, _NO_REQUESTS = ServiceLaw(1, np.full(1, 1e-9)), Sampling(FEWEST_PERIODS, 1, 1e12)
"""Without a law of service times only the number of replicas is simulated, with hardly any request."""


def plan_schedule(
    chosen: ConfigurationPlan, evidence: Evidence, inputs: PlanInputs, requests_at_most: int | None = None
) -> Schedule | None:
    """The schedule of the chosen configuration; None without a demand profile. Raises UsageError for inconsistent inputs.

    `requests_at_most` limits the requests that are simulated for each way to run the fleet; None: to those of a few seconds.
    """
    day = inputs.day
    if day is None:
        return None
    assert chosen.capacity is not None
    assert chosen.fleet is not None
    cold_start_s, source = _cold_start_s(day, evidence)
    scaler = _autoscaler(chosen, day, inputs, cold_start_s)
    power_w = fleet_power_w(chosen, day) if day.purchase else None
    counts = _replicas_by_hour(chosen, day, inputs)
    skew = inputs.risk.splitting.largest_measured
    demand = day.profile.steps(chosen.batch_size / skew)  # every replica is simulated as loaded as the busiest, which must keep the SLO
    limits = tuple(Limit(quantile, limit_ns / NS_PER_S) for quantile, limit_ns in inputs.slo.percentiles_ns.items())
    random = np.random.default_rng([inputs.seed, 20_011])
    laws, replica, refusal = service_laws(chosen, evidence, limits, scaler.target_per_s, random)
    simulated, slower = (FleetDay(demand, law, limits, warm_up_s=_WARM_UP_S) for law in laws or [_NO_LAW] * 2)
    mean_replicas = max(1.0, chosen.fleet.replicas * demand.mean / demand.peak)
    sampling = choose_sampling(simulated, mean_replicas, requests_at_most) if laws else _NO_REQUESTS
    outcomes: dict[str, FleetOutcome] = {}
    ways: list[FleetWay] = []

    def simulate(name: str, policy: Policy) -> None:
        outcome, at_low = (
            simulate_fleet(one, policy, sampling, np.random.default_rng([inputs.seed, 20_021, len(ways)])) for one in (simulated, slower)
        )
        outcomes[name] = outcome
        ways.append(_way(name, outcome, at_low, day.profile.length_s, is_simulated=bool(laws)))

    autoscaled = _autoscaled(scaler, demand)
    simulate(FIXED, _fixed(chosen.fleet.replicas))
    simulate(SCHEDULED, _scheduled(counts, cold_start_s, demand.length_s))
    simulate(AUTOSCALED, autoscaled)
    if day.spot is not None:
        end_s = _WARM_UP_S + demand.length_s
        simulate(SPOT, _with_spot(autoscaled, outcomes[AUTOSCALED].fewest, day.spot.interruptions_per_h, cold_start_s, end_s))
    missed = {way.name: None if way.missed_time is None else way.missed_time.value for way in ways}
    outage_per_h = inputs.risk.outage_cost.per_hour if inputs.risk.outage_cost else None
    allowed = day.allowed_missed_time
    if allowed is None and outage_per_h is None:
        allowed = ALLOWED_MISSED_TIME
    return Schedule(
        cold_start_s=cold_start_s,
        cold_start_source=source,
        scale_down_delay_s=scaler.scale_down_delay_s,
        target_per_s=scaler.target_per_s / skew,
        minimum=scaler.minimum,
        maximum=scaler.maximum,
        window_s=simulated.window_s,
        replica=replica,
        refusal=refusal,
        sampling=sampling if laws else None,
        mean_power_w=power_w,
        ways=tuple(ways),
        offers=ranked(offers(chosen, day, outcomes, power_w), missed, allowed, outage_per_h),
        allowed_missed_time=allowed,
        hours=_hours(day, chosen.fleet.replicas, counts, ways),
        assumptions=tuple(_assumptions(day, simulated, scaler, skew)),
        notes=(refusal,) if replica is None else tuple(_notes(replica, scaler, chosen, simulated, sampling)),
    )


def check_day(evidence: Sequence[Evidence], inputs: PlanInputs) -> None:
    """Raises UsageError for a demand over the day that no capacity could be planned with; before the capacities, which take long."""
    day = inputs.day
    if day is None:
        return
    _least_replicas(day, inputs)
    if not any(one.cold_starts_s for one in evidence):
        _cold_start_s(day, evidence[0])
    if day.purchase is not None and day.purchase.power_w is None and not any(map(has_gpu_power, evidence)):
        raise UsageError(NO_POWER)


def _cold_start_s(day: DayInputs, evidence: Evidence) -> tuple[float, str]:
    if day.cold_start_s is not None:
        return day.cold_start_s, "given"
    if evidence.cold_starts_s:
        return max(evidence.cold_starts_s), f"measured, the longest of {len(evidence.cold_starts_s)} starts of the server"
    raise UsageError(
        "--profile needs --cold-start, the time from the start of a replica until it takes requests, such as 90s: the results "
        "hold none, which perfkit measures only when it starts the server itself"
    )


def _autoscaler(chosen: ConfigurationPlan, day: DayInputs, inputs: PlanInputs, cold_start_s: float) -> Autoscaler:
    """The autoscaler of the simulation, whose target is that of the busiest replica."""
    assert chosen.fleet is not None
    assert chosen.capacity is not None
    minimum = _least_replicas(day, inputs)
    maximum = max(chosen.fleet.replicas, minimum) if day.maximum is None else day.maximum
    target_per_s = (1 - inputs.headroom) * chosen.capacity.low_per_s
    return Autoscaler(target_per_s, cold_start_s, maximum, minimum, day.scale_down_delay_s)


def _least_replicas(day: DayInputs, inputs: PlanInputs) -> int:
    """The fewest replicas of the autoscaler; raises UsageError if they are more than `--max-replicas`."""
    least = 1 + inputs.redundancy if day.minimum is None else day.minimum
    if day.maximum is not None and least > day.maximum:
        given = (
            f"--min-replicas {least}" if day.minimum is not None else f"the fewest replicas, one more than --redundancy, are {least}, which"
        )
        raise UsageError(f"{given} is above --max-replicas {day.maximum}")
    return least


def _replicas_by_hour(chosen: ConfigurationPlan, day: DayInputs, inputs: PlanInputs) -> tuple[int, ...]:
    """The replicas that the highest demand of each hour needs, by the rules of the plan."""
    assert chosen.inferences_per_s is not None
    capacity_per_s, least_per_s = chosen.inferences_per_s, day.profile.peak_per_s * _LEAST_DEMAND
    return tuple(
        inputs.count_replicas(max(peak_per_s, least_per_s), capacity_per_s).replicas for peak_per_s in day.profile.hourly_peaks_per_s()
    )


def _fixed(replicas: int) -> Policy:
    constant = Steps.of([(0.0, replicas)])
    return lambda _counts, _random: ReplicaCourse(constant, constant)


def _scheduled(by_hour: Sequence[int], cold_start_s: float, length_s: float) -> Policy:
    """The replicas of each hour of the profile; the simulated time begins with a warm-up before it."""
    hours = Steps.of([((hour * HOUR_S + _WARM_UP_S) % length_s, count) for hour, count in enumerate(by_hour)])
    course = scheduled(PeriodicSteps(hours, length_s), cold_start_s, _WARM_UP_S + length_s)
    return lambda _counts, _random: course


def _autoscaled(scaler: Autoscaler, demand: PeriodicSteps) -> Policy:
    first = scaler.clip(math.ceil(float(demand.at(-_WARM_UP_S)) / scaler.target_per_s))
    return lambda counts, _random: autoscale(counts, scaler, first)


def _with_spot(policy: Policy, base: int, interruptions_per_h: float, cold_start_s: float, end_s: float) -> Policy:
    return lambda counts, random: interrupt(policy(counts, random), base, interruptions_per_h, cold_start_s, end_s, random)


def service_laws(
    chosen: ConfigurationPlan, evidence: Evidence, limits: tuple[Limit, ...], target_per_s: float, random: np.random.Generator
) -> tuple[list[ServiceLaw], SimulatedReplica | None, str]:
    """The service laws of the simulated replica, its figures, and the refusal.

    The laws have the estimated capacity and its lower limit. Without them, the figures are None and the refusal says why.
    """
    assert chosen.capacity is not None
    if any(point.parts is not None for point in chosen.points):
        return [], None, (
            "The time in which the SLO is missed is not simulated: the simulated replica predicts response times alone, and the SLO has limits on "
            "parts of answers."
        )  # fmt: skip
    batches: Sequence[BucketCounts] = evidence.single_request_batches or next(
        (found for point in chosen.points if point.state == KEPT_UP and (found := _batches(evidence, point.rate_per_s))), []
    )
    measured = BucketCounts.merged(batches)
    if measured.count < _LAW_QUANTILES:
        return [], None, (
            f"The time in which the SLO is missed is not simulated: there are {measured.count:,} response times at the lowest rate (latency.hlog), and "
            f"the distribution of service times needs {_LAW_QUANTILES:,}; measure that rate longer."
        )  # fmt: skip
    times_s = np.array(measured.values_at([(index + 0.5) / _LAW_QUANTILES for index in range(_LAW_QUANTILES)])) / NS_PER_S
    try:
        law = calibrated_law(times_s.tolist(), chosen.capacity.per_s, limits, random, chosen.model_servers)
        at_low = calibrated_law(times_s.tolist(), chosen.capacity.low_per_s, limits, random, law.servers)
    except ValueError as error:
        return [], None, f"The time in which the SLO is missed is not simulated: {error}. A server that forms large batches is such a case."
    arrivals = np.cumsum(random.exponential(1 / target_per_s, _CHECK_REQUESTS))
    simulated = response_times(arrivals, law.draw(_CHECK_REQUESTS, random), law.servers, np.zeros(0, dtype=np.int64))
    mean_s = float(np.mean(law.times_s))
    name = chosen.slo_percentile
    replica = SimulatedReplica(
        servers=law.servers,
        mean_service_ns=mean_s * NS_PER_S,
        factor=mean_s / float(np.mean(times_s)),
        percentile_ns=float(np.quantile(simulated, QUANTILES[name])) * NS_PER_S,
        fitted_ns=chosen.curves[name].value(target_per_s),
    )
    return [law, at_low], replica, ""


def _batches(evidence: Evidence, rate_per_s: float) -> list[BucketCounts]:
    return [batch for point in evidence.open_points if point.rate_per_s == rate_per_s for batch in point.batches]


def _way(name: str, outcome: FleetOutcome, at_low: FleetOutcome, length_s: float, *, is_simulated: bool) -> FleetWay:
    quarter = round(HOUR_S / _QUARTERS_PER_HOUR * len(outcome.ready) / length_s)
    return FleetWay(
        name=name,
        fewest=outcome.fewest,
        most=outcome.most,
        replica_hours_per_day=outcome.replica_hours * 24 * HOUR_S / length_s,
        missed_time=outcome.missed_time if is_simulated else None,
        worst_period=outcome.worst_period if is_simulated and outcome.sampling.periods > 1 else None,
        slow_requests=outcome.slow_requests if is_simulated else None,
        missed_time_at_low=at_low.missed_time.value if is_simulated else None,
        ready=tuple(np.mean(np.reshape(outcome.ready, (-1, quarter)), axis=1).tolist()),
    )


def _hours(day: DayInputs, fixed: int, by_hour: Sequence[int], ways: Sequence[FleetWay]) -> tuple[HourRow, ...]:
    autoscaled = np.mean(np.reshape(next(way.ready for way in ways if way.name == AUTOSCALED), (-1, _QUARTERS_PER_HOUR)), axis=1)
    rows = []
    for hour, demand_per_s in enumerate(day.profile.hourly_peaks_per_s()):
        weekday = f"{WEEKDAYS[hour // 24]} " if day.profile.is_weekly else ""
        rows.append(HourRow(f"{weekday}{hour % 24:02d}:00", demand_per_s, fixed, by_hour[hour], float(autoscaled[hour])))
    return tuple(rows)


def _notes(
    replica: SimulatedReplica, scaler: Autoscaler, chosen: ConfigurationPlan, simulated: FleetDay, sampling: Sampling
) -> Iterator[str]:
    error = replica.percentile_ns / replica.fitted_ns - 1
    if abs(error) > _AGREES_WITHIN:
        name, rate = chosen.slo_percentile.replace("_", "."), format_rate_per_s(scaler.target_per_s)
        consequence = "too low" if error < 0 else "too high"
        yield (
            f"The simulated replica has a {name} of {format_duration_ns(replica.percentile_ns)} at {rate}, and the measurements give "
            f"{format_duration_ns(replica.fitted_ns)}: they agree at the capacity alone, so the simulated time in which the SLO is missed may be {consequence}."
        )
    later_s = sampling.stretch * max(limit.limit_s for limit in simulated.limits)
    if sampling.stretch > 1 and later_s > _LATER_AT_MOST * simulated.window_s:
        yield (
            f"In the simulation of the day a backlog builds up and drains up to {later_s:.3g} s later than in truth, since service times are stretched "
            f"{sampling.stretch:.3g} times: the time in which the SLO is missed after a change of the demand is uncertain by as much."
        )


def _assumptions(day: DayInputs, simulated: FleetDay, scaler: Autoscaler, skew: float) -> Iterator[str]:
    period = "week" if day.profile.is_weekly else "day"
    split = (
        f"to each as many as to the one with the largest share, {skew:.3g} times the mean"
        if skew > 1
        else "whatever the load balancer does"
    )
    less = f", divided by {skew:.3g}" if skew > 1 else ""
    yield (
        f"Demand over the {period}: arrivals are Poisson, their rate changes in steps at the times of the profile, and every {period} is alike. "
        f"In the simulation each request goes to a ready replica at random, {split}."
    )
    yield (
        f"The autoscaler counts arrivals over {scaler.metric_window_s:g} s, decides every {SYNC_S:g} s as Kubernetes' HPA does (tolerance "
        f"{format_percent(scaler.tolerance)}), and aims at {format_rate_per_s(scaler.target_per_s / skew)} for a replica, the capacity's lower limit less the headroom{less}; it "
        "knows no redundancy and no zones. The schedule starts replicas a cold start ahead."
    )
    yield f"The time in which the SLO is missed is counted in windows of {simulated.window_s:g} s; errors are not simulated."
    if day.spot is not None:
        yield "An interrupted spot replica completes its requests; its replacement is ready a cold start later, and notice given ahead is not used."
    if day.purchase is not None:
        yield (
            "Buying covers the price of the replicas and the electricity of their GPUs, written off in equal parts: no host, network, staff, "
            "interest, or value at the end."
        )
