import pytest

from perfkit.gate.paired_decision import MetricChoice, decide_control, decide_pairs
from perfkit.stats.paired import Rule, rule_for
from tests.simulated_pairs import CLOSED, OPEN, make_pairs

RULE, STANDARD = rule_for(4), MetricChoice(is_standard=True)


def decided(pairs, choice=STANDARD, rule=RULE):
    return decide_pairs(rule, pairs, choice)


def gated(decision):
    return [(one.metric, one.load_point) for one in decision.comparisons if one.gated]


def test_a_gate_decides_only_at_its_looks():
    assert [count for count in range(1, 21) if decided(make_pairs(count, 1.5)) is not None] == [12, 16, 20]
    assert Rule().looks == (12, 16, 20)


def test_a_quick_gate_looks_once():
    quick = rule_for(4, quick=True)
    assert decided(make_pairs(9, 1.2), rule=quick) is None
    assert decided(make_pairs(10, 1.2), rule=quick).kind == "regressed"
    assert decided(make_pairs(10, noise=0.5), rule=quick).kind == "inconclusive"


def test_the_standard_profile_gates_throughput_at_saturation_and_percentiles_below_it():
    decision = decided(make_pairs(12))
    assert gated(decision) == [
        ("throughput", CLOSED), *((name, OPEN) for name in ("p50", "p95", "p99")), ("error_rate", "all load points"),
    ]  # fmt: skip
    for_information = [(one.metric, one.load_point) for one in decision.comparisons if not one.gated]
    assert for_information == [(name, CLOSED) for name in ("p50", "p95", "p99")]


def test_without_a_profile_all_metrics_are_gated_or_those_that_the_scenario_names():
    all_metrics = gated(decided(make_pairs(12), MetricChoice()))
    assert [name for name, point in all_metrics if point == CLOSED] == ["throughput", "p50", "p95", "p99"]
    chosen = gated(decided(make_pairs(12), MetricChoice(names=("throughput", "p50"))))
    assert [name for name, _ in chosen] == ["throughput", "p50", "p50", "error_rate"]


def test_the_reasons_name_what_regressed_and_the_minimum_detectable_effect():
    decision = decided(make_pairs(12, 1.2))
    assert decision.kind == "regressed"
    summary, *reasons = decision.reasons
    assert summary.startswith("After 12 pairs the candidate is worse by more than the noise band in 4 of 5 metrics. With this noise, 9 of")
    assert [reason.split(",")[0] for reason in reasons] == ["throughput", "p50", "p95", "p99"]
    assert all("+20." in reason or "+19." in reason for reason in reasons[1:])


def test_a_pair_whose_generator_could_not_keep_up_is_discarded():
    good, bad = make_pairs(11), make_pairs(1, 3.0, valid=False, codes=["late_starts"])
    assert decided([*good, *bad]) is None
    decision = decided([*good, *bad, *make_pairs(1)])
    assert decision.kind == "pass"
    assert {one.pairs for one in decision.comparisons} == {12}


def test_a_gate_with_too_many_discarded_pairs_is_invalid():
    bad = make_pairs(5, valid=False, codes=["late_starts"])
    assert decided(bad[:4]) is None
    decision = decided(bad)
    assert decision.kind == "invalid"
    sentence = "The load generator could not keep up in 5 of 5 pairs; in the last one: http, concurrency 4: Said of late_starts."
    assert decision.reasons == (sentence,)
    assert decided([*make_pairs(3), *bad]) is None


@pytest.mark.parametrize(
    ("fault", "sentence"),
    [
        ({"failed": 11}, "1.1% of the candidate's requests failed (more than 1%)"),
        ({"codes": ["not_steady"]}, "The candidate was not steady in most of its runs. http, concurrency 4: Said of not_steady."),
        ({"without": ["p99"]}, "There is no p99 at http, 70/s poisson in the candidate's run of pair 1: too few requests."),
        ({"without": ["throughput"]}, "There is no throughput at http, concurrency 4 in the candidate's run of pair 1"),
    ],
)
def test_a_candidate_that_cannot_be_measured_makes_the_gate_invalid(fault, sentence):
    decision = decided(make_pairs(12, 1.2, **fault))
    assert decision.kind == "invalid"
    assert sentence in decision.reasons[0]


def test_a_run_without_one_of_the_load_points_makes_the_gate_invalid():
    pairs = make_pairs(12)
    lacking = pairs[4].candidate.model_copy(update={"points": pairs[4].candidate.points[:1]})
    pairs[4] = pairs[4].model_copy(update={"candidate": lacking})
    decision = decided(pairs)
    assert decision.kind == "invalid"
    assert "A load point is missing in the candidate's run of pair 5" in decision.reasons[0]


def test_an_overloaded_candidate_is_a_regression_but_an_overloaded_baseline_makes_the_gate_invalid():
    assert decided(make_pairs(12, 3.0, codes=["overloaded"])).kind == "regressed"
    swapped = [
        pair.model_copy(update={"baseline": pair.candidate, "candidate": pair.baseline}) for pair in make_pairs(12, codes=["overloaded"])
    ]
    decision = decided(swapped)
    assert decision.kind == "invalid"
    assert "The baseline was overloaded in most of its runs" in decision.reasons[0]


def test_more_failures_of_the_candidate_are_a_regression_and_equal_ones_pass():
    decision = decided(make_pairs(12, failed=5))
    assert decision.kind == "regressed"
    (errors,) = [one for one in decision.comparisons if one.metric == "error_rate"]
    assert (errors.verdict, errors.estimate) == ("regressed", pytest.approx(0.005))
    assert decided([pair.model_copy(update={"baseline": pair.candidate}) for pair in make_pairs(12, failed=5)]).kind == "pass"


def test_a_regression_in_control_pairs_makes_the_gate_invalid():
    assert decide_control(make_pairs(9, kind="control"), 10, STANDARD) is None
    assert decide_control(make_pairs(10, kind="control"), 10, STANDARD).kind == "pass"
    decision = decide_control(make_pairs(10, 1.1, kind="control"), 10, STANDARD)
    assert decision.kind == "invalid"
    assert "the baseline was called slower than itself" in decision.reasons[0]
    assert decision.comparisons
