"""The gate from stored results: its verdicts, its refusals, and its error rates."""

import datetime

import numpy as np
import pytest

from perfkit.gate.baseline import baseline_from_result, merge_baselines
from perfkit.gate.next_steps import stored_next_steps
from perfkit.gate.stored_gate import stored_verdict
from perfkit.history.accepted import AcceptedChange, AcceptedChanges
from perfkit.result.model import Result
from tests.stored_results import changed, document, point, result

STARTED = "2026-02-03T04:05:06.000+00:00"


def runs(factors, *, hosts=("host-a",), hour=0, each=1, **options):
    """A baseline with one run per factor, by which its times are multiplied and its throughput divided; `each` so many on a day."""
    made = []
    for index, factor in enumerate(factors):
        figures = {"p50_ms": 2.0 * factor, "p99_ms": 6.0 * factor, "throughput_per_s": 500 / factor}
        started_at = f"2026-01-{1 + index // each:02}T{hour:02}:{index % each:02}:00.000+00:00"
        made.append((str(index), baseline_from_result(result(started_at=started_at, host=hosts[index % len(hosts)], **figures, **options))))
    return merge_baselines(made)


def gate(baseline, candidate, **options):
    return stored_verdict(baseline, candidate, labels=("baselines/smoke.json", "reports/new"), started_at=STARTED, **options)


def baseline_of(document_):
    return baseline_from_result(Result.model_validate(document_))


STEADY = [1.0, 1.004, 0.996, 1.002, 0.998]
NEW = [1.001, 0.999, 1.003, 0.997, 1.0]


def test_an_unchanged_candidate_passes():
    verdict = gate(runs(STEADY), runs(NEW, hour=1))
    assert verdict.kind == "pass"
    assert verdict.mode == "stored"
    assert {one.verdict for one in verdict.gated} == {"pass"}
    assert verdict.reasons == ("All 5 metrics are within their margins of the baseline.",)


def test_a_slower_candidate_has_regressed_in_every_metric():
    verdict = gate(runs(STEADY), runs([1.12 * factor for factor in NEW], hour=1))
    assert verdict.kind == "regressed"
    found = {one.metric: one for one in verdict.comparisons}
    assert {name for name, one in found.items() if one.verdict == "regressed"} == {"throughput", "p50", "p95", "p99"}
    assert {found[name].adjusted_p for name in ("throughput", "p50", "p95", "p99")} == {1 / 252}
    assert found["p99"].estimate == pytest.approx(1.12, rel=1e-3)
    assert found["throughput"].estimate == pytest.approx(1 / 1.12, rel=1e-3)
    assert found["throughput"].slowdown == pytest.approx(0.12, rel=1e-2)
    assert found["error_rate"].verdict == "pass"


def test_a_faster_candidate_has_improved_if_it_is_faster_by_more_than_the_noise_band():
    faster = {one.metric: one for one in gate(runs(STEADY), runs([0.9 * factor for factor in NEW], hour=1)).comparisons}
    assert {name: one.outcome for name, one in faster.items()} == {
        **dict.fromkeys(("throughput", "p50", "p95", "p99"), "improved"),
        "error_rate": "pass",
    }
    assert {one.outcome for one in gate(runs(STEADY), runs([0.995 * factor for factor in NEW], hour=1)).comparisons} == {"pass"}


def test_an_accepted_slowdown_does_not_hide_an_improvement():
    old, new = runs(STEADY), runs([0.9 * factor for factor in NEW], hour=1)
    p99 = next(one for one in gate(old, new).comparisons if one.metric == "p99")
    facts = {"scenario": old.name, "metric": "p99", "load_point": p99.load_point, "slowdown": 0.2, "reason": "a known cost"}
    day = datetime.date(2026, 2, 3)
    known = AcceptedChanges((AcceptedChange.model_validate({**facts, "accepted": day, "expires": day}),), day)
    accepted = next(one for one in gate(old, new, accepted=known).comparisons if one.metric == "p99")
    assert accepted.accepted is not None
    assert accepted.outcome == p99.outcome == "improved"


