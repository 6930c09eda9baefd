import numpy as np
import pytest
from scipy.stats import binom

from perfkit.figures.resources import BusyProcess, OtherProcesses
from perfkit.gate.arm import Arm
from perfkit.gate.metrics import Metric, MetricChoice, PairedValues
from perfkit.gate.paired import rule_for
from perfkit.gate.paired_decision import decide_control, decide_pairs, judge, why_unmeasurable, why_unmeasured
from perfkit.gate.pairs import ArmRun
from perfkit.gate.verdict import GeneratorLoad
from perfkit.scenario.model import Scenario
from tests.simulated_pairs import CLOSED, OPEN, disturbed, make_pairs, make_run
from tests.stored_results import result

RULE, STANDARD = rule_for(4), MetricChoice(is_standard=True)


def decided(pairs, choice=STANDARD, rule=RULE):
    return decide_pairs(rule, pairs, choice)


def gated(decision):
    return [(one.metric, one.load_point) for one in decision.comparisons if one.gated]


def test_a_gate_decides_only_at_its_looks():
    def decided_at(factor):
        return [count for count in range(1, 21) if decided(make_pairs(count, factor)) is not None]

    assert decided_at(1.5) == [*range(5, 12), 12, 16, 20]
    assert decided_at(1.04) == [7, 12, 16, 20]  # slower than the band, and within the margins


def test_a_gross_regression_is_told_once_both_orders_have_occurred():
    pairs = make_pairs(9, 1.2)
    one_order = [pair.model_copy(update={"first": "baseline"}) for pair in pairs[:8]]
    assert [count for count in range(1, 9) if decided(one_order[:count]) is not None] == []
    other = pairs[8].model_copy(update={"first": "candidate"})
    decision = decided([*one_order, other])
    assert decision.kind == "regressed"
    assert decided([*one_order[:4], other]).kind == "regressed"
    assert decided([*one_order[:3], other]) is None


@pytest.mark.parametrize(
    ("baseline", "candidate", "decided_at"),
    [
        (0, 2, [5, 6, 7, 8, 9, 10, 11, 12]),
        (0, 3, [6, 7, 8, 9, 10, 11, 12]),
        (0, 12, [12]),  # exact whatever other processes do, since the order is random
        (12, 0, [5, 6, 7, 8, 9, 10, 11, 12]),
        (12, 12, [5, 6, 7, 8, 9, 10, 11, 12]),
    ],
)
def test_an_early_look_counts_unless_others_disturbed_the_candidate_alone_in_most_pairs(baseline, candidate, decided_at):
    pairs = make_pairs(12, 1.2)
    pairs = [*disturbed(pairs[:baseline], 0.1, ["baseline"]), *pairs[baseline:]]
    pairs = [*disturbed(pairs[:candidate], 0.1, ["candidate"]), *pairs[candidate:]]
    assert [count for count in range(1, 13) if decided(pairs[:count]) is not None] == decided_at


def test_the_interval_beside_an_early_verdict_says_the_same():
    decision = decided(make_pairs(5, 1.2))
    throughput = next(one for one in decision.comparisons if one.metric == "throughput")
    assert decision.kind == "regressed"
    assert decision.reasons[0].startswith("After 5 pairs the candidate is worse by more than the noise band in 1 of 5 metrics.")
    assert (throughput.verdict, throughput.adjusted_p, throughput.confidence) == ("regressed", 0.01, 1 - 2 * 0.0025)
    assert throughput.interval[0] < 1 / 1.2 < throughput.interval[1] < 1 / 1.1


def test_a_gate_with_few_pairs_has_one_full_look():
    few = rule_for(4, 10)
    assert decided(make_pairs(9, 1.04), rule=few) is None
    assert decided(make_pairs(10, 1.04), rule=few).kind == "regressed"
    assert decided(make_pairs(10, noise=0.5), rule=few).kind == "inconclusive"


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


