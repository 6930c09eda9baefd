"""Schedules, their cost and the time in which the SLO is missed, of M/M/1 with a service time of 10 ms."""

import dataclasses

import pytest

from perfkit.errors import UsageError
from perfkit.plan import configuration
from perfkit.plan.capacity import count_replicas
from perfkit.plan.configuration import plan_capacity
from perfkit.plan.day_inputs import DayInputs, Purchase, Spot
from perfkit.plan.evidence import gather_evidence, read_sources
from perfkit.plan.fleet_risk import Splitting
from perfkit.plan.input_texts import Price
from perfkit.plan.inputs import PlanInputs, RiskInputs, parse_slo
from perfkit.plan.schedule import plan_schedule
from perfkit.plan.steps import parse_profile
from tests.queue_results import Writer, bucket_counts

MONTH_H, YEAR_H = 730, 8760
PURCHASE = Purchase(30_000, 3 * YEAR_H, 0.25, 700.0)
CONSTANT = parse_profile("hour,demand_per_s\n0,200\n", "day.csv")
DAY = parse_profile("hour,demand_per_s\n0,50\n8,200\n20,50\n", "day.csv")


@pytest.fixture(scope="module")
def evidence(tmp_path_factory):
    """Three starts of the server, without a closed loop; its lowest rate has 5,000 response times in all."""
    write = Writer(tmp_path_factory.mktemp("day"))
    rates = (20, 35, 50, 60, 70, 75, 80, 110)
    folders = [write(rates, seed=seed, restart=restart, seconds=80, overloaded_from=100) for seed, restart in enumerate((0.02, -0.02, 0.0))]
    (found,) = gather_evidence(read_sources([str(folder) for folder in folders]))
    return found


def inputs_of(**options):
    return PlanInputs(parse_slo(["p99<300ms"]), (200.0,), **options)


@pytest.fixture(scope="module")
def chosen(evidence):
    """The plan of the configuration for a peak of 200/s, with a price."""
    return plan_capacity([evidence], inputs_of(prices={"": Price(2.5, "$")})).chosen


@pytest.fixture(scope="module")
def without_log(evidence):
    """Results without latency.hlog: the replicas alone are simulated."""
    return dataclasses.replace(evidence, open_points=tuple(dataclasses.replace(point, batches=()) for point in evidence.open_points))


def scheduled(chosen, evidence, profile, redundancy=0, requests_at_most=400_000, **changes):
    """The schedule, with as few simulated requests as a test needs."""
    inputs = PlanInputs(
        parse_slo(["p99<300ms"]), (profile.peak_per_s,), redundancy=redundancy, day=DayInputs(profile, **{"cold_start_s": 90.0, **changes})
    )
    return plan_schedule(chosen, evidence, inputs, requests_at_most)


@pytest.fixture(scope="module")
def schedule(chosen, evidence):
    return scheduled(chosen, evidence, DAY, reserved_per_hour=1.6, spot=Spot(0.9, 0.05), purchase=PURCHASE)


def offer(schedule, way, payment):
    (found,) = (one for one in schedule.offers if (one.way, one.payment) == (way, payment))
    return found


def test_a_constant_demand_costs_what_the_fixed_fleet_costs_whatever_runs_it(chosen, without_log):
    schedule = scheduled(chosen, without_log, CONSTANT)
    assert {row.scheduled for row in schedule.hours} == {chosen.fleet.replicas}
    for way in ("fixed", "schedule by hour"):
        found = offer(schedule, way, "on demand")
        assert found.cost_per_year == pytest.approx(chosen.cost_per_hour * YEAR_H)
        assert found.cost_per_month == pytest.approx(chosen.cost_per_hour * MONTH_H)
    assert schedule.way("autoscaled").most <= chosen.fleet.replicas


def test_the_schedule_has_the_replicas_that_each_hour_needs_and_pays_for_cold_starts(chosen, schedule):
    night, peak = (count_replicas(demand, chosen.inferences_per_s).replicas for demand in (50, 200))
    assert [row.scheduled for row in schedule.hours] == [night] * 8 + [peak] * 12 + [night] * 4
    way = schedule.way("schedule by hour")
    assert (way.fewest, way.most) == (night, peak)
    assert way.replica_hours_per_day == pytest.approx(12 * night + 12 * peak + (peak - night) * 90 / 3600)
    assert offer(schedule, "schedule by hour", "on demand").cost_per_year == pytest.approx(365 * 2.5 * way.replica_hours_per_day)