def test_runs_of_servers_that_perfkit_did_not_start_have_a_note():
    def at_url(side):
        return side.model_copy(update={"runs": tuple(run.model_copy(update={"starts_server": False}) for run in side.runs)})

    old, new = runs(STEADY), runs(NEW, hour=1)
    said = "perfkit did not start the servers of "
    assert not [note for note in gate(old, new).notes if note.startswith(said)]
    (both,) = [note for note in gate(at_url(old), at_url(new)).notes if note.startswith(said)]
    assert both.startswith(f"{said}the baseline's runs and the candidate's runs: each run counts as one start")
    (one,) = [note for note in gate(old, at_url(new)).notes if note.startswith(said)]
    assert one.startswith(f"{said}the candidate's runs: ")


def test_a_run_knows_whether_perfkit_started_its_server():
    target = "environment.target"
    assert runs([1.0]).runs[0].starts_server is True  # the bundled server
    assert baseline_of(changed(document(), f"{target}.bundled_server", None)).runs[0].starts_server is False
    by_command = changed(changed(document(), f"{target}.bundled_server", None), f"{target}.command_server", {"pid": 3})
    assert baseline_of(by_command).runs[0].starts_server is True


@pytest.mark.parametrize(("slower", "kind"), [(1.005, "pass"), (1.03, "regressed")])
def test_sittings_that_agree_show_a_small_slowdown(slower, kind):
    assert gate(runs(STEADY), runs([slower * factor for factor in NEW], hour=1)).kind == kind


@pytest.mark.parametrize(("slower", "kind"), [(1.0, "inconclusive"), (1.3, "inconclusive"), (1.4, "regressed")])
def test_one_sitting_of_each_side_shows_only_what_no_other_day_explains(slower, kind):
    verdict = gate(runs([*STEADY, *NEW], each=10), runs([slower * factor for factor in NEW], hour=7, each=5))
    assert verdict.kind == kind
    said = "One sitting of each side does not show by how much sittings differ. A standard deviation of 8% at most is assumed: only a slowdown of more than 34%"
    assert sum(note.startswith(said) for note in verdict.notes) == 1
    if kind == "inconclusive":
        assert verdict.reasons[0] == (
            "There are too few sittings to be compared by themselves, 1 of the baseline and 1 of the candidate: measure 3 more sittings of the baseline "
            "and 4 more sittings of the candidate, a run each, on other days or at least six hours apart. 10 and 5 are recommended."
        )


def test_a_baseline_of_many_sittings_shows_how_much_one_of_the_candidate_may_differ():
    # at 8 % between sittings 24 % would be allowed; Student's t for nine degrees of freedom at 0.5 % and ten sittings that differ by 0.3 % allow 1 %
    verdict = gate(runs([*STEADY, *NEW]), runs([1.1 * factor for factor in NEW], hour=7, each=5))
    assert verdict.kind == "regressed"
    assert gate(runs([*STEADY, *NEW]), runs(NEW, hour=7, each=5)).kind == "pass"
    different = [0.9, 1.1, 0.95, 1.05, 1.0, 0.92, 1.08, 0.98, 1.02, 1.0]
    verdict = gate(runs(different), runs([1.1 * factor for factor in NEW], hour=7, each=5))
    assert verdict.kind == "inconclusive"
    assert any(note.startswith("By how much sittings differ is estimated from these, few as they are") for note in verdict.notes)


def test_runs_with_pauses_below_six_hours_are_one_sitting():
    sides = [runs([*STEADY, *NEW], each=10), runs(NEW, hour=5), runs(NEW, hour=7)]
    together = merge_baselines([("a", sides[0]), ("b", sides[1])])  # the first day's runs at 0:00 to 0:09, and one at 5:00
    assert any("5 sittings against 5" in note for note in gate(together, runs(NEW, hour=12)).notes)
    apart = merge_baselines([("a", sides[0]), ("b", sides[2])])
    verdict = gate(apart, runs(NEW, hour=12))
    assert any("6 sittings against 5" in note for note in verdict.notes)
    assert any(note == "Each sitting counts once, with its first run: as many as every one has." for note in verdict.notes)


