"""Plans under limits on parts of answers: M/M/1 with a service time of 10 ms, whose p99 is 300 ms at 84.6/s, and planted times to the first token."""

import math
import re

import numpy as np
import pytest

from perfkit.errors import InconclusiveError, UsageError
from perfkit.plan.configuration import plan_capacity
from perfkit.plan.day_inputs import DayInputs
from perfkit.plan.evidence import gather_evidence, read_sources
from perfkit.plan.inputs import PlanInputs, parse_slo
from perfkit.plan.steps import parse_profile
from perfkit.report.plan import slo_text
from perfkit.report.plan_tables import points_table

RATES = (20, 35, 50, 60, 70, 80, 110)
JOINT = parse_slo(["p99<300ms,first_token.p99<500ms"])


def slow_from(rate_per_s, share=0.02, known=1.0):
    """Times to the first token of 100 ms, of which a share is 600 ms from a rate on; of so many of the answers."""

    def times_s(at_per_s, number):
        count = round(known * number)
        slow = np.arange(count) % round(1 / share) == 0 if at_per_s >= rate_per_s else np.zeros(count, dtype=bool)
        return np.where(slow, 0.6, 0.1)

    return times_s


def planned(write, first_tokens_s, slo=JOINT, day=None):
    folder = write(RATES, seconds=800, overloaded_from=100, first_tokens_s=first_tokens_s)
    return plan_capacity(gather_evidence(read_sources([str(folder)])), PlanInputs(slo, (1000.0,), day=day))


def test_the_capacity_is_at_most_the_highest_rate_that_meets_all_limits(write):
    plan = planned(write, slow_from(70))
    chosen = plan.chosen
    assert {point.rate_per_s: point.meets_slo for point in chosen.points} == {
        20: True, 35: True, 50: True, 60: True, 70: False, 80: False, 110: False,
    }  # fmt: skip
    assert (chosen.capacity.per_s, chosen.capacity.high_per_s) == (60.0, 60.0)
    assert chosen.fleet.replicas == math.ceil(1000 / 0.7 / chosen.capacity.low_per_s)
    assert "first token p99 < 500 ms" in slo_text(plan.inputs.slo)
    assert "The capacity is limited to 60.0/s, the highest measured rate that clearly meets the limits on parts of answers." in chosen.notes
    assert any("the limits on the first token are judged at the measured rates alone" in one.lower() for one in plan.assumptions)
    parts = [row[[column.key for column in points_table(plan).columns].index("parts")] for row in points_table(plan).rows]
    assert parts == ["satisfied"] * 4 + ["violated"] * 3


def test_without_that_limit_the_response_time_decides(write):
    capacity = planned(write, slow_from(70), parse_slo(["p99<300ms"])).chosen.capacity
    assert capacity.low_per_s < 84.6 < capacity.high_per_s


def test_a_limit_that_is_met_everywhere_leaves_the_capacity_to_the_response_time(write):
    """The response time is within 300 ms at 80/s and overloaded at 110/s, and the highest rate that kept up bounds the capacity."""
    capacity = planned(write, slow_from(math.inf)).chosen.capacity
    assert capacity.low_per_s < 80.0 == capacity.high_per_s


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


def test_times_that_too_many_answers_lack_are_not_taken_as_met(write):
    with pytest.raises(InconclusiveError, match=r"times of .* further requests are not known, and they decide"):
        planned(write, slow_from(70, known=0.95))


def test_results_without_such_times_are_refused(write):
    with pytest.raises(UsageError, match=r"has no time per output token, which only streams have: measure with stream: \{\}"):
        planned(write, slow_from(70), parse_slo(["p99<300ms,per_token.p99<50ms"]))


def test_the_day_and_what_ifs_are_left_out_with_their_reason(write):
    day = DayInputs(profile=parse_profile("hour,demand_per_s\n0,1000\n", "day.csv"), cold_start_s=60.0)
    plan = planned(write, slow_from(70), day=day)
    assert plan.chosen.what_if == ()
    assert "the simulated replica predicts response times alone" in plan.schedule.refusal
    assert all(way.missed_time is None for way in plan.schedule.ways)
