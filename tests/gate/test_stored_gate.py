"""The gate from stored results: its verdicts, its refusals, and its error rates."""

import math

import numpy as np
import pytest

from perfkit.gate.baseline import ControlVariance, baseline_from_result, merge_baselines
from perfkit.gate.stored_comparison import control_variances
from perfkit.gate.stored_gate import stored_verdict
from perfkit.gate.verdict import Comparison
from perfkit.result.model import Result
from tests.stored_results import changed, document, point, result

STARTED = "2026-02-03T04:05:06.000+00:00"


def runs(factors, *, hosts=("host-a",), hour=0, **options):
    """A baseline with one run per factor, by which its times are multiplied and its throughput divided."""
    made = []
    for index, factor in enumerate(factors):
        figures = {"p50_ms": 2.0 * factor, "p99_ms": 6.0 * factor, "throughput_per_s": 500 / factor}
        started_at = f"2026-01-{1 + index:02}T{hour:02}:00:00.000+00:00"
        made.append((str(index), baseline_from_result(result(started_at=started_at, host=hosts[index % len(hosts)], **figures, **options))))
    return merge_baselines(made)


def gate(baseline, candidate, **options):
    return stored_verdict(baseline, candidate, labels=("baselines/smoke.json", "reports/new"), started_at=STARTED, **options)


def baseline_of(document_):
    return baseline_from_result(Result.model_validate(document_))


STEADY = [1.0, 1.004, 0.996, 1.002, 0.998]


def test_an_unchanged_candidate_passes():
    verdict = gate(runs(STEADY), runs([1.001, 0.999, 1.003], hour=1))
    assert verdict.kind == "pass"
    assert verdict.mode == "stored"
    assert {one.verdict for one in verdict.gated} == {"pass"}
    assert verdict.reasons == ("All 5 metrics are within their margins of the baseline.",)


def test_a_slower_candidate_has_regressed_in_every_metric():
    verdict = gate(runs(STEADY), runs([1.12, 1.121, 1.119], hour=1))
    assert verdict.kind == "regressed"
    found = {one.metric: one for one in verdict.comparisons}
    assert {name for name, one in found.items() if one.verdict == "regressed"} == {"throughput", "p50", "p95", "p99"}
    assert found["p99"].estimate == pytest.approx(1.12, rel=1e-4)
    assert found["throughput"].estimate == pytest.approx(1 / 1.12, rel=1e-4)
    assert found["throughput"].slowdown == pytest.approx(0.12, rel=1e-4)
    assert found["error_rate"].verdict == "pass"


def test_the_interval_is_that_of_students_t():
    verdict = gate(runs(STEADY), runs([1.02, 1.03], hour=1))
    found = next(one for one in verdict.comparisons if one.metric == "p50")
    base, candidate = np.log(STEADY), np.log([1.02, 1.03])
    variance = (np.var(base, ddof=1) * 4 + np.var(candidate, ddof=1) * 1) / 5
    reach = 2.01505 * math.sqrt(variance * (1 / 5 + 1 / 2))  # t of 95 % at 5 degrees of freedom, from a printed table
    shift = candidate.mean() - base.mean()
    assert found.interval == pytest.approx((math.exp(shift - reach), math.exp(shift + reach)), rel=1e-5)
    assert found.confidence == pytest.approx(0.9)


@pytest.mark.parametrize(
    ("baseline", "candidate", "sentence"),
    [
        (runs([1.0]), runs([1.5], hour=1), "The variation from run to run is unknown"),
        (runs(STEADY), runs([1.5, 1.5], hosts=("host-b",), hour=1), "The variation between hosts is unknown"),
    ],
)
def test_without_a_known_variation_nothing_can_be_gated_and_a_note_says_why(baseline, candidate, sentence):
    verdict = gate(baseline, candidate)
    assert verdict.kind == "inconclusive"
    assert any(sentence in note for note in verdict.notes)
    assert all(one.interval is None and one.adjusted_p is None for one in verdict.comparisons if one.scale == "ratio")


def test_with_control_pairs_single_runs_can_be_gated():
    control = tuple(
        ControlVariance(metric=metric, load_point="http, concurrency 4", variance=0.01**2, degrees_of_freedom=19)
        for metric in ("throughput", "p50", "p95", "p99")
    )
    baseline = runs([1.0]).model_copy(update={"control": control})
    assert gate(baseline, runs([1.15], hour=1)).kind == "regressed"
    assert gate(baseline, runs([1.0], hour=1)).kind == "pass"