def test_a_sitting_counts_with_the_median_of_as_many_runs_as_every_one_has():
    # three runs a day, the last of which is slow; of the candidate there are three, too, but on one day four
    baseline = runs([1.0, 1.004, 1.5] * 5, each=3)
    other = merge_baselines([("a", runs([1.002, 0.998, 1.4] * 5, each=3, hour=12)), ("b", runs([9.0], hour=13))])
    verdict = gate(baseline, other)
    assert any(note == "Each sitting counts once, with the median of its first 3 runs: as many as every one has." for note in verdict.notes)
    found = next(one for one in verdict.comparisons if one.metric == "p50")
    assert {round(value / 2e6, 3) for value in found.baseline_values} == {1.004}
    assert {round(value / 2e6, 3) for value in found.candidate_values} == {1.002}


def test_the_interval_is_that_of_the_rank_sum_test():
    baseline, candidate = [1.0, 1.01, 1.02, 1.03, 1.05], [1.02, 1.04, 1.08, 1.0, 1.1]
    found = next(one for one in gate(runs(baseline), runs(candidate, hour=1)).comparisons if one.metric == "p50")
    ratios = sorted(other / one for one in baseline for other in candidate)
    # 4 is the largest U that is significant at 5 %, in a printed table for 5 and 5 values
    assert found.interval == pytest.approx((ratios[4], ratios[-5]), rel=1e-5)
    assert found.estimate == pytest.approx(ratios[12], rel=1e-5)
    assert found.confidence == pytest.approx(0.9)
    assert (found.noise_band, found.margin) == pytest.approx((0.01, 0.15))
    assert found.minimum_detectable_effect > 0.01


@pytest.mark.parametrize(
    ("baseline", "candidate", "sentence"),
    [
        (
            [1.0],
            [1.5],
            "1 of the baseline and 1 of the candidate: measure 3 more sittings of the baseline and 4 more sittings of the candidate, a run each",
        ),
        (
            STEADY,
            [1.5, 1.5],
            "too few sittings to be compared by themselves, 5 of the baseline and 2 of the candidate: measure 2 more sittings of the candidate",
        ),
        (STEADY, [1.5] * 3, "5 of the baseline and 3 of the candidate: measure 1 more sitting of the candidate, a run each, on other days"),
    ],
)
def test_with_too_few_runs_nothing_is_gated_and_the_verdict_says_how_many_are_missing(baseline, candidate, sentence):
    verdict = gate(runs(baseline), runs(candidate, hour=1))
    assert verdict.kind == "inconclusive"
    assert sentence in verdict.reasons[0]
    assert all(one.adjusted_p is None and one.minimum_detectable_effect is None for one in verdict.comparisons)
    assert {one.verdict for one in verdict.comparisons} == {"inconclusive"}


def test_ten_runs_of_the_baseline_and_three_of_the_candidate_are_enough():
    assert gate(runs([*STEADY, *NEW]), runs(NEW[:3], hour=1)).kind == "pass"
    assert gate(runs([*STEADY, *NEW]), runs([1.2, 1.21, 1.19], hour=1)).kind == "regressed"


def test_where_the_hosts_differ_a_host_counts_once_with_the_median_of_its_runs():
    hosts = tuple(f"host-{letter}" for letter in "bcdefg")
    level = [1.0, 1.01, 0.99, 1.02, 0.98, 1.0]
    baseline = runs([*level, *level, *(5 * factor for factor in level)], hosts=hosts)
    others = tuple(f"host-{letter}" for letter in "vwxyz")
    verdict = gate(baseline, runs([1.3, 1.301, 1.31, 1.29, 1.3], hosts=others, hour=1))
    assert verdict.kind == "regressed"
    assert any("6 hosts against 5" in note for note in verdict.notes)
    found = next(one for one in verdict.comparisons if one.metric == "p50")
    assert found.adjusted_p == pytest.approx(1 / 462)
    assert sorted(one / 2e6 for one in found.baseline_values) == pytest.approx(sorted(level), rel=1e-6)
    assert gate(baseline, runs([1.02, 1.0, 1.01, 1.0, 1.0], hosts=others, hour=1)).kind == "pass"


def test_a_foreign_host_may_differ_as_another_sitting():
    verdict = gate(runs(STEADY), runs([1.3] * 5, hosts=("host-b",), hour=1))
    assert verdict.kind == "inconclusive"
    assert verdict.reasons[0].startswith(
        "There are too few hosts to be compared by themselves, 1 of the baseline and 1 of the candidate: measure 3"
    )
    assert gate(runs(STEADY), runs([1.5] * 5, hosts=("host-b",), hour=1)).kind == "regressed"