def test_replicas_are_reserved_where_they_run_often_enough(chosen, schedule):
    """At 1.60 against 2.50, a replica is reserved that runs in more than 64 % of the time: those of the night, not those of twelve hours."""
    way = schedule.way("schedule by hour")
    found = offer(schedule, "schedule by hour", "reserved and on demand")
    assert found.reserved == way.fewest
    assert found.cost_per_year == pytest.approx(365 * (24 * way.fewest * 1.6 + (way.replica_hours_per_day - 24 * way.fewest) * 2.5))
    assert offer(schedule, "fixed", "reserved").cost_per_year == pytest.approx(chosen.fleet.replicas * 1.6 * YEAR_H)


def test_buying_is_written_off_and_supplied_with_electricity(chosen, schedule):
    replicas, electricity_per_h = chosen.fleet.replicas, chosen.fleet.replicas * 0.7 * 0.25
    assert offer(schedule, "fixed", "bought").cost_per_year == pytest.approx(replicas * 10_000 + electricity_per_h * YEAR_H)
    months = 30_000 * replicas / (replicas * 2.5 - electricity_per_h) / MONTH_H
    assert offer(schedule, "fixed", "on demand").break_even_months == pytest.approx(months)


def test_the_power_of_a_bought_fleet_is_the_measured_one_at_its_rate(chosen, without_log):
    """Half-way between 35/s at 200 W and 50/s at 300 W, each of the replicas draws 250 W; 42.5/s is a constant demand."""
    powers = {35: 200.0, 50: 300.0}
    points = tuple(dataclasses.replace(point, power_w=powers.get(point.rate_per_s), idle_power_w=50.0) for point in chosen.points)
    demand = parse_profile(f"hour,demand_per_s\n0,{42.5 * chosen.fleet.replicas}\n", "day.csv")
    measured = scheduled(
        dataclasses.replace(chosen, points=points), without_log, demand, purchase=dataclasses.replace(PURCHASE, power_w=None)
    )
    assert measured.mean_power_w == pytest.approx(250 * chosen.fleet.replicas)


def test_a_note_says_where_stretched_times_delay_a_backlog(chosen, evidence):
    whole, stretched = (
        scheduled(chosen, evidence, parse_profile("hour,demand_per_s\n0,5\n", "day.csv"), requests_at_most=most)
        for most in (500_000, 3_000)
    )
    assert (whole.sampling.is_whole, whole.notes) == (True, ())
    (note,) = stretched.notes
    later_s = 0.3 * stretched.sampling.stretch
    assert note.startswith(f"In the simulation of the day a backlog builds up and drains up to {later_s:.3g} s later than in truth")


def test_spot_replicas_cost_less_and_risk_more(chosen, evidence, schedule):
    found = offer(schedule, "autoscaled with spot", "spot above a reserved base")
    assert found.reserved == schedule.way("autoscaled").fewest
    assert found.cost_per_year < offer(schedule, "autoscaled", "on demand").cost_per_year
    often = scheduled(chosen, evidence, DAY, spot=Spot(0.9, 12.0))  # each is lost every five minutes
    assert often.way("autoscaled with spot").missed_time.low > often.way("autoscaled").missed_time.high


def test_a_fleet_with_headroom_keeps_the_slo_and_the_autoscaler_misses_it_after_the_step(schedule):
    """The step from 50/s to 200/s at 8:00 overloads the replicas of the night until others have started."""
    assert (schedule.refusal, schedule.replica.servers) == ("", 1)
    assert schedule.notes == ()
    assert schedule.replica.percentile_ns == pytest.approx(schedule.replica.fitted_ns, rel=0.2)
    fixed, autoscaled = schedule.way("fixed"), schedule.way("autoscaled")
    assert fixed.missed_time.value < 0.002
    assert autoscaled.missed_time.value * 1440 == pytest.approx(8, abs=6)
    assert autoscaled.missed_time_at_low >= autoscaled.missed_time.value