def test_a_faster_candidate_passes_and_its_reasons_name_what_improved():
    decision = decided(make_pairs(12, 0.8))
    assert decision.kind == "pass"
    summary, *reasons = decision.reasons
    assert summary.startswith("After 12 pairs all 5 metrics are within their margins, and 4 of them improved.")
    assert [reason.split(",")[0] for reason in reasons] == ["throughput", "p50", "p95", "p99"]
    assert len(decided(make_pairs(12)).reasons) == 1


def test_a_pair_whose_generator_could_not_keep_up_is_discarded():
    good, bad = make_pairs(11), make_pairs(1, 3.0, valid=False, codes=["generator_bound"])
    assert decided([*good, *bad]) is None
    decision = decided([*good, *bad, *make_pairs(1)])
    assert decision.kind == "pass"
    assert {one.pairs for one in decision.comparisons} == {12}


def test_a_pair_that_other_processes_disturbed_counts():
    assert decided(disturbed(make_pairs(12), 0.0)).kind == "pass"
    assert decided(disturbed(make_pairs(12, 1.1), 0.3)).kind == "regressed"


def test_what_the_generator_may_hide_widens_the_limit_of_a_pass():
    pairs = make_pairs(12, 1.03)  # within the margin of 5 %, but beyond the band
    (before,) = [one for one in decided(pairs).comparisons if one.metric == "p50" and one.gated]
    (after,) = [one for one in decided(disturbed(pairs, 0.5)).comparisons if one.metric == "p50" and one.gated]
    assert after.estimate == before.estimate
    assert after.interval[0] == before.interval[0]
    assert after.interval[1] - 1 == pytest.approx(2 * (before.interval[1] - 1), rel=1e-3)  # a mean of two pairs
    assert after.generator_share == 0.5
    unchanged = make_pairs(20, noise=0.03)
    assert decided(unchanged).kind == "pass"
    assert decided(disturbed(unchanged, 0.6)).kind == "inconclusive"
    nothing_known = decided(disturbed(make_pairs(20, 0.5), 0.95))
    assert nothing_known.kind == "inconclusive"
    assert {one.interval[1] for one in nothing_known.comparisons if one.gated and one.metric in ("p50", "p95", "p99")} == {None}


def test_few_disturbed_runs_hide_nothing():
    pairs = make_pairs(12)
    few = [*disturbed(pairs[:3], 0.9), *pairs[3:]]
    assert {one.generator_share for one in decided(few).comparisons} == {0.0}
    assert decided(few).kind == "pass"


def test_pairs_that_are_mostly_the_generators_say_nothing_for_a_pass():
    slower, hidden = make_pairs(14, 1.2, noise=0.001), make_pairs(6, 1.0, noise=0.001)
    (p50,) = [one for one in decided([*slower, *disturbed(hidden, 0.9)]).comparisons if one.metric == "p50" and one.gated]
    assert (p50.pairs, p50.verdict) == (20, "regressed")
    assert p50.interval[1] == pytest.approx(1.2, abs=0.01)  # of the 14 pairs alone; the others hold the estimate down
    unchanged = make_pairs(20)
    assert decided([*unchanged[:12], *disturbed(unchanged[12:], 0.95)]).kind == "pass"
    assert decided([*unchanged[:5], *disturbed(unchanged[5:], 0.95)]).kind == "inconclusive"  # 2^-5 is more than a third of 5 %


@pytest.mark.parametrize("share", [0.4, 0.8])
def test_a_candidate_at_its_margin_passes_in_at_most_one_of_twenty_gates_whatever_others_disturb(share):
    gates, pairs, metric = 600, RULE.looks[-1], Metric("p99", OPEN, "ns", 0.10)
    rng = np.random.default_rng(23)
    servers = np.exp(rng.normal(0, 0.01, (2, gates, pairs))) * np.array([1.0, 1.10])[:, None, None]
    both = rng.random((gates, pairs)) < 0.2  # a neighbour of minutes: it disturbs both runs of a pair
    generators = both * share / (1 - share)
    figures = servers + generators
    shares = (generators / figures).max(axis=0)

    def passes(gate):
        base, other = figures[:, gate]
        looks = (PairedValues(metric, tuple(base[:count]), tuple(other[:count]), tuple(shares[gate, :count])) for count in RULE.looks)
        return any(judge(RULE, [one]).passed[0] for one in looks)

    most = int(binom.ppf(0.9999, gates, RULE.pass_rate))  # more often only in one of 10,000 sets of such gates
    assert sum(map(passes, range(gates))) <= most


