"""The ranking of configurations: M/M/1 servers that are equal, or differ by a known factor."""

import dataclasses
import itertools
import math

import pytest

from perfkit.errors import UsageError
from perfkit.figures.resources import GpuFigures
from perfkit.plan import configuration
from perfkit.plan.capacity import Energy
from perfkit.plan.configuration import plan_capacity
from perfkit.plan.evidence import gather_evidence, read_sources
from perfkit.plan.fleet_risk import Splitting
from perfkit.plan.input_texts import parse_prices
from perfkit.plan.inputs import PlanInputs, RiskInputs, parse_constraints, parse_slo
from perfkit.plan.ranking import rank_configurations
from perfkit.report.plan import headline, plan_notes
from perfkit.report.plan_ranking import front_group, ranking_answer, ranking_table
from perfkit.stats.ratio_interval import Estimate
from tests.queue_results import Writer

RATES = (20, 35, 50, 60, 70, 80, 110)
GIB = 2**30


@pytest.fixture(scope="module")
def evidence(tmp_path_factory):
    """Two restarts each of `a` and `b`, which are equal, and of `slow`, whose service times are 1.6 times as long."""
    write, number = Writer(tmp_path_factory.mktemp("ranked")), itertools.count()
    settings = (("a", 0.0, RATES), ("b", 0.0, RATES), ("slow", 0.6, (10, 20, 30, 40, 45, 70)))
    named = [
        f"{name}={write(rates, restart=slower + shift, seconds=200, seed=next(number), overloaded_from=min(100, rates[-1]))}"
        for name, slower, rates in settings
        for shift in (0.01, -0.01)
    ]
    return gather_evidence(read_sources(named))


def planned(evidence, *prices, constraints=(), demand_per_s=1000.0, **options):
    options |= {"prices": parse_prices(prices), "constraints": parse_constraints(constraints)}
    return plan_capacity(evidence, PlanInputs(parse_slo(["p99<300ms"]), (demand_per_s,), **options))


def ranked_again(plan, evidence, *constraints):
    """The plan with other evidence and constraints: the capacities, which take long to compute, stay the same."""
    inputs = dataclasses.replace(plan.inputs, constraints=parse_constraints(constraints))
    ranking = rank_configurations(plan.configurations, evidence, inputs, compares_costs=plan.compares_costs)
    return dataclasses.replace(plan, inputs=inputs, ranking=ranking, cheapest=ranking[0].name)


def with_gpus(evidence, gpus_of):
    """The evidence with GPUs, and with energies that alternate around 2 J from repetition to repetition."""
    changed = []
    for one in evidence:
        points = tuple(
            dataclasses.replace(
                point,
                measured=point.measured.model_copy(
                    update={"gpus": gpus_of(one.name), "energy_per_inference_j": 2.0 + 0.2 * (point.run % 2)}
                ),
            )
            for point in one.open_points
        )
        changed.append(dataclasses.replace(one, open_points=points))
    return changed


@pytest.fixture(scope="module")
def plan(evidence):
    return planned(evidence, "$2.50/h")


def test_the_table_of_several_has_ranks_and_explains_them(plan):
    table = ranking_table(plan)
    assert (table.title, table.headings[0]) == ("Ranking", "rank")
    assert table.note.startswith(
        "Equal ranks: the data cannot tell them apart. Rank 3 means that two others are cheaper, each with a probability of at least 98.3 %"
    )


def test_equal_configurations_share_a_rank_and_a_slower_one_does_not(plan):
    ranks = {one.name: one.rank for one in plan.ranking}
    assert ranks == {"a": 1, "b": 1, "slow": 3}
    assert plan.ranking[0].name == plan.cheapest
    assert plan.ranking[2].first_is_cheaper > 0.99
    assert 0.05 < plan.ranking[1].first_is_cheaper < 0.95


def test_the_answer_calls_ties_indistinguishable(plan):
    first, tied, slow = plan.ranking
    (sentence,) = (sentence for sentence in headline(plan) if "indistinguishable" in sentence)
    assert sentence.startswith(f"{first.name} and {tied.name} are indistinguishable in cost: $")
    assert "98.3 % would be needed among 3 configurations" in sentence
    assert any(one.startswith("Cheapest or tied with it: ") and f"cost more: {slow.name} $" in one for one in headline(plan))
    assert not any("is the cheapest" in one for one in headline(plan))


