"""Plans under limits on parts of answers: M/M/1 with a service time of 10 ms, whose p99 is 300 ms at 84.6/s, and planted times of tokens."""

import math
import pathlib
import re

import numpy as np
import pytest

from perfkit.errors import InconclusiveError, UsageError
from perfkit.plan.configuration import plan_capacity
from perfkit.plan.day_inputs import DayInputs
from perfkit.plan.evidence import gather_evidence, read_sources
from perfkit.plan.inputs import PlanInputs, parse_slo
from perfkit.plan.steps import parse_profile
from perfkit.report.plan import headline, slo_text
from perfkit.report.plan_tables import points_table

RATES = (20, 35, 50, 60, 70, 80, 110)
PER_TOKEN = parse_slo(["p99<300ms,per_token.p99<50ms"])
JOINT = parse_slo(["p99<300ms,first_token.p99<500ms"])


def slow_from(rate_per_s, share=0.02):
    """Times to the first token of 100 ms, of which a share is 600 ms from a rate on."""

    def times_s(at_per_s, number):
        slow = np.arange(number) % round(1 / share) == 0 if at_per_s >= rate_per_s else np.zeros(number, dtype=bool)
        return np.where(slow, 0.6, 0.1)

    return times_s


def slow_at(*rates_per_s):
    """Times to the first token of 600 ms at these rates, and otherwise of 100 ms."""
    return lambda at_per_s, number: np.full(number, 0.6 if at_per_s in rates_per_s else 0.1)


def measured(write, first_tokens_s, rates=RATES, seconds=800, parts_s=(), **options):
    return str(write(rates, seconds=seconds, overloaded_from=100, parts_s={"first_token_time": first_tokens_s, **dict(parts_s)}, **options))


def plan_of(*sources, slo=JOINT, **inputs):
    return plan_capacity(gather_evidence(read_sources(sources)), PlanInputs(slo, (1000.0,), **inputs))


def planned(write, first_tokens_s, slo=JOINT, day=None, **options):
    return plan_of(measured(write, first_tokens_s, **options), slo=slo, day=day)


def test_the_capacity_is_at_most_the_highest_rate_that_meets_all_limits(write):
    plan = planned(write, slow_from(70))
    chosen = plan.chosen
    assert {point.rate_per_s: point.meets_slo for point in chosen.points} == {
        20: True, 35: True, 50: True, 60: True, 70: False, 80: False, 110: False,
    }  # fmt: skip
    assert (chosen.capacity.per_s, chosen.capacity.high_per_s) == (60.0, 70.0)
    assert chosen.fleet.replicas == math.ceil(1000 / 0.7 / chosen.capacity.low_per_s)
    assert "first token p99 < 500 ms" in slo_text(plan.inputs.slo)
    assert (
        "The capacity is limited to 60.0/s, the highest measured rate that clearly meets the limits on parts of answers, and the lowest that "
        "clearly misses them is 70.0/s: measure more rates above it."
    ) in chosen.notes
    assert any("the limits on the first token are judged at the measured rates alone" in one.lower() for one in plan.assumptions)
    parts = [row[[column.key for column in points_table(plan).columns].index("parts")] for row in points_table(plan).rows]
    assert parts == ["satisfied"] * 4 + ["violated"] * 3


def test_without_that_limit_the_response_time_decides(write):
    capacity = planned(write, slow_from(70), parse_slo(["p99<300ms"])).chosen.capacity
    assert capacity.low_per_s < 84.6 < capacity.high_per_s


def test_a_limit_that_is_met_everywhere_leaves_the_capacity_to_the_response_time(write):
    """The plan uses no rate above 80/s, the highest that kept up, but the capacity may lie above."""
    chosen = planned(write, slow_from(math.inf)).chosen
    assert (chosen.capacity.low_per_s < 80, chosen.capacity.per_s, chosen.capacity.high_per_s > 84.6) == (True, 80.0, True)
    assert any("limits on parts of answers, and none clearly misses them: measure more rates above it." in note for note in chosen.notes)


def test_configurations_whose_capacities_lie_between_the_same_rates_are_not_ranked_by_the_rates_that_were_measured(write):
    """Both miss the limit from 70/s on; of one that rate was measured, of the other 69/s."""
    tens, nines = (measured(write, slow_from(70), rates=(20, 30, 40, 50, rate, 80, 110)) for rate in (70, 69))
    plan = plan_of(f"tens={tens}", f"nines={nines}")
    capacities = {one.name: one.capacity for one in plan.configurations}
    assert (capacities["tens"].per_s, capacities["tens"].high_per_s) == (50.0, 70.0)
    assert (capacities["nines"].per_s, capacities["nines"].high_per_s) == (69.0, 80.0)
    assert {one.name: one.rank for one in plan.ranking} == {"nines": 1, "tens": 1}
    (sentence,) = (one for one in headline(plan) if "indistinguishable" in one)
    assert "The capacity of nines and of tens is known only to lie between two measured rates: measure more rates" in sentence


def test_a_configuration_whose_capacity_is_higher_wherever_it_lies_is_ranked_first(write):
    low, high = (measured(write, slow_from(rate)) for rate in (35, 70))
    plan = plan_of(f"low={low}", f"high={high}")
    assert {one.name: one.rank for one in plan.ranking} == {"high": 1, "low": 2}
    replicas = {one.name: one.figures["replicas"] for one in plan.ranking}
    assert replicas["low"].low == pytest.approx(1000 / 0.7 / 35, rel=0.1), "at its lowest it needs those of the rate that misses the limit"