def test_a_gate_whose_time_is_over_decides_from_the_pairs_that_it_has_or_measures_the_fewest():
    assert decide_pairs(RULE, make_pairs(9), STANDARD, time_is_over=True) is None
    assert decide_pairs(RULE, make_pairs(13), STANDARD) is None
    assert decide_pairs(RULE, make_pairs(13), STANDARD, time_is_over=True).kind == "pass"
    assert decide_pairs(RULE, make_pairs(13, 1.2), STANDARD, time_is_over=True).kind == "regressed"
    assert decide_pairs(RULE, make_pairs(13, noise=0.5), STANDARD, time_is_over=True).kind == "inconclusive"


def test_a_gate_with_too_many_discarded_pairs_is_invalid():
    bad = make_pairs(5, valid=False, codes=["generator_bound"])
    assert decided(bad[:4]) is None
    decision = decided(bad)
    assert decision.kind == "invalid"
    sentence = "The load generator could not keep up in 5 of 5 pairs; in the last one: http, concurrency 4: Said of generator_bound."
    assert decision.reasons == (sentence,)
    assert decided([*make_pairs(3), *bad]) is None


def test_pairs_in_which_the_candidate_starts_slowly_count():
    warm, cold, bound = make_pairs(12), *(make_pairs(8, 3.0, valid=False, codes=codes) for codes in (["cold"], ["cold", "generator_bound"]))
    decision = decided([*warm, *cold])
    assert (decision.kind, {one.pairs for one in decision.comparisons}) == ("inconclusive", {20})
    assert decided([*warm, *bound]).kind == "pass"


@pytest.mark.parametrize("other", ["cold", "not_steady"])
def test_a_gate_whose_runs_were_cold_in_most_pairs_is_invalid_and_advises_a_longer_warm_up(other):
    pairs = [*make_pairs(4), *make_pairs(4, codes=[other], valid=other != "cold"), *make_pairs(4, valid=False, codes=["cold"])]
    decision = decided(pairs)
    assert decision.kind == "invalid"
    assert decision.reasons == ("The candidate was not steady in most of its runs. http, concurrency 4: Said of cold.",)
    assert (decision.fault.code, decision.fault.warning, decision.fault.generator) == ("not_steady", "cold", None)


@pytest.mark.parametrize(
    ("fault", "sentence", "code"),
    [
        ({"failed": 11}, "1.1% of the candidate's requests failed (more than 1%)", "failed_requests"),
        (
            {"failed": 20, "checked": 100, "wrong": 20},
            "20.0% (17.8% to 22.4%, by the wrong ones among the checked answers) of the candidate's requests failed",
            "failed_requests",
        ),
        (
            {"codes": ["not_steady"]},
            "The candidate was not steady in most of its runs. http, concurrency 4: Said of not_steady.",
            "not_steady",
        ),
        (
            {"without": ["p99"]},
            "There is no p99 at http, 70/s poisson in the candidate's run of pair 1: too few requests.",
            "missing_metric",
        ),
        ({"without": ["throughput"]}, "There is no throughput at http, concurrency 4 in the candidate's run of pair 1", "missing_metric"),
    ],
)
def test_a_candidate_that_cannot_be_measured_makes_the_gate_invalid(fault, sentence, code):
    decision = decided(make_pairs(12, 1.2, **fault))
    assert decision.kind == "invalid"
    assert sentence in decision.reasons[0]
    assert (decision.fault.code, decision.fault.reason) == (code, decision.reasons[0])


