"""The risk of a plan of M/M/1 with a service time of 10 ms, and the inputs that it takes."""

import dataclasses
import json
import math

import pytest

from perfkit.errors import UsageError
from perfkit.plan.capacity import ReplicaCount
from perfkit.plan.configuration import plan_capacity
from perfkit.plan.day_inputs import DayInputs
from perfkit.plan.evidence import gather_evidence, read_sources
from perfkit.plan.fleet_risk import Balancing, Splitting
from perfkit.plan.input_texts import Price
from perfkit.plan.inputs import (
    PlanInputs,
    RiskInputs,
    parse_availability,
    parse_demand_uncertainty,
    parse_outage_cost,
    parse_peak_hours,
    parse_share_counts,
    parse_shares,
    parse_slo,
    parse_splitting,
)
from perfkit.plan.model import plan_document
from perfkit.plan.rate_curve import RateCurve, Spread
from perfkit.plan.risk import arrivals_notes, demand_levels, fleet_risk, replica_capacity
from perfkit.plan.slo_capacity import Capacity
from perfkit.plan.steps import parse_profile
from tests.closed_schema import validator_of

LN_100 = math.log(100)
MM1_P99 = RateCurve(LN_100 / 100, LN_100 / 100, 100.0, 20.0, 80.0, Spread(0.03, 4, 3, 0.01, 20), ())
"""The p99 of M/M/1 with mean service time 0.01: ln(100)/(100 - λ) = base + rise·λ/(100 - λ)."""


def inputs(demand_per_s=1000.0, **risk):
    return PlanInputs(parse_slo(["p99<300ms"]), (demand_per_s,), risk=RiskInputs(**risk))