def test_only_the_baseline_runs_of_the_candidates_host_are_compared():
    baseline = runs([1.0, 2.0, 1.002, 2.004, 0.998, 1.996], hosts=("host-a", "host-b"))
    assert "3 of the baseline and 2 of the candidate" in gate(baseline, runs([1.001, 0.999], hour=1)).reasons[0]
    baseline = runs([1.0, 2.0, 1.002, 2.004, 0.998, 1.996, 1.001, 2.0, 0.999, 1.99], hosts=("host-a", "host-b"))
    verdict = gate(baseline, runs(NEW, hour=1))
    assert verdict.kind == "pass"
    assert next(one for one in verdict.comparisons if one.metric == "p50").estimate == pytest.approx(1.0, rel=2e-3)


def test_the_notes_say_what_a_stored_gate_cannot_promise():
    notes = " ".join(gate(runs(STEADY), runs([1.0], hour=1)).notes)
    assert "A machine that has changed for good in between cannot be told from a change of the server" in notes
    assert "one host (host-a): 5 runs of the baseline, 1 run of the candidate, 5 sittings against 1." in notes
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


@pytest.mark.parametrize("names", [("throughput", "cpu_time"), ("cpu_time",), ("p99", "cpu_time", "instructions")])
def test_a_named_metric_that_stored_gates_do_not_compare_is_refused_and_not_left_out(names):
    baseline = runs(STEADY).model_copy(update={"metrics": names})
    verdict = gate(baseline, runs(NEW, hour=1))
    assert verdict.kind == "invalid"
    unknown = ", ".join(name for name in names if name in ("cpu_time", "instructions"))
    assert verdict.reasons[0].startswith(f"gate.metrics names {unknown}, which a gate from stored results does not compare")
    assert "measure the baseline again without it in gate.metrics" in verdict.reasons[0]
    assert [step.command for step in stored_next_steps(verdict)][-1].startswith("perfkit gate SCENARIO")
    assert gate(runs(STEADY).model_copy(update={"metrics": ("throughput",)}), runs(NEW, hour=1)).kind == "pass"


def test_a_gate_without_any_metric_is_invalid():
    load = {"kind": "open", "rate_per_s": 100.0, "arrivals": "poisson"}
    verdict = gate(*(without("p50", "p95", "p99", at=at, load=load) for at in (EARLIER[0], STARTED)))
    assert verdict.kind == "invalid"
    assert "has no metric to gate" in verdict.reasons[0]


def test_runs_that_agree_by_rounding_still_have_an_interval():
    # the p50 of all runs in one bucket of the histogram
    verdict = gate(runs([1.0] * 5), runs([1.0] * 5, hour=1))
    assert all(one.interval[0] <= one.estimate <= one.interval[1] for one in verdict.comparisons)


