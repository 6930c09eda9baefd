"""The risk of a plan in sentences, as a table and as a plot."""

import dataclasses

import numpy as np
import pytest

from perfkit.plan.configuration import plan_capacity
from perfkit.plan.evidence import gather_evidence, read_sources
from perfkit.plan.fleet_risk import Splitting
from perfkit.plan.input_texts import Price
from perfkit.plan.inputs import PlanInputs, RiskInputs, parse_slo
from perfkit.report.plan import headline
from perfkit.report.plan_risk import probability_text, risk_answer, risk_group, risk_table
from tests.queue_results import Writer


@pytest.fixture(scope="module")
def plan_of(tmp_path_factory):
    folder = Writer(tmp_path_factory.mktemp("risk"))((20, 35, 50, 60, 70, 110), overloaded_from=100)
    evidence = gather_evidence(read_sources([str(folder)]))

    def make(price=None, **risk):
        inputs = PlanInputs(parse_slo(["p99<300ms"]), (1000.0,), zones=3, risk=RiskInputs(**risk))
        return plan_capacity(evidence, dataclasses.replace(inputs, prices={"": Price(price, "$")} if price else {}))

    return make


@pytest.fixture(scope="module")
def bare(plan_of):
    return plan_of()


@pytest.fixture(scope="module")
def costed(plan_of):
    return plan_of(2.5, demand_uncertainty=0.2, outage_cost=Price(500.0, "$"), peak_hours_per_day=4.0, availability=0.99)


@pytest.mark.parametrize(
    ("probability", "text"),
    [(1.0, ">99 %"), (0.995, ">99 %"), (0.9949, "99 %"), (0.814, "81 %"), (0.005001, "1 %"), (0.0049, "<1 %"), (0.0, "<1 %")],
)
def test_no_probability_is_said_to_be_certain(probability, text):
    assert probability_text(probability) == text


def test_the_answer_gives_the_probabilities_of_the_planned_replicas_and_of_their_loss(bare):
    risk = bare.risk
    number, rows = risk.replicas, {row.replicas: row for row in risk.rows}
    texts = {name: probability_text(getattr(rows[number], name)) for name in ("all_up", "one_lost", "zone_lost")}
    first, second, *_ = risk_answer(bare)
    others = {other: probability_text(rows[other].all_up) for other in (number - 1, number + 1)}
    told = "".join(f"{other} with {text}; " for other, text in others.items() if text != texts["all_up"])
    assert first == (
        f"At a peak demand of 1,000/s, taken as exact, and with requests split at random, {number} replicas keep the SLO with a probability of "
        f"{texts['all_up']}; {told}with one replica lost: {texts['one_lost']}; with the largest of 3 zones lost: {texts['zone_lost']}."
    )
    assert second.startswith(
        f"{risk.fewest_all_up} replicas are the fewest that keep the SLO with a probability of 95 %, {risk.fewest_one_lost} with one lost; "
        f"the plan has {number - risk.fewest_all_up} more, for the rule of {bare.chosen.fleet.reason};"
    )
    assert set(risk_answer(bare)) <= set(headline(bare))


def test_the_answer_gives_the_interval_of_the_demand_and_what_being_wrong_costs(costed):
    sentences = list(risk_answer(costed))
    planned, more, best = (
        costed.risk.row(number) for number in (costed.risk.replicas, costed.risk.replicas + 1, costed.risk.cheapest_replicas)
    )
    assert sentences[0].startswith("At a peak demand of 833/s to 1,200/s (90 % interval) and with requests split at random, ")
    assert "with failures at an availability of 99 %: " in sentences[0]
    saved = planned.missed_cost_per_year - more.missed_cost_per_year
    expected, saves = (f"${float(f'{cost:.3g}'):,.0f}" for cost in (planned.missed_cost_per_year, saved))
    assert f"which costs {expected}; one more replica costs $21,900 a year and saves {saves} of that." in sentences[2]
    assert sentences[3].startswith(f"{best.replicas} replicas cost least in all: ${best.fleet_cost_per_year:,.0f} a year, and $")


def test_a_price_without_the_cost_of_an_hour_says_when_one_more_replica_pays(plan_of):
    plan = plan_of(2.5, demand_uncertainty=0.5)
    planned, more = (plan.risk.row(plan.risk.replicas + number) for number in (0, 1))
    saved = planned.missed_hours_per_year - more.missed_hours_per_year
    sentence = list(risk_answer(plan))[2]
    assert " of 8,760 h a year at the peak demand; one more replica costs $21,900 a year and saves " in sentence
    assert sentence.endswith(f"it pays if such an hour costs more than ${float(f'{21_900 / saved:.3g}'):,.0f}.")