def capacity_of(*draws_per_s):
    ordered = tuple(sorted(draws_per_s))
    return Capacity(ordered[len(ordered) // 2], ordered[0], ordered[-1], draws_per_s=ordered)


def fleet_of(replicas, demand_per_s=1000.0):
    return ReplicaCount(replicas, replicas, replicas, None, demand_per_s, 80.0)


def risk_of(plan_inputs, replicas=14, price_per_hour=None):
    draws = [80 + 0.05 * index for index in range(-100, 101)]
    fleet = fleet_of(replicas, plan_inputs.demand_per_s)
    return fleet_risk(capacity_of(*draws), MM1_P99, fleet, price_per_hour, 1, plan_inputs)


@pytest.fixture(scope="module")
def evidence(mm1_results):
    return gather_evidence(read_sources([str(folder) for folder in mm1_results]))


@pytest.fixture(scope="module")
def plan(evidence):
    risk = RiskInputs(demand_uncertainty=0.2, outage_cost=Price(500.0, "$"), peak_hours_per_day=4.0, availability=0.99)
    whole = dataclasses.replace(inputs(), prices={"": Price(2.5, "$")}, zones=3, risk=risk)
    return plan_capacity(evidence, whole)


def test_the_plan_has_the_risk_of_its_replicas_one_fewer_and_one_more(plan):
    risk, planned = plan.risk, plan.chosen.fleet.replicas
    fewer, row, more = (risk.row(planned + number) for number in (-1, 0, 1))
    assert fewer.all_up < row.all_up < more.all_up
    assert row.one_lost == fewer.all_up
    assert row.zone_lost == risk.row(planned - math.ceil(planned / 3)).all_up
    assert row.one_lost < row.with_failures < row.all_up


def test_more_replicas_are_never_less_safe(plan):
    for name in ("all_up", "one_lost", "with_failures"):
        values = [getattr(row, name) for row in plan.risk.rows]
        assert values == sorted(values)


def test_the_document_holds_the_risk_and_its_inputs(plan):
    document = json.loads(json.dumps(plan_document(plan), allow_nan=False))
    validator_of("plan").validate(document)
    assert document["question"]["risk"]["demand_uncertainty"] == 0.2
    assert document["question"]["risk"]["splitting"] == {"balancing": "random", "shares": []}
    assert document["risk"]["replicas"] == plan.chosen.fleet.replicas
    assert document["risk"]["rows"][0].keys() >= {"replicas", "all_up", "one_lost", "zone_lost", "missed_hours_per_year"}
    assert "at random" in document["risk"]["splitting"]


def test_the_plan_says_how_it_takes_the_demand_and_splits_the_requests(plan):
    assert any("Requests are split over the replicas at random" in sentence for sentence in plan.assumptions)
    assert "The peak demand is lognormal: with a probability of 90 % it differs from the stated one by -17 % to +20 %." in plan.assumptions
    exact = list(RiskInputs().assumptions(3, has_profile=False))
    assert any("taken as exact; --demand-uncertainty" in sentence for sentence in exact)
    assert any("at its peak all day" in sentence for sentence in exact)
    assert any("of each hour of the profile" in sentence for sentence in RiskInputs().assumptions(3, has_profile=True))


def test_the_replicas_for_95_percent_are_the_fewest():
    risk = risk_of(inputs(demand_uncertainty=0.1))
    probabilities = {row.replicas: row.all_up for row in risk.rows}
    assert probabilities[risk.fewest_all_up] >= 0.95 > probabilities[risk.fewest_all_up - 1]
    assert risk.fewest_one_lost == risk.fewest_all_up + 1


def test_the_hours_missed_and_their_cost_follow_from_the_probability():
    risk = risk_of(inputs(outage_cost=Price(500.0, "$"), peak_hours_per_day=4.0), price_per_hour=2.5)
    for row in risk.rows:
        assert row.missed_hours_per_year == pytest.approx((1 - row.all_up) * 4 * 365)
        assert row.missed_cost_per_year == pytest.approx(500 * row.missed_hours_per_year)
        assert row.fleet_cost_per_year == pytest.approx(row.replicas * 2.5 * 8760)
    totals = {row.replicas: row.fleet_cost_per_year + row.missed_cost_per_year for row in risk.rows}
    assert risk.cheapest_replicas == min(totals, key=lambda number: totals[number])
    assert risk_of(inputs()).cheapest_replicas is None


def test_the_number_that_costs_least_is_found_between_the_numbers_shown():
    """Of a hundred thousand requests per second about 27 numbers are shown, some 20 apart: around the cheapest, each was tried."""
    planned = inputs(100_000.0, outage_cost=Price(5000.0, "$"), demand_uncertainty=0.2)
    risk = risk_of(planned, replicas=1800, price_per_hour=2.5)

    def total(replicas):
        row = risk_of(planned, replicas=replicas, price_per_hour=2.5).row(replicas)
        return row.fleet_cost_per_year + row.missed_cost_per_year

    best = risk.cheapest_replicas
    assert risk.rows[0].replicas < best < risk.rows[-1].replicas
    assert total(best) == min(total(number) for number in range(best - 3, best + 4))


def test_the_hours_missed_follow_from_the_demand_profile():
    """Six hours a day at the peak of 1,000/s, six at 950/s, and twelve at 300/s, which are never missed."""
    profile = parse_profile("hour,demand_per_s\n0,300\n12,1000\n18,950\n", "day.csv")
    with_profile = dataclasses.replace(inputs(), day=DayInputs(profile))
    risk, at_950 = risk_of(with_profile), risk_of(inputs(950.0))
    assert demand_levels(with_profile) == pytest.approx({1.0: 6 * 365, 0.95: 6 * 365, 0.3: 12 * 365})
    assert risk.hours_per_year == pytest.approx(8760)
    for replicas in (13, 14):
        expected = 6 * 365 * (2 - risk.row(replicas).all_up - at_950.row(replicas).all_up)
        assert risk.row(replicas).missed_hours_per_year == pytest.approx(expected)
    four = dataclasses.replace(with_profile, risk=RiskInputs(peak_hours_per_day=4.0))
    assert demand_levels(four) == {1.0: 4 * 365}


def test_a_replica_with_1_2_times_its_share_has_four_times_the_p99():
    """M/M/1 at a load of 15/19: (1 - ρ)/(1 - 1.2·ρ) = 4."""
    even_per_s = 100 * 15 / 19
    risk = risk_of(inputs(4 * even_per_s, splitting=Splitting(shares=(1.2, 1.0, 1.0, 0.8))), replicas=4)
    assert risk.largest_share == pytest.approx(1.2)
    assert risk.busiest_time_ns / risk.even_time_ns == pytest.approx(4)
    assert risk_of(inputs(4 * 90, splitting=Splitting(shares=(1.2, 1.0, 1.0, 0.8))), replicas=4).busiest_time_ns is None


def test_the_risk_is_that_of_all_limits_where_two_are_about_equal(evidence):
    """The p95 and the p99 of M/M/1 meet their limits at 68.6/s and 69.3/s. The p99 is known less well, so it has the lower lower end."""

    def planned(slo):
        return plan_capacity(evidence, PlanInputs(parse_slo([slo]), (1000.0,))).chosen

    p95, both = planned("p95<95.5ms"), planned("p95<95.5ms,p99<150ms")
    assert both.slo_percentile == "p99"
    assert both.capacity.low_per_s < p95.capacity.low_per_s
    assert both.capacity.high_per_s == p95.capacity.high_per_s
    assert all(draw <= other for draw, other in zip(both.capacity.draws_per_s, p95.capacity.draws_per_s, strict=True))


def test_a_skew_needs_more_replicas(evidence):
    even = plan_capacity(evidence, inputs())
    skewed = plan_capacity(evidence, inputs(splitting=Splitting(shares=(1.2, 1.0, 1.0, 0.8))))
    low = even.chosen.capacity.low_per_s
    assert even.chosen.fleet.for_headroom == math.ceil(1000 / (0.7 * low))
    assert skewed.chosen.fleet.for_headroom == math.ceil(1.2 * 1000 / (0.7 * low))
    assert 1.2 * (skewed.chosen.autoscaler_rate_per_s or 0.0) == pytest.approx(even.chosen.autoscaler_rate_per_s)
    assert skewed.risk.safe_demand_per_s / skewed.risk.replicas < even.risk.safe_demand_per_s / even.risk.replicas


def test_the_variation_between_starts_is_multiplied_by_what_a_slower_server_loses(plan):
    """M/M/1 with a limit on the p99: capacity = v·100 - ln(100)/limit at the speed v."""
    capacity = 100 - LN_100 / 0.3
    elasticity = plan.chosen.capacity.speed_elasticity
    assert elasticity == pytest.approx(100 / capacity, rel=0.1)
    replica = replica_capacity(plan.chosen.capacity, MM1_P99.spread, batch_size=8)
    assert (replica.restart_sd, replica.restart_degrees) == (0.03 * elasticity, 4)
    assert replica.draws_per_s == tuple(8 * draw for draw in plan.chosen.capacity.draws_per_s)


def test_large_fleets_have_few_rows_with_the_planned_number_and_its_neighbours():
    risk = risk_of(inputs(1_000_000.0, demand_uncertainty=0.3), replicas=14_000)
    assert len(risk.rows) <= 27
    assert {13_999, 14_000, 14_001} <= {row.replicas for row in risk.rows}
    assert risk.rows[0].all_up < 0.1
    assert risk.rows[-1].one_lost > 0.99


def test_absurdly_large_fleets_take_no_more_memory_or_time():
    risk = risk_of(inputs(1e12, availability=0.995), replicas=20_000_000_000)
    assert len(risk.rows) <= 27
    planned = risk.row(20_000_000_000)
    assert 0.0 < planned.with_failures < planned.all_up < 1.0


def test_a_single_replica_leaves_none_when_it_is_lost():
    risk = risk_of(inputs(10.0), replicas=1)
    assert [row.replicas for row in risk.rows][:2] == [1, 2]
    assert (risk.rows[0].one_lost, risk.rows[0].all_up > 0.99) == (0.0, True)


@pytest.mark.parametrize(
    ("arrivals", "burstiness", "is_said"), [("poisson", None, False), ("constant", None, True), ("gamma", 0.5, True), ("gamma", 2.0, False)]
)
def test_random_splitting_does_not_keep_arrivals_that_are_more_regular_than_poisson(evidence, arrivals, burstiness, is_said):
    point = evidence[0].open_points[0]
    load = point.measured.load.model_copy(update={"arrivals": arrivals, "burstiness": burstiness})
    measured = dataclasses.replace(point, measured=point.measured.model_copy(update={"load": load}))
    changed = dataclasses.replace(evidence[0], open_points=(measured,))
    said = [note.startswith("The arrivals that were measured are more regular") for note in arrivals_notes(changed, Splitting())]
    assert said == [True] * is_said
    assert not list(arrivals_notes(changed, Splitting(Balancing.ROUND_ROBIN)))


def test_the_inputs_are_parsed_from_their_texts():
    assert parse_demand_uncertainty("20%") == 0.2
    assert parse_availability("99.5%") == 0.995
    assert parse_peak_hours("90m") == 1.5
    assert parse_outage_cost("$500/h", [Price(2.5, "$")]) == Price(500.0, "$")
    assert parse_splitting(None, ()) == Splitting(Balancing.RANDOM)
    assert parse_splitting("round-robin", ()) == Splitting(Balancing.ROUND_ROBIN)
    assert parse_shares("6,5,5,4") == (1.2, 1.0, 1.0, 0.8)
    assert parse_share_counts("\ufeffreplica, Requests\na, 600\nb, 200\n", "counts.csv") == (1.5, 0.5)


@pytest.mark.parametrize(
    ("parse", "message"),
    [
        (lambda: parse_demand_uncertainty("0.2"), "--demand-uncertainty '0.2': the unit is missing; write 20%"),
        (lambda: parse_demand_uncertainty("0%"), "--demand-uncertainty '0%': expected more than 0% and at most 100%; leave it out for"),
        (lambda: parse_demand_uncertainty("x%"), "--demand-uncertainty 'x%': expected a share"),
        (lambda: parse_availability("100%"), "--availability '100%': expected at least 50% and less than 100%"),
        (lambda: parse_peak_hours("25h"), "--peak-hours '25h': expected more than 0 and at most 24 hours a day, such as 4h"),
        (lambda: parse_peak_hours("4"), "--peak-hours '4': expected a duration"),
        (
            lambda: parse_outage_cost("$500", []),
            "--outage-cost '$500': expected the cost of an hour in which the SLO is missed, such as $2.50/h",
        ),
        (lambda: parse_outage_cost("a=$5/h", []), "--outage-cost 'a=$5/h': this price has no label; leave out 'a'"),
        (lambda: parse_outage_cost("5 EUR/h", [Price(2.5, "$")]), "the currency differs from that of --price, $; use one currency"),
        (lambda: parse_splitting("random", (1.2, 0.8)), "--shares: the measured shares replace the rule; leave out --balancing random"),
        (lambda: parse_shares("1.2,x"), "--shares '1.2,x': expected the relative loads of the replicas, above zero, such as 1.2,1,1,0.8"),
        (lambda: parse_shares("1,0"), "--shares '1,0': expected the relative loads"),
        (lambda: parse_share_counts("requests\n10\n\nx\n", "c.csv"), "c.csv:4: expected a column `requests` with a number above zero"),
        (lambda: parse_share_counts("count\n10\n", "c.csv"), "c.csv:2: expected a column `requests` with a number above zero"),
        (lambda: parse_share_counts("", "c.csv"), "c.csv: expected a header with the column requests, and a row for each replica"),
        (lambda: parse_share_counts("x" * 200_000, "c.csv"), "c.csv: cannot be read as CSV: field larger"),
    ],
)
def test_invalid_inputs_are_refused(parse, message):
    with pytest.raises(UsageError) as caught:
        parse()
    assert message in str(caught.value)