def test_missing_the_slo_costs_what_an_outage_does_and_decides_which_way_is_recommended(chosen, evidence):
    """An hour at a million makes the autoscaler's minutes after the step dearer than the fixed fleet; without a cost they are below 1 % of the time."""

    def recommended(**risk):
        inputs = inputs_of(day=DayInputs(DAY, cold_start_s=90.0), risk=RiskInputs(**risk))
        return plan_schedule(chosen, evidence, inputs, 400_000)

    free, dear = recommended(), recommended(outage_cost=Price(1e6, "$"))
    assert (free.allowed_missed_time, dear.allowed_missed_time) == (0.01, None)
    autoscaled = offer(dear, "autoscaled", "on demand")
    assert autoscaled.missed_cost_per_year == pytest.approx(dear.way("autoscaled").missed_time.value * YEAR_H * 1e6)
    assert free.recommended.cost_per_year == min(one.cost_per_year for one in free.offers if one.missed_time <= 0.01)
    assert dear.recommended.total_per_year == min(one.cost_per_year + one.missed_time * YEAR_H * 1e6 for one in dear.offers)
    assert [offer(free, way, "on demand").rank for way in ("autoscaled", "fixed")] == [2, 3]
    assert [offer(dear, way, "on demand").rank for way in ("autoscaled", "fixed")] == [3, 2]


def test_the_seed_alone_decides_the_simulation(chosen, evidence):
    first, again = (scheduled(chosen, evidence, DAY, requests_at_most=50_000) for _ in range(2))
    assert first == again


def test_redundancy_counts_for_the_schedule_and_the_fewest_replicas_of_the_autoscaler(chosen, without_log):
    schedule = scheduled(dataclasses.replace(chosen, price_per_hour=None), without_log, DAY, redundancy=2)
    assert schedule.offers == ()
    assert schedule.hours[0].scheduled == count_replicas(50, chosen.inferences_per_s, redundancy=2).replicas
    assert schedule.minimum == 3
    assert schedule.way("autoscaled").fewest >= 3


def test_a_measured_skew_counts_for_the_schedule_as_for_the_fixed_fleet(chosen, without_log):
    risk = RiskInputs(splitting=Splitting(shares=(1.5, 1.0, 0.5)))
    skewed = dataclasses.replace(chosen, fleet=inputs_of(risk=risk).count_replicas(200, chosen.inferences_per_s))
    schedule = plan_schedule(skewed, without_log, inputs_of(risk=risk, day=DayInputs(DAY, cold_start_s=90.0)))
    night, peak = (count_replicas(1.5 * demand, chosen.inferences_per_s).replicas for demand in (50, 200))
    assert [(schedule.hours[hour].scheduled, schedule.hours[hour].fixed) for hour in (0, 8)] == [(night, peak), (peak, peak)]


def test_a_measured_skew_lowers_the_autoscalers_target(chosen, without_log):
    """As many replicas as for 1.5 times the demand: the busiest one gets what each gets there."""
    more = parse_profile("hour,demand_per_s\n0,75\n8,300\n20,75\n", "day.csv")
    larger = dataclasses.replace(chosen, fleet=inputs_of().count_replicas(300, chosen.inferences_per_s))
    even = plan_schedule(larger, without_log, inputs_of(day=DayInputs(more, cold_start_s=90.0)))
    risk = RiskInputs(splitting=Splitting(shares=(1.5, 1.0, 0.5)))
    skewed = plan_schedule(larger, without_log, inputs_of(risk=risk, day=DayInputs(DAY, cold_start_s=90.0)))
    assert skewed.target_per_s == pytest.approx(even.target_per_s / 1.5)
    assert skewed.way("autoscaled").ready == even.way("autoscaled").ready
    assert any("to each as many as to the one with the largest share, 1.5 times the mean" in one for one in skewed.assumptions)


def test_a_demand_in_inferences_is_divided_by_the_batch_size(chosen, without_log):
    by_eight = parse_profile("hour,demand_per_s\n0,400\n8,1600\n20,400\n", "day.csv")
    batched = scheduled(dataclasses.replace(chosen, batch_size=8), without_log, by_eight)
    single = scheduled(chosen, without_log, DAY)
    assert [row.scheduled for row in batched.hours] == [row.scheduled for row in single.hours]
    assert [row.demand_per_s for row in batched.hours] == [8 * row.demand_per_s for row in single.hours]
    assert batched.ways == single.ways


def test_an_hour_without_demand_keeps_one_replica(chosen, without_log):
    schedule = scheduled(chosen, without_log, parse_profile("hour,demand_per_s\n0,0\n8,200\n20,0\n", "day.csv"))
    assert [schedule.hours[hour].scheduled for hour in (0, 8, 23)] == [1, chosen.fleet.replicas, 1]
    assert schedule.way("autoscaled").fewest == 1