def test_a_fault_names_a_run_that_shows_it():
    pairs = make_pairs(12, failed=5)
    pairs[7] = pairs[7].model_copy(update={"candidate": make_run(failed=500)})
    assert decided(pairs).fault.run == "007-candidate-0"


def test_a_generator_that_could_not_keep_up_is_told_with_what_others_used_in_those_pairs():
    def used(pairs, *busiest):
        load = GeneratorLoad(cpu_share=0.02, machine_cpu_share=0.99, others=OtherProcesses(1.9, busiest))
        point = make_run(valid=False, codes=["behind_schedule"]).points[0].model_copy(update={"generator": load})
        return [pair.model_copy(update={"candidate": ArmRun(points=(point,))}) for pair in pairs]

    compiler, other_compiler = (BusyProcess("cc1plus", pid, cpus) for pid, cpus in ((77, 0.9), (78, 0.7)))
    pairs = make_pairs(6)
    fault = decided([*used(pairs[:3], compiler, BusyProcess("dask", 5, 0.4)), *used(pairs[3:], other_compiler)]).fault
    assert (fault.code, fault.warning) == ("generator", "behind_schedule")
    # processes of one name count as one: 0.9 in half of the runs and 0.7 in the others
    busiest = [(process.name, process.pid, process.cpus) for process in fault.generator.others.busiest]
    assert busiest == [("cc1plus", 77, pytest.approx(0.8)), ("dask", 5, pytest.approx(0.2))]
    assert fault.generator.cpu_share == pytest.approx(0.02)
    assert fault.generator.others.cpus == pytest.approx(1.9)


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
    assert decision.fault.code == "control"
    assert "the baseline was called slower than itself" in decision.reasons[0]
    assert decision.comparisons


def comparison_of(decision, metric, load_point=CLOSED):
    return next(one for one in decision.comparisons if (one.metric, one.load_point) == (metric, load_point))


def test_cpu_time_is_for_information_with_an_effect_of_its_own_unless_the_scenario_names_it():
    pairs = make_pairs(12, noise=0.02, cpu=1.2)
    decision = decided(pairs)
    shown = comparison_of(decision, "cpu_time")
    assert (shown.gated, shown.unit, shown.better) == (False, "ns", "lower")
    assert shown.slowdown == pytest.approx(0.2, abs=0.01)
    assert decision.kind != "regressed", "it does not decide"
    p50 = comparison_of(decision, "p50")  # for information, too; the effect is the band of 1 % and a multiple of the noise
    assert p50.minimum_detectable_effect > 0.02
    assert shown.minimum_detectable_effect - 0.01 == pytest.approx((p50.minimum_detectable_effect - 0.01) / 10, rel=0.7)

    choice = MetricChoice(names=("throughput", "cpu_time"))
    named = decided(pairs, choice, rule_for(3))
    assert named.kind == "regressed"
    assert gated(named) == [("throughput", CLOSED), ("cpu_time", CLOSED), ("cpu_time", OPEN), ("error_rate", "all load points")]
    assert decided(make_pairs(12, noise=0.002, cpu=1.0), choice, rule_for(3)).kind == "pass"


def test_the_first_token_decides_only_where_it_is_named():
    def with_first_token(run, factor):
        points = tuple(
            one.model_copy(update={"figures": {**one.figures, "first_token_p99": 2 * factor * one.figures["p99"]}}) for one in run.points
        )
        return run.model_copy(update={"points": points})

    pairs = [
        one.model_copy(update={"baseline": with_first_token(one.baseline, 1.0), "candidate": with_first_token(one.candidate, 1.3)})
        for one in make_pairs(12)
    ]
    shown = comparison_of(decided(pairs), "first_token_p99")
    assert (shown.gated, shown.unit, shown.better) == (False, "ns", "lower")
    assert decided(pairs).kind == "pass"
    choice = MetricChoice(names=("first_token_p99",))
    named = decided(pairs, choice, rule_for(2))
    assert named.kind == "regressed"
    assert comparison_of(named, "first_token_p99").margin == 0.1
    without = decided(make_pairs(12), choice, rule_for(2))
    assert without.kind == "invalid"
    assert "There is no first_token_p99 at http, concurrency 4" in without.reasons[0]
    assert "too few requests" in without.reasons[0]