@pytest.mark.parametrize(
    ("times_as_much", "run_sd", "remedy"),
    [
        (2.4, 0.0, "About 2.4 times as many restarts, each as long as now, would tell them apart: 5 of {} (now 2) and 5 of {} (now 2); or about 2.4 times as long windows."),
        (2.4, 0.5, "About 2.4 times as many restarts, each as long as now, would tell them apart: 5 of {} (now 2) and 5 of {} (now 2)."),
        (math.inf, 0.0, "Their costs are too close for any reasonable measurement: choose by other figures."),
        (1.0, 0.0, "Their capacities differ, but not their costs at this demand."),
    ],
)  # fmt: skip
def test_the_answer_says_how_much_more_measuring_would_tell_a_tie(plan, times_as_much, run_sd, remedy):
    """Longer windows do not help against restarts that vary much; without variation between restarts they do as well as restarts."""
    first, tied, slow = plan.ranking
    configurations = tuple(
        dataclasses.replace(
            one,
            curves={
                name: dataclasses.replace(curve, spread=dataclasses.replace(curve.spread, run_sd=run_sd))
                for name, curve in one.curves.items()
            },
        )
        for one in plan.configurations
    )
    ranking = (first, dataclasses.replace(tied, times_as_much=times_as_much), slow)
    changed = dataclasses.replace(plan, configurations=configurations, ranking=ranking)
    (sentence,) = (sentence for sentence in ranking_answer(changed) if "indistinguishable" in sentence)
    assert sentence.endswith(f" needed among 3 configurations. {remedy.format(first.name, tied.name)}")


def test_without_prices_the_numbers_of_replicas_are_compared(evidence):
    plan = planned(evidence)
    assert [one.rank for one in plan.ranking] == [1, 1, 3]
    assert any("indistinguishable in number of replicas" in one for one in headline(plan))
    assert "cost_per_hour" not in [column.key for column in ranking_table(plan).columns]


def test_a_lower_price_decides_where_the_capacities_are_equal(evidence):
    plan = planned(evidence, "$2.50/h", "b=$1.50/h")
    assert [(one.name, one.rank) for one in plan.ranking][:2] == [("b", 1), ("a", 2)]
    assert not any("indistinguishable" in one for one in headline(plan))


def test_the_replicas_interval_ends_at_the_planned_number(plan):
    for one in plan.ranking:
        replicas, capacity = one.figures["replicas"], one.figures["capacity"]
        assert replicas.value == replicas.high >= replicas.low
        assert replicas.low == pytest.approx(1000 / (0.7 * capacity.high), abs=1.5)


def test_a_measured_skew_counts_for_the_whole_interval_of_the_replicas(evidence):
    skew = RiskInputs(splitting=Splitting(shares=(1.5, 1.0, 0.5)))
    (one,) = planned(evidence[:1], risk=skew).ranking
    assert one.figures["replicas"].low == pytest.approx(1.5 * 1000 / (0.7 * one.figures["capacity"].high), abs=1.5)


def test_a_constraint_on_what_the_plan_decides_is_judged_by_the_planned_number(plan, evidence):
    first = plan.ranking[0].figures["replicas"]
    assert first.low < first.value
    fewer = ranked_again(plan, evidence, f"replicas<={first.value - 1:.0f}", f"price<={2.5 * first.value:.2f}/h")
    verdicts = {one.name: one.verdict for one in fewer.ranking}
    assert verdicts[plan.ranking[0].name] == "violated"
    assert "cannot be told" not in verdicts.values()


def test_a_violated_constraint_takes_the_rank_away(plan, evidence):
    sizes = {"a": 50 * GIB, "b": 30 * GIB, "slow": 10 * GIB}
    gpus = with_gpus(evidence, lambda name: (GpuFigures("x", "H", "nvml", memory_used_max_bytes=sizes[name]),))
    plan = ranked_again(plan, gpus, "gpu_memory<40GiB")
    assert [(one.name, one.rank, one.verdict) for one in plan.ranking] == [("b", 1, "holds"), ("slow", 2, "holds"), ("a", None, "violated")]
    assert plan.cheapest == "b"
    assert "b satisfies the constraints: gpu_memory < 40.0 GiB." in headline(plan)
    records = {record["name"]: record for record in ranking_table(plan).records}
    assert (records["a"]["constraints"], records["b"]["constraints"]) == ("violated: gpu_memory < 40.0 GiB", "all hold")
    assert records["slow"]["gpu_memory_bytes"] == 10 * GIB


def test_a_constraint_within_the_interval_cannot_be_told(plan, evidence):
    """Energies of 2.0 and 2.2 J at every rate: the interval of the mean of two reaches over the ln ratio of 0.095."""
    gpus = with_gpus(evidence, lambda _: (GpuFigures("x", "H", "nvml", power_mean_w=100.0),))
    with_energy = tuple(dataclasses.replace(one, energy=Energy(2.1, None)) for one in plan.configurations)
    plan = dataclasses.replace(plan, configurations=with_energy)
    first = ranked_again(plan, gpus).ranking[0]
    energy = first.figures["energy"]
    sd = math.log(2.2 / 2.0) / math.sqrt(2)
    assert energy.high / energy.value == pytest.approx(math.exp(1.94 * sd / math.sqrt(2)), rel=0.01)  # t of six pairs' 6 degrees: 1.943
    limits = {"holds": 2 * energy.high, "cannot be told": energy.value * 1.01, "violated": energy.low / 2}
    for verdict, limit_j in limits.items():
        constrained = ranked_again(plan, gpus, f"energy<{limit_j:.6f}J")
        assert {one.name: one.verdict for one in constrained.ranking}[first.name] == verdict