def test_the_limit_includes_the_variation_between_several_hosts():
    hosts, level = tuple(f"host-{letter}" for letter in "bcdefg"), np.array([1.0, 1.01, 0.99, 1.02, 0.98, 1.0])
    factors = [*level * 1.001, *level * 0.999]
    baseline = runs(factors, hosts=hosts)
    verdict = gate(baseline, runs([1.3, 1.301], hosts=("host-x",), hour=1))
    assert verdict.kind == "regressed"
    assert any("between the baseline's 6 hosts" in note for note in verdict.notes)
    found = next(one for one in verdict.comparisons if one.metric == "p50")
    logs = np.log(factors).reshape(2, 6)
    between = 2 * np.var(logs.mean(axis=0), ddof=1)
    within = (np.square(logs - logs.mean(axis=0)).sum() + np.square(np.diff(np.log([1.3, 1.301]))).sum() / 2) / 7
    sigma = math.sqrt(2 * (between - np.square(logs - logs.mean(axis=0)).sum() / 6) / 2 + within * (1 / 12 + 1 / 2))
    shift = np.log([1.3, 1.301]).mean() - logs.mean()
    assert found.interval[1] == pytest.approx(math.exp(shift + 2.01505 * sigma), rel=1e-4)  # t at 6 - 1 degrees of freedom
    assert gate(baseline, runs([1.02, 1.02], hosts=("host-x",), hour=1)).kind != "regressed"


def test_only_the_baseline_runs_of_the_candidates_host_are_compared():
    baseline = runs([1.0, 2.0, 1.002, 2.004, 0.998, 1.996], hosts=("host-a", "host-b"))
    verdict = gate(baseline, runs([1.001, 0.999], hour=1))
    assert verdict.kind == "pass"
    assert next(one for one in verdict.comparisons if one.metric == "p50").estimate == pytest.approx(1.0, rel=2e-3)


def test_the_notes_say_what_a_stored_gate_cannot_promise():
    notes = " ".join(gate(runs(STEADY), runs([1.0], hour=1)).notes)
    assert "cannot tell a slower server from a machine that has changed in between" in notes
    assert "one host (host-a): 5 runs of the baseline, 1 run of the candidate" in notes
    assert "network" not in notes
    remote = changed(document(), "environment.target.protocols.http.path", "network")
    assert any("not the server's" in note for note in gate(baseline_of(remote), baseline_of({**remote, "started_at": STARTED})).notes)


def test_a_metric_or_load_point_that_the_candidate_lacks_is_incomparable():
    verdict = gate(runs(STEADY), without("p99", at=STARTED))
    assert verdict.kind == "incomparable"
    assert verdict.reasons == ("p99 of http, concurrency 4 is in the baseline and missing in the candidate, so it cannot be compared",)
    both = [point(), point(load={"kind": "closed", "concurrency": 8})]
    baseline = baseline_from_result(result(points=both))
    verdict = gate(baseline, baseline_from_result(result(points=both[:1], started_at=STARTED)))
    assert verdict.kind == "incomparable"
    assert "throughput of http, concurrency 8 is in the baseline and missing in the candidate" in verdict.reasons[0]


def without(*names, at, **options):
    lacking = document(started_at=at, **options)
    for name in names:
        lacking = changed(lacking, f"summary.0.service_time_ns.{name}", None)
    return baseline_of(lacking)


EARLIER = [f"2026-01-0{day}T00:00:00.000+00:00" for day in (1, 2)]


def test_a_metric_that_some_or_all_runs_lack_is_noted_or_invalid_if_gate_metrics_names_it():
    baseline = merge_baselines([(at, without("p99", at=at)) for at in EARLIER])
    mixed = merge_baselines([("a", without("p99", at=EARLIER[0])), ("b", runs(STEADY[1:], hour=5))])
    for verdict in (gate(baseline, without("p99", at=STARTED)), gate(mixed, runs([1.0], hour=7))):
        assert "p99" not in {one.metric for one in verdict.comparisons}
        assert any("Not gated" in note and "p99 of http, concurrency 4" in note for note in verdict.notes)
    verdict = gate(baseline.model_copy(update={"metrics": ("p50", "p99")}), without("p99", at=STARTED))
    assert verdict.kind == "invalid"
    assert verdict.reasons == ("gate.metrics names p99, which the baseline lacks at http, concurrency 4: too few requests; measure longer",)


def test_a_gate_without_any_metric_is_invalid():
    load = {"kind": "open", "rate_per_s": 100.0, "arrivals": "poisson"}
    verdict = gate(*(without("p50", "p95", "p99", at=at, load=load) for at in (EARLIER[0], STARTED)))
    assert verdict.kind == "invalid"
    assert "has no metric to gate" in verdict.reasons[0]


def test_runs_that_agree_by_rounding_still_have_variance():
    # two runs whose p50 falls into one bucket of the histogram say little: a third that is 3 % slower is not a regression
    verdict = gate(runs([1.0, 1.0]), runs([1.03], hour=1))
    assert verdict.kind != "regressed"
    assert all(one.interval[0] < one.estimate < one.interval[1] for one in verdict.comparisons if one.scale == "ratio")