def test_a_rate_that_meets_a_limit_unclearly_is_not_planned_with(write):
    """At 60/s exactly the allowed share, 1 %, is slow, and at 70/s all are."""
    first_tokens_s = slow_from(60, share=0.01)
    plan = planned(write, lambda rate, number: np.full(number, 0.6) if rate >= 70 else first_tokens_s(rate, number))
    assert {point.rate_per_s: point.meets_slo for point in plan.chosen.points if 50 <= point.rate_per_s <= 70} == {
        50: True, 60: None, 70: False,
    }  # fmt: skip
    assert plan.chosen.capacity.per_s == 50.0


def test_where_all_rates_are_unclear_the_same_ones_are_proposed_for_longer(write):
    with pytest.raises(InconclusiveError, match=r"may be missed, such as 20.0/s \(the first token's p99 ") as caught:
        planned(write, slow_from(0, share=0.01))
    proposed = re.search(r"rate: \[(.*?)\].*measure.duration=(\d+)s .*measure.repetitions=(\d+)", str(caught.value))
    assert proposed is not None
    assert proposed[1] == "20, 35, 50, 60, 70, 80, 110"
    assert int(proposed[2]) * int(proposed[3]) >= 10 * 800


def test_a_rate_is_judged_as_a_run_judges_it(write):
    """All requests in the log have a time to the first token, also those that timed out: none of these times is unknown."""
    points = planned(write, slow_from(70), timed_out=40).chosen.points
    assert [point.parts.verdict for point in points] == ["satisfied"] * 4 + ["violated"] * 3
    assert not any("not known" in point.parts.reason or "unknown" in point.parts.reason for point in points)


@pytest.mark.parametrize(("counted", "timed_out"), [("per_token_unknown", 0), ("per_token_cut_off", 800)])
def test_times_per_token_that_too_many_requests_lack_are_not_taken_as_met(write, counted, timed_out):
    """Of each 20th of 16,000 requests at 20/s the time per token is not known, of streams that were cut off without an ok answer."""
    with pytest.raises(InconclusiveError, match=r"the times of 800 further requests are not known, and they decide"):
        planned(
            write, slow_from(70), PER_TOKEN, parts_s={"time_per_output_token": lambda _, number: np.full(number - number // 20, 0.02)},
            counts=lambda number: {counted: number // 20, "tokens_reported": number}, timed_out=timed_out,
        )  # fmt: skip


def test_where_the_target_was_not_steady_a_verdict_must_be_that_of_both_halves(write):
    """In each of ten repetitions at 60/s 1/120 of the first half is slow, less than the percentile allows, and 1/30 of the second."""

    def first_tokens_s(rate, number):
        places = np.arange(number)
        is_slow = places % np.where(places < number / 2, 120, 30) == 0 if rate == 60 else np.full(number, rate > 60)
        return np.where(is_slow, 0.6, 0.1)

    plans = [planned(write, first_tokens_s, seconds=80, repetitions=10, not_steady=rates) for rates in ((), (60,))]
    steady, by_rate = ({point.rate_per_s: point for point in plan.chosen.points} for plan in plans)
    assert (steady[60].meets_slo, steady[60].parts.verdict) == (False, "violated")
    assert (by_rate[60].meets_slo, by_rate[60].parts.verdict) == (None, "inconclusive")
    assert by_rate[60].parts.reason.endswith("and this is so in one half of the window only")


def test_a_rate_that_is_not_valid_does_not_bound_the_capacity(write):
    capacity = planned(write, slow_at(35, 70, 80, 110), invalid=(35,)).chosen.capacity
    assert (capacity.per_s, capacity.high_per_s) == (60.0, 70.0)


def test_a_limit_that_is_missed_at_the_lowest_rate_alone_is_refused_in_plain_words(write):
    with pytest.raises(InconclusiveError, match=r"they are missed, such as 20.0/s \(.*\), but at higher ones: the measurements"):
        planned(write, slow_at(20))


@pytest.mark.parametrize(
    ("slo", "words"),
    [
        ("first_response.p99<1s", "first_response is for api: v2; use first_token or per_token"),
        ("per_token.p99<50ms", "no answer has per_token: see the warnings of the results, or leave out its limit"),
    ],
)
def test_results_without_such_times_are_refused(write, slo, words):
    with pytest.raises(UsageError) as caught:
        planned(write, slow_from(70), parse_slo([f"p99<300ms,{slo}"]))
    assert str(caught.value).endswith(words)


def test_results_that_are_no_streams_or_lack_their_log_are_refused_each_with_its_reason(write):
    with pytest.raises(UsageError, match=r"only streams have first_response: measure with stream: \{\}, or leave out its limit"):
        plan_of(str(write(RATES)), slo=parse_slo(["p99<300ms,first_response.p99<1s"]))
    folder = measured(write, slow_from(70))
    pathlib.Path(folder, "latency.hlog").unlink()
    with pytest.raises(UsageError, match=r"latency.hlog is missing, and a limit on first_token needs it"):
        plan_of(folder)


def test_the_day_and_what_ifs_are_left_out_with_their_reason(write):
    day = DayInputs(profile=parse_profile("hour,demand_per_s\n0,1000\n", "day.csv"), cold_start_s=60.0)
    plan = planned(write, slow_from(70), day=day)
    assert plan.chosen.what_if == ()
    assert "the simulated replica predicts response times alone" in plan.schedule.refusal
    assert all(way.missed_time is None for way in plan.schedule.ways)