def test_the_errors_are_those_of_the_rates_up_to_the_capacity(plan, evidence):
    """The 300 requests that fail in each window at 110/s are not counted; at the other rates none of some thousands fails."""
    changed = [dataclasses.replace(one, open_points=tuple(map(_failing_above_100, one.open_points))) for one in evidence]
    for one in ranked_again(plan, changed, "error_rate<0.1%").ranking:
        errors = one.figures["error_rate"]
        assert (errors.value, errors.low, one.verdict) == (0.0, 0.0, "holds")
        assert 0.0 < errors.high < 0.001


def _failing_above_100(point):
    requests = point.measured.requests
    failed = 300 if point.rate_per_s > 100 else 0
    changed = requests.model_copy(update={"ok": requests.ok - failed, "rejected": failed})
    return dataclasses.replace(point, measured=point.measured.model_copy(update={"requests": changed}))


def test_what_was_not_measured_cannot_be_told(plan, evidence):
    plan = ranked_again(plan, evidence, "gpu_memory<40GiB")
    assert {one.verdict for one in plan.ranking} == {"cannot be told"}
    assert (
        f"No configuration is known to satisfy the constraints; the plan is for {plan.cheapest}, for which gpu_memory < 40.0 GiB cannot be told: "
        "gpu_memory was not measured."
    ) in headline(plan)


def test_a_limit_that_cannot_be_told_has_its_reason(plan, evidence):
    """The capacity's interval includes its estimate; energies that were measured once at each rate have no interval."""
    first = plan.ranking[0]
    inside = f"capacity>{first.figures['capacity'].value:.4f}/s"
    (sentence, *_) = ranking_answer(ranked_again(plan, evidence, inside, "gpu_memory<40GiB"))
    assert sentence.endswith(" cannot be told: the interval of capacity includes the limit, and gpu_memory was not measured.")
    untold = dataclasses.replace(
        first,
        verdict="cannot be told",
        judgements=(("energy < 3 J", "cannot be told"),),
        figures={**first.figures, "energy": Estimate(2.0, None, None)},
    )
    inputs = dataclasses.replace(plan.inputs, constraints=parse_constraints(["energy<3J"]))
    (sentence, *_) = ranking_answer(dataclasses.replace(plan, inputs=inputs, ranking=(untold, *plan.ranking[1:])))
    assert sentence.endswith(" energy < 3 J cannot be told: the interval of energy is not known.")


def test_a_constraint_on_a_percentile_without_a_limit_is_judged_by_its_curve(evidence):
    (one,) = planned(evidence[:1], constraints=("p90<10s",)).ranking
    assert one.verdict == "holds"
    assert one.figures["p50"].value < one.figures["p90"].value < one.figures["p95"].value


def test_a_limit_on_the_price_needs_prices(evidence, monkeypatch):
    monkeypatch.setattr(configuration, "plan_configuration", lambda *_: pytest.fail("a capacity was fitted"))
    with pytest.raises(UsageError, match="--constraint: a limit on the price needs the price of a replica; add --price"):
        planned(evidence[:1], constraints=("price<20/h",))


def test_the_front_has_the_interval_of_the_time_and_of_the_cost(plan):
    (chart,) = front_group(plan).charts
    for one in plan.ranking:
        price, p99 = one.figures["price"], one.figures["p99"]
        intervals = [interval for line in chart.lines if line.name.split(",")[0] == one.name for interval in line.intervals]
        (planned,) = [interval for interval in intervals if interval and interval[0] < interval[1]]
        assert planned == pytest.approx((price.low, price.high, p99.low / 1e6, p99.high / 1e6))
    (front,) = [line for line in chart.lines if line.name == "Pareto front"]
    assert len(front.xs) > 1
    assert list(front.ys) == sorted(front.ys, reverse=True)
    (chosen,) = [line for line in chart.lines if line.name == f"{plan.cheapest}, planned"]
    assert chosen.labels[0].startswith(f"{plan.chosen.fleet.replicas} replicas, headroom ")


@pytest.mark.parametrize(("demand", "is_noted"), [(2e7, True), (800_000.0, True), (50_000.0, False)])
def test_a_number_that_no_one_means_has_a_note(evidence, demand, is_noted):
    notes = dict(plan_notes(planned(evidence[:1], demand_per_s=demand))).get("Notes", ())
    assert any("check the unit of --demand" in sentence for sentence in notes) is is_noted