def test_the_effect_of_a_metric_for_information_is_that_of_a_gate_of_it_alone():
    def of_one_point(run):
        return run.model_copy(update={"points": run.points[:1]})

    pairs = [
        one.model_copy(update={arm: of_one_point(run) for arm, run in one.runs.items()}) for one in make_pairs(12, noise=0.02, cpu=1.0)
    ]
    shown = comparison_of(decided(pairs, MetricChoice(names=("throughput", "p95", "p99")), rule_for(2)), "p50")
    alone = comparison_of(decided(pairs, MetricChoice(names=("p50",)), rule_for(2)), "p50")
    assert (shown.gated, alone.gated) == (False, True)
    assert shown.minimum_detectable_effect == alone.minimum_detectable_effect


def test_a_gate_on_cpu_time_is_invalid_without_it():
    decision = decided(make_pairs(12), MetricChoice(names=("cpu_time",)), rule_for(2))
    assert decision.kind == "invalid"
    assert "There is no cpu_time at http, concurrency 4 in the baseline's run of pair 1: it could not be measured." in decision.reasons[0]


COMMANDS = {"baseline": Arm(command="old"), "candidate": Arm(command="new")}
URLS = {"baseline": Arm(url="http://a"), "candidate": Arm(url="http://b")}


def scenario(metrics=None, **other):
    gate = {} if metrics is None else {"gate": {"metrics": metrics}}
    return Scenario.model_validate({"name": "x", "target": {"model": "m"}, "load": {"closed": {"concurrency": 1}}, **gate, **other})


@pytest.mark.parametrize(
    ("asked", "arms", "sentence"),
    [
        (scenario(), URLS, ""),
        (scenario(["p50"]), URLS, ""),
        (scenario(["p50", "cpu_time"]), COMMANDS, ""),
        (scenario(["p50", "cpu_time"]), URLS, "gate.metrics: cpu_time is known of servers that perfkit starts; name both as cmd: targets"),
        (scenario(["instructions"], telemetry=False), COMMANDS, "gate.metrics: instructions is measured by telemetry, which the scenario turns off"),
    ],
)  # fmt: skip
def test_metrics_that_no_run_can_have_are_refused(asked, arms, sentence):
    found = why_unmeasurable(asked, arms)
    assert found.startswith(sentence)
    assert bool(found) == bool(sentence)


def test_a_trial_without_a_named_metric_says_why():
    note = "The server's instructions are not counted: this machine offers no hardware counters."
    stored = result(server_cpu={"cpus": 1.0, "time_per_request_ns": 5e5})
    measured = stored.model_copy(update={"environment": {**stored.environment, "telemetry": {"notes": ["No GPUs.", note]}}})
    assert why_unmeasured(scenario(["cpu_time"]), "baseline", measured) == ""
    expected = (
        f"gate.metrics names instructions, which the baseline's trial lacks at http, concurrency 4; leave it out, or mend the cause. {note}"
    )
    assert why_unmeasured(scenario(["instructions"]), "baseline", measured) == expected


def test_wrong_answers_of_a_sample_count_as_the_share_that_they_stand_for():
    # in each run one of 200 answers was wrong, and of 1,000 requests that one is counted: 0.5 % and not 0.1 %, the noise band
    decision = decided(make_pairs(12, failed=1, checked=200, wrong=1))
    errors = next(one for one in decision.comparisons if one.metric == "error_rate")
    assert (decision.kind, errors.verdict, errors.candidate) == ("regressed", "regressed", pytest.approx(0.005))