def test_an_excessive_variation_is_reported_as_unbounded():
    verdict = gate(runs([1.0, 30.0]), runs([4.0], hour=1))
    found = next(one for one in verdict.comparisons if one.metric == "p99")
    assert (found.minimum_detectable_effect, found.interval) == (10.0, (None, None))


@pytest.mark.parametrize(
    ("path", "value", "sentence"),
    [
        ("status", "interrupted", "the run is interrupted"),
        ("status", "incomplete", "the run is incomplete"),
        ("summary.0.valid", False, "is not valid: its figures may be those of the load generator"),
        ("summary.0.warnings", [{"code": "not_steady", "message": "It drifted."}], "http, concurrency 4: It drifted."),
    ],
)
def test_an_unreliable_run_makes_the_gate_invalid(path, value, sentence):
    verdict = gate(runs(STEADY), baseline_of(changed(document(started_at=STARTED), path, value)))
    assert verdict.kind == "invalid"
    assert sentence in verdict.reasons[0]
    assert "reports/new" in verdict.reasons[0]


def test_different_scenarios_are_incomparable_and_the_keys_are_named():
    other = changed(document(started_at=STARTED), "scenario.load.closed.concurrency", [4, 8])
    verdict = gate(runs(STEADY), baseline_of(other))
    assert (verdict.kind, verdict.reasons) == ("incomparable", ("scenario load.closed.concurrency differs: 4 against 4, 8",))


def test_equal_builds_are_incomparable_unless_allowed():
    sides = [baseline_of(changed(document(started_at=at), "environment.target.build", "b1")) for at in (EARLIER[0], STARTED)]
    assert gate(*sides).kind == "incomparable"
    assert gate(*sides, allow_same_build=True).kind == "inconclusive"


def test_a_run_cannot_be_its_own_baseline():
    verdict = gate(runs(STEADY), runs(STEADY[:1]))
    assert verdict.kind == "incomparable"
    assert "is both in the baseline and in the candidate" in verdict.reasons[0]


def test_a_higher_error_rate_is_a_regression():
    requests = {**point()["requests"], "ok": 4900, "rejected": 100}
    failing = baseline_from_result(result(started_at=STARTED, requests=requests, error_rate=0.02))
    found = {one.metric: one for one in gate(runs(STEADY), failing).comparisons}
    assert found["error_rate"].verdict == "regressed"
    assert found["error_rate"].estimate == pytest.approx(0.02)


def test_only_the_metrics_that_the_scenario_names_are_gated():
    baseline = runs(STEADY).model_copy(update={"metrics": ("p50",)})
    slower_tail = baseline_from_result(result(started_at=STARTED, p50_ms=2.0, p99_ms=9.0))
    verdict = gate(baseline, slower_tail)
    assert {one.metric for one in verdict.gated} == {"p50", "error_rate"}
    assert verdict.kind != "regressed"


def test_the_throughput_of_an_open_loop_is_not_gated():
    load = {"kind": "open", "rate_per_s": 100.0, "arrivals": "poisson"}
    verdict = gate(*(without(at=at, load=load) for at in EARLIER))
    assert {one.metric for one in verdict.gated} == {"p50", "p95", "p99", "error_rate"}


def test_control_pairs_give_the_variance_of_a_run():
    pairs = np.random.default_rng(1).normal(0, 0.02, (2, 4000))
    made = Comparison(
        metric="p99", load_point="x", unit="ns", better="lower", baseline=1.0, candidate=1.0, estimate=1.0, interval=None, confidence=0.9, pairs=4000,
        noise_band=0.01, margin=0.1, verdict="inconclusive", reason="", baseline_values=tuple(np.exp(pairs[0])), candidate_values=tuple(np.exp(pairs[1])),
    )  # fmt: skip
    (variance, df) = control_variances([made])["p99", "x"]
    assert math.sqrt(variance) == pytest.approx(0.02, rel=0.05)
    assert df == 3999


def test_false_alarms_stay_below_one_per_cent_for_a_slowdown_of_the_noise_band():
    # a slowdown of the whole noise band in all metrics, which move together: of 400 gates 4 may alarm; more than 9 have a probability
    # of 0.8 %, and the rule is conservative
    random = np.random.default_rng(11)
    kinds = []
    for _ in range(400):
        base, candidate = np.exp(random.normal(0, 0.03, 6)), 1.01 * np.exp(random.normal(0, 0.03, 3))
        kinds.append(gate(runs(base), runs(candidate, hour=1)).kind)
    assert kinds.count("regressed") <= 9


def test_a_slowdown_above_the_detectable_effect_is_detected():
    random, found, gates = np.random.default_rng(12), 0, 100
    for _ in range(gates):
        base = np.exp(random.normal(0, 0.02, 8))
        slower = 1.15 * np.exp(random.normal(0, 0.02, 4))
        verdict = gate(runs(base), runs(slower, hour=1))
        found += verdict.kind == "regressed"
    assert found >= 85
