import pytest

from perfkit.gate.paired_decision import MetricChoice, decide_control, decide_pairs
from perfkit.stats.paired import Rule, rule_for

RULE, STANDARD = rule_for(4), MetricChoice(is_standard=True)


def settled(pairs, choice=STANDARD, rule=RULE):
    return decide_pairs(rule, pairs, choice)


def gated(found):
    return [(one.metric, one.load_point) for one in found.comparisons if one.gated]


def test_between_the_looks_nothing_is_asked(pairs):
    assert [count for count in range(1, 21) if settled(pairs(count, 1.5)) is not None] == [12, 16, 20]


def test_the_standard_profile_compares_throughput_at_saturation_and_times_below_it(pairs):
    found = settled(pairs(12))
    assert gated(found) == [
        ("throughput", "http, concurrency 4"),
        *((name, "http, 70/s poisson") for name in ("p50", "p95", "p99")),
        ("error_rate", "all load points"),
    ]
    informing = [(one.metric, one.load_point) for one in found.comparisons if not one.gated]
    assert informing == [(name, "http, concurrency 4") for name in ("p50", "p95", "p99")]


def test_a_scenarios_own_loads_are_compared_in_all_metrics_or_in_those_it_names(pairs):
    names = [name for name, point in gated(settled(pairs(12), MetricChoice())) if point == "http, concurrency 4"]
    assert names == ["throughput", "p50", "p95", "p99"]
    chosen = gated(settled(pairs(12), MetricChoice(asked=("throughput", "p50"))))
    assert [name for name, _ in chosen] == ["throughput", "p50", "p50", "error_rate"]


def test_the_reasons_say_what_was_found_and_what_would_be(pairs):
    found = settled(pairs(12, 1.2))
    assert found.kind == "regressed"
    assert found.reasons[0].startswith("In 12 pairs the candidate is slower beyond noise in 4 of 5 metrics. In 9 of 10 gates as noisy")
    assert len(found.reasons) == 5
    assert "+20." in found.reasons[2] or "+19." in found.reasons[2]


def test_a_pair_whose_generator_could_not_keep_up_is_not_used_whichever_arm_it_was(pairs):
    good, bad = pairs(11), pairs(1, 3.0, valid=False, codes=["late_starts"])
    assert settled([*good, *bad]) is None
    found = settled([*good, *bad, *pairs(1)])
    assert found.kind == "pass"
    assert {one.pairs for one in found.comparisons} == {12}


def test_where_most_pairs_cannot_be_used_the_gate_is_invalid(pairs):
    bad = pairs(5, valid=False, codes=["late_starts"])
    assert settled(bad[:4]) is None
    found = settled(bad)
    assert found.kind == "invalid"
    assert "In 5 of 5 pairs the load generator could not keep up, last so: http, concurrency 4: Said of late_starts." in found.reasons[0]
    assert settled([*pairs(3), *bad]) is None


@pytest.mark.parametrize(
    ("fault", "sentence"),
    [
        ({"failed": 11}, "1.1% of the candidate's requests failed, more than 1%"),
        ({"codes": ["not_steady"]}, "The candidate was not steady in most of its runs: http, concurrency 4: Said of not_steady."),
        ({"without": ["p99"]}, "The candidate's run of pair 1 has no p99 at http, 70/s poisson, since too few requests carry it"),
        ({"without": ["throughput"]}, "The candidate's run of pair 1 has no throughput at http, concurrency 4"),
    ],
)
def test_what_makes_a_gate_invalid_is_said(pairs, fault, sentence):
    found = settled(pairs(12, 1.2, **fault))
    assert found.kind == "invalid"
    assert sentence in found.reasons[0]


def test_a_load_point_that_one_run_lacks_is_not_passed_over(pairs):
    whole = pairs(12)
    lacking = whole[4].candidate.model_copy(update={"points": whole[4].candidate.points[:1]})
    whole[4] = whole[4].model_copy(update={"candidate": lacking})
    found = settled(whole)
    assert found.kind == "invalid"
    assert "The candidate's run of pair 5 lacks a load point" in found.reasons[0]


def test_a_candidate_that_is_overloaded_by_what_the_baseline_carries_is_a_result(pairs):
    assert settled(pairs(12, 3.0, codes=["overloaded"])).kind == "regressed"
    turned = [pair.model_copy(update={"baseline": pair.candidate, "candidate": pair.baseline}) for pair in pairs(12, codes=["overloaded"])]
    found = settled(turned)
    assert found.kind == "invalid"
    assert "The baseline was overloaded in most of its runs" in found.reasons[0]


def test_a_few_failures_more_are_a_regression(pairs):
    found = settled(pairs(12, failed=5))
    assert found.kind == "regressed"
    (errors,) = [one for one in found.comparisons if one.metric == "error_rate"]
    assert (errors.verdict, errors.estimate) == ("regressed", pytest.approx(0.005))


def test_as_many_failures_in_both_are_not(pairs):
    both = [pair.model_copy(update={"baseline": pair.candidate}) for pair in pairs(12, failed=5)]
    assert settled(both).kind == "pass"


def test_control_pairs_that_alarm_make_everything_invalid(pairs):
    assert decide_control(pairs(9, kind="control"), 10, STANDARD) is None
    assert decide_control(pairs(10, kind="control"), 10, STANDARD).kind == "pass"
    found = decide_control(pairs(10, 1.1, kind="control"), 10, STANDARD)
    assert found.kind == "invalid"
    assert "called slower than itself" in found.reasons[0]
    assert found.comparisons


def test_a_quick_gate_looks_once(pairs):
    quick = rule_for(4, quick=True)
    assert settled(pairs(10, 1.2), rule=quick).kind == "regressed"
    assert settled(pairs(10, noise=0.5), rule=quick).kind == "inconclusive"
    assert settled(pairs(9, 1.2), rule=quick) is None
    assert Rule().looks == (12, 16, 20)