@pytest.mark.parametrize(
    ("path", "value", "sentence"),
    [
        ("status", "interrupted", "the run is interrupted"),
        ("status", "incomplete", "the run is incomplete"),
        ("summary.0.valid", False, "is not valid: its figures may be those of the load generator or of a cold target"),
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


def failing(shares, *, scheduled=20_000, hour=0):
    """A run for each share of failed requests."""
    made = []
    for index, share in enumerate(shares):
        failed = round(share * scheduled)
        requests = {**point()["requests"], "scheduled": scheduled, "sent": scheduled, "ok": scheduled - failed, "rejected": failed}
        at = f"2026-01-{1 + index:02}T{hour:02}:00:00.000+00:00"
        made.append((str(index), baseline_from_result(result(started_at=at, requests=requests, error_rate=share))))
    return merge_baselines(made)


def test_wrong_answers_of_a_sample_count_as_the_share_that_they_stand_for():
    # of 20,000 answers 1 % were checked; of these 1 % are wrong, which are 0.01 % of all requests
    sampled = {"ok": 19_998, "invalid_output": 2, "scheduled": 20_000, "sent": 20_000}
    requests, wrong = (
        {**point()["requests"], **sampled},
        {"checked": 200, "wrong_answer_rate": 0.01, "wrong_answer_interval": [0.001, 0.036]},
    )
    runs_of_candidate = [
        (str(day), baseline_from_result(result(
            started_at=f"2026-02-0{day}T00:00:00.000+00:00", requests=requests, error_rate=1e-4, **wrong)))
        for day in range(1, 6)
    ]  # fmt: skip
    verdict = gate(failing([0.0] * 10), merge_baselines(runs_of_candidate))
    found = errors_of(verdict)
    assert (verdict.kind, found.candidate) == ("regressed", pytest.approx(0.01, abs=1e-4))
    # the interval is that of 10 wrong answers of 1,000, and not of 1,000,000 requests
    low, high = found.interval
    assert (low < 0.0061, high > 0.015) == (True, True)


def errors_of(verdict):
    return next(one for one in verdict.comparisons if one.metric == "error_rate")


def test_a_higher_error_rate_in_every_run_is_a_regression():
    verdict = gate(failing([0.0] * 10), failing([0.005, 0.004, 0.006, 0.005, 0.005], hour=1))
    found = errors_of(verdict)
    assert (verdict.kind, found.verdict) == ("regressed", "regressed")
    assert (found.estimate, found.candidate, found.margin) == (pytest.approx(0.005), pytest.approx(0.005), 0.001)


@pytest.mark.parametrize(
    ("baseline", "candidate", "verdict"),
    [
        ([0.0] * 5, [0.0] * 5, "pass"),
        ([0.0005] * 5, [0.0005] * 5, "pass"),
        ([0.0] * 5, [0.005] * 5, "regressed"),
        ([0.0] * 5, [0.0014, 0.0071, 0.004, 0.003, 0.005], "regressed"),
        ([0.0] * 5, [0.0, 0.0071, 0.004, 0.003, 0.005], "inconclusive"),
        ([0.0] * 5, [0.0, 0.0, 0.025, 0.0, 0.0], "inconclusive"),  # most runs without a failure, half a per cent in all
        ([0.0005] * 5, [0.0014] * 5, "inconclusive"),
    ],
)
def test_a_pass_rules_out_more_than_a_tenth_of_a_percentage_point_of_errors(baseline, candidate, verdict):
    found = errors_of(gate(failing(baseline), failing(candidate, hour=1)))
    assert found.verdict == verdict
    assert (found.interval[1] < 0.001) == (verdict == "pass")


@pytest.mark.parametrize(("scheduled", "verdict"), [(170, "inconclusive"), (190, "pass")])
def test_without_any_failure_some_hundred_requests_a_run_are_enough_for_a_pass(scheduled, verdict):
    # Wilson's limit without failures, z²/(n + z²), is below 0.1 % from 2,703 requests of the candidate, in five runs of three repetitions
    found = errors_of(gate(failing([0.0] * 5, scheduled=scheduled), failing([0.0] * 5, scheduled=scheduled, hour=1)))
    assert found.verdict == verdict


def test_only_the_metrics_that_the_scenario_names_are_gated():
    baseline = runs(STEADY).model_copy(update={"metrics": ("p50",)})
    slower_tails = [
        (str(day), baseline_from_result(result(started_at=f"2026-02-0{day}T00:00:00.000+00:00", p50_ms=2.0, p99_ms=9.0)))
        for day in range(1, 6)
    ]
    verdict = gate(baseline, merge_baselines(slower_tails))
    assert {one.metric for one in verdict.gated} == {"p50", "error_rate"}
    assert verdict.kind != "regressed"


def test_the_throughput_of_an_open_loop_is_not_gated():
    load = {"kind": "open", "rate_per_s": 100.0, "arrivals": "poisson"}
    verdict = gate(*(without(at=at, load=load) for at in EARLIER))
    assert {one.metric for one in verdict.gated} == {"p50", "p95", "p99", "error_rate"}


def test_a_slowdown_above_the_detectable_effect_is_detected():
    # false alarms are counted in test_stored_runs, without results
    random, found, gates = np.random.default_rng(12), 0, 40
    for _ in range(gates):
        base = np.exp(random.normal(0, 0.02, 10))
        slower = 1.2 * np.exp(random.normal(0, 0.02, 5))
        verdict = gate(runs(base), runs(slower, hour=1))
        found += verdict.kind == "regressed"
    assert found >= 34