def test_a_week_has_its_own_hours(chosen, without_log):
    rows = "".join(f"{day},0,{20 if day in ('Sat', 'Sun') else 200}\n" for day in ("Mon", "Tue", "Wed", "Thu", "Fri", "Sat", "Sun"))
    schedule = scheduled(chosen, without_log, parse_profile(f"weekday,hour,demand_per_s\n{rows}", "week.csv"))
    assert [schedule.hours[index].start for index in (0, 167)] == ["Monday 00:00", "Sunday 23:00"]
    weekday, weekend = (count_replicas(demand, chosen.inferences_per_s).replicas for demand in (200, 20))
    hours = 24 * (5 * weekday + 2 * weekend) + (weekday - weekend) * 90 / 3600
    assert schedule.way("schedule by hour").replica_hours_per_day == pytest.approx(hours / 7)


def test_without_a_log_the_schedule_stands_and_the_simulation_is_refused(chosen, without_log):
    schedule = scheduled(chosen, without_log, DAY)
    assert "The time in which the SLO is missed is not simulated: there are 0 response times" in schedule.refusal
    assert schedule.notes == (schedule.refusal,)
    assert [way.missed_time for way in schedule.ways] == [None] * 3
    assert offer(schedule, "autoscaled", "on demand").cost_per_year < offer(schedule, "fixed", "on demand").cost_per_year


def test_a_simulated_replica_that_differs_from_the_measured_curve_is_noted(chosen, evidence):
    """With a constant service time in place of the exponential one, the p99 below the capacity is too low."""
    constant = dataclasses.replace(evidence, single_request_batches=(bucket_counts([0.01] * 2000),))
    schedule = scheduled(chosen, constant, CONSTANT, requests_at_most=20_000)
    (note,) = (sentence for sentence in schedule.notes if "The simulated replica" in sentence)
    assert note.endswith("they agree at the capacity alone, so the simulated time in which the SLO is missed may be too low.")
    assert schedule.replica.percentile_ns < 0.75 * schedule.replica.fitted_ns


def test_a_replica_that_no_queue_resembles_is_not_simulated(chosen, evidence):
    """With a service time of two seconds, and even with half of it, 64 servers serve at most 64/s."""
    batches = dataclasses.replace(evidence, single_request_batches=(bucket_counts([2.0] * 2000),))
    schedule = scheduled(dataclasses.replace(chosen, model_servers=None), batches, CONSTANT)
    assert schedule.refusal.startswith("The time in which the SLO is missed is not simulated: no queue of up to 64 servers")
    assert schedule.way("schedule by hour").missed_time is None
    one = scheduled(dataclasses.replace(chosen, model_servers=1), batches, CONSTANT)
    assert "a queue of 1 server with the measured service times (mean 2.00 s) does not have the measured capacity of " in one.refusal


def test_the_cold_start_is_the_longest_that_was_measured(chosen, without_log):
    schedule = scheduled(chosen, dataclasses.replace(without_log, cold_starts_s=(12.0, 15.5)), CONSTANT, cold_start_s=None)
    assert schedule.cold_start_s == 15.5
    assert schedule.cold_start_source == "measured, the longest of 2 starts of the server"


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"cold_start_s": None}, "--profile needs --cold-start, the time from the start of a replica until it takes requests, such as 90s"),
        ({"minimum": 5, "maximum": 4}, "--min-replicas 5 is above --max-replicas 4"),
        ({"maximum": 2}, "the fewest replicas, one more than --redundancy, are 3, which is above --max-replicas 2"),
        (
            {"purchase": Purchase(1, 1, 1, None)},
            "--purchase: the results hold no power of GPUs; give the power of a replica, such as --power 700W",
        ),
    ],
)
def test_inconsistent_options_are_refused_before_the_capacities_are_fitted(without_log, monkeypatch, changes, message):
    monkeypatch.setattr(configuration, "plan_configuration", lambda *_: pytest.fail("a capacity was fitted"))
    with pytest.raises(UsageError) as refused:
        plan_capacity([without_log], inputs_of(redundancy=2, day=DayInputs(CONSTANT, **{"cold_start_s": 90.0, **changes})))
    assert message in str(refused.value)


def test_the_chosen_configuration_needs_the_cold_start_and_the_power_that_only_another_one_has(chosen, without_log):
    """Which configuration is chosen is known after the fit alone."""
    with pytest.raises(UsageError, match="--profile needs --cold-start"):
        scheduled(chosen, without_log, CONSTANT, cold_start_s=None)
    with pytest.raises(UsageError, match="the results hold no power of GPUs"):
        scheduled(chosen, without_log, CONSTANT, purchase=Purchase(1, 1, 1, None))