def test_a_skew_gives_the_time_of_the_busiest_replica(plan_of):
    plan = plan_of(splitting=Splitting(shares=(1.2, 1.0, 1.0, 0.8)))
    sentences = list(risk_answer(plan))
    assert "with requests split as measured" in sentences[0]
    assert any(sentence.startswith("The busiest replica receives 1.2 times the mean: its p99 is ") for sentence in sentences)


def test_the_table_has_a_row_for_each_number_of_replicas_with_the_planned_one_marked(costed, bare):
    table = risk_table(costed)
    assert [record["replicas"] for record in table.records] == [row.replicas for row in costed.risk.rows]
    assert f"{costed.risk.replicas} (planned)" in {texts[0] for texts in table.texts}
    assert "missed hours a year ($)" in table.headings
    assert {"with_failures", "missed_cost_per_year"}.isdisjoint(column.key for column in risk_table(bare).columns)


def test_the_charts_show_the_probabilities_and_the_cost_of_a_year(costed, bare):
    probabilities, costs = risk_group(costed).charts
    rows, numbers = costed.risk.rows, tuple(row.replicas for row in costed.risk.rows)
    headings = {
        "all_up": "all replicas up",
        "one_lost": "one replica lost",
        "zone_lost": "largest zone lost",
        "with_failures": "with failures",
    }
    lines = {line.name: line for line in probabilities.lines}
    for key, heading in headings.items():
        assert lines[heading].xs == numbers
        assert lines[heading].ys == pytest.approx([100 * getattr(row, key) for row in rows])
    assert (probabilities.levels[0].value, probabilities.levels[0].label) == (costed.risk.replicas, "planned")
    total = costs.lines[0]
    assert total.xs[int(np.argmin(np.array(total.ys)))] == costed.risk.cheapest_replicas
    assert len(risk_group(bare).charts) == 1


def test_numbers_of_a_large_fleet_are_shown_with_the_digits_that_are_known(costed):
    """A cost of $1,234,567 that is expected, not known, and the cost of 12,345 replicas."""
    rows = tuple(dataclasses.replace(row, missed_cost_per_year=1_234_567.0) for row in costed.risk.rows)
    large = dataclasses.replace(costed, risk=dataclasses.replace(costed.risk, rows=rows, fewest_one_lost=12_345))
    sentences = list(risk_answer(large))
    assert ", 12,345 with one lost;" in sentences[1]
    assert "which costs $1,230,000; one more replica" in sentences[2]
    assert all("1,230,000" in texts for texts in risk_table(large).texts)


def test_a_cost_that_falls_up_to_the_last_number_considered_is_not_called_the_least(costed):
    first, last = costed.risk.rows[0].replicas, costed.risk.rows[-1].replicas
    sentences = [
        list(risk_answer(dataclasses.replace(costed, risk=dataclasses.replace(costed.risk, cheapest_replicas=number))))[3]
        for number in (first, last)
    ]
    assert sentences[0].startswith(f"Each more replica costs more than it saves, from {first} on, the fewest considered: $")
    assert sentences[1].startswith(f"Each more replica costs less than it saves, up to {last}, the most considered: $")


def test_one_replica_is_spoken_of_in_the_singular(costed):
    rows = tuple(dataclasses.replace(row, replicas=number) for number, row in enumerate(costed.risk.rows[:3], 1))
    one = dataclasses.replace(costed.risk, rows=rows, replicas=1, fewest_all_up=1, cheapest_replicas=1)
    sentences = list(risk_answer(dataclasses.replace(costed, risk=one)))
    assert ", 1 replica keeps the SLO with a probability of " in sentences[0]
    assert sentences[1].startswith("1 replica is the fewest that keep the SLO with a probability of 95 %")
    assert sentences[3].startswith("1 replica costs least in all: ")


def test_the_demand_of_batches_is_in_inferences(costed):
    batches = tuple(dataclasses.replace(one, batch_size=8) for one in costed.configurations)
    sentences = list(risk_answer(dataclasses.replace(costed, configurations=batches)))
    assert sentences[0].startswith("At a peak demand of 833/s to 1,200 inferences/s (90 % interval)")
    assert " up to " in sentences[1]
    assert sentences[1].endswith(" inferences/s.")
