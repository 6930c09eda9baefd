"""Plans for demands in output tokens, of results whose tokens a request are known."""

import dataclasses

import pytest

from perfkit.errors import UsageError
from perfkit.plan.configuration import plan_capacity
from perfkit.plan.evidence import gather_evidence, read_sources
from perfkit.plan.input_texts import parse_prices
from perfkit.plan.inputs import PlanInputs, parse_demands_per_s, parse_slo
from perfkit.plan.token_demand import in_requests, tokens_per_request
from perfkit.report.plan import headline
from perfkit.result.counts import Tokens
from tests.queue_results import Writer

SLO = parse_slo(["p99<300ms"])
IN_TOKENS = PlanInputs(SLO, (25_000.0,), average_demand_per_s=10_000.0, is_in_tokens=True, prices=parse_prices(["$2.50/h"]))


@pytest.fixture(scope="module")
def source(tmp_path_factory):
    return read_sources([str(Writer(tmp_path_factory.mktemp("tokens"))((20, 35, 50, 60, 70, 110), overloaded_from=100))])[0]


def with_tokens(source, each, unreported=0, label=""):
    """Evidence of the source whose answers have `each(number of the point)` output tokens."""

    def changed(number, point):
        reported = point.requests.ok - unreported
        tokens = Tokens(input=5 * reported, output=round(each(number) * reported), reported=reported, several_in_event=0)
        return point.model_copy(update={"tokens": tokens})

    points = tuple(changed(number, point) for number, point in enumerate(source.result.points))
    return gather_evidence([dataclasses.replace(source, label=label, result=source.result.model_copy(update={"points": points}))])


def test_a_demand_in_tokens_is_planned_as_the_requests_that_it_is(source):
    evidence = with_tokens(source, lambda _: 25.0)
    plan = plan_capacity(evidence, IN_TOKENS)
    same = plan_capacity(evidence, PlanInputs(SLO, (1000.0,), average_demand_per_s=400.0, prices=IN_TOKENS.prices))
    assert plan.chosen.fleet == same.chosen.fleet
    assert plan.chosen.cost_per_million == pytest.approx(same.chosen.cost_per_million)
    assert same.chosen.cost_per_million is not None
    per_tokens = same.chosen.cost_per_million / 25
    told = headline(plan)[0]
    assert "serve 25,000 output tokens/s, 1,000/s at 25 tokens a request, within p99 < 300 ms" in told
    assert f"${per_tokens:.2f} per million output tokens)" in told
    assert any("is divided by 25 output tokens a request: the lower end of 25 (95 % interval 25 to 25)" in one for one in plan.assumptions)
    assert "tokens" not in headline(same)[0]


def test_tokens_that_differ_between_the_points_have_an_interval_around_their_mean(source):
    found = tokens_per_request(with_tokens(source, lambda number: 20.0 + number % 2)[0])
    assert 20 < found.value < 21
    assert found.low is not None
    assert found.high is not None
    assert found.low < 20.3
    assert found.high > 20.7


def test_tokens_that_are_withheld_or_differ_are_refused(source):
    with pytest.raises(UsageError, match="which only results of language models have"):
        in_requests(IN_TOKENS, gather_evidence([source]))
    with pytest.raises(
        UsageError, match=r"are withheld, since only .* answers report their tokens; let the server report the usage of all"
    ):
        in_requests(IN_TOKENS, with_tokens(source, lambda _: 25.0, unreported=1))
    two = [*with_tokens(source, lambda _: 25.0, label="a"), *with_tokens(source, lambda _: 50.0, label="b")]
    with pytest.raises(UsageError, match="make 25 to 50 output tokens a request"):
        in_requests(IN_TOKENS, two)


@pytest.mark.parametrize(
    ("texts", "found"),
    [
        (["5000tok/s"], ((5000.0,), True)),
        (["6000 tokens/m", "10tok/s"], ((100.0, 10.0), True)),
        (["1000/s"], ((1000.0,), False)),
        ([], ((), False)),
    ],
)
def test_a_demand_names_its_unit(texts, found):
    assert parse_demands_per_s(texts) == found


def test_demands_of_two_units_are_refused():
    with pytest.raises(UsageError, match="give all in output tokens, such as 5000tok/s, or none"):
        parse_demands_per_s(["5000tok/s", "100/s"])


def test_the_fewest_tokens_that_the_measurement_leaves_open_divide_the_demand(source):
    scattered = with_tokens(source, lambda number: 20.0 + number % 2, label="a")
    low = tokens_per_request(scattered[0]).low
    assert low is not None
    planned = in_requests(IN_TOKENS, [*scattered, *with_tokens(source, lambda _: 21.0, label="b")])
    assert planned.demands_per_s == pytest.approx((25_000 / low,))
    assert planned.average_demand_per_s == pytest.approx(10_000 / low)
