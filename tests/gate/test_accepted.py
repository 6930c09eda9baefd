"""Accepted changes in a gate: the exact test against the accepted slowdown, what the verdict says, and accepting a verdict."""

import dataclasses
import datetime
import json
import math
import statistics

import pytest

from perfkit.cli.main import main
from perfkit.errors import UsageError
from perfkit.gate.accepted import accept_verdict, acceptance_notes, record_of_canary
from perfkit.gate.metrics import Metric, MetricChoice, with_acceptance
from perfkit.gate.paired import rule_for
from perfkit.gate.paired_decision import decide_control, decide_pairs
from perfkit.gate.sentences import headline
from perfkit.gate.verdict import Verdict
from perfkit.history.accepted import AcceptedChange, AcceptedChanges
from perfkit.history.file import Choice, open_history
from tests.simulated_pairs import make_pairs
from tests.stored_results import ENVIRONMENT

RULE, TODAY, LATER = rule_for(4), datetime.date(2026, 11, 23), datetime.date(2027, 1, 1)
STANDARD_POINTS = {"throughput": "http, saturation", "p50": "http, 70 % of the capacity"}
TIMES = ("throughput", "p50", "p95", "p99")


def change(metric, slowdown, **changes):
    load_point = STANDARD_POINTS.get(metric, "all load points" if metric == "error_rate" else STANDARD_POINTS["p50"])
    known = {"scenario": "s", "metric": metric, "load_point": load_point, "slowdown": slowdown, "reason": "a known cost"}
    return AcceptedChange.model_validate({**known, "accepted": TODAY, "expires": LATER, **changes})


def decided(pairs, *changes, today=TODAY):
    return decide_pairs(RULE, pairs, MetricChoice(is_standard=True, accepted=AcceptedChanges(changes, today)))


def verdict(decision, **facts):
    known = {
        "kind": decision.kind, "reasons": decision.reasons, "mode": "paired", "scenario": "s", "baseline": "a", "candidate": "b",
        "false_alarm_rate": 0.01, "pairs": 12, "comparisons": decision.comparisons, "started_at": "2026-11-23T00:00:00.000+00:00",
        "environment": {"source": {"commit": "c0ffee"}},
    }  # fmt: skip
    return Verdict.model_validate({**known, **facts})


def test_an_accepted_slowdown_passes_and_more_than_it_regresses():
    changes = [change(name, 0.2) for name in TIMES]
    assert decided(make_pairs(12, 1.19)).kind == "regressed"
    assert decided(make_pairs(12, 1.19), *changes).kind == "pass"
    assert decided(make_pairs(12, 1.26), *changes).kind == "regressed"
    assert decided(make_pairs(12, 1.0), *changes).kind == "pass"


@pytest.mark.parametrize(
    ("slowdown", "expected"),
    [(1 / (1 - 0.158), "pass"), (1.185 * 1.0099, "pass"), (1.185 * 1.0101, "regressed"), (1 / (1 - 0.165), "regressed")],
)
def test_the_noise_band_begins_at_the_accepted_slowdown(slowdown, expected):
    """18.5 % slower is accepted of a throughput; 15.8 % less of it is 18.8 % slower, within 1.185 times 1.01, and 16.5 % less is not."""
    decision = decided(make_pairs(12, slowdown, noise=0), change("throughput", 0.185))
    assert {one.metric: one.verdict for one in decision.comparisons if one.gated}["throughput"] == expected


def test_an_accepted_metric_improves_as_any_other_does():
    known = {one.metric: one for one in decided(make_pairs(12, 0.95), change("p50", 0.2)).comparisons if one.gated}
    assert [known[name].outcome for name in ("p50", "p95")] == ["improved", "improved"]
    assert known["p50"].improvement_p == known["p95"].improvement_p
    assert "better by more than the noise band of 1 %" in known["p50"].reason


def test_the_margin_begins_at_the_accepted_slowdown():
    throughput = with_acceptance(
        Metric("throughput", "http, concurrency 4", "per_s", 0.05, lasting_load_point="http, saturation"),
        AcceptedChanges((change("throughput", 0.2),), TODAY),
    )
    assert throughput.bounds.band == pytest.approx(math.log(1.2 * 1.01))
    assert throughput.bounds.margin == pytest.approx(math.log(1.2 * 1.05))
    errors = with_acceptance(
        Metric("error_rate", "all load points", "share", 0.001), AcceptedChanges((change("error_rate", 0.003),), TODAY)
    )
    assert errors.noise_band == pytest.approx(0.004)
    assert errors.bounds.band == errors.bounds.margin == pytest.approx(0.004)


def test_the_headline_names_what_is_accepted():
    changes = [change(name, 0.2) for name in TIMES]
    said = headline(verdict(decided(make_pairs(12, 1.19), *changes)))
    assert "; accepted: throughput worse by up to 20 % until 2027-01-01, p50 worse by" in said
    assert "accepted" not in headline(verdict(decided(make_pairs(12, 1.19))))


def test_only_the_accepted_metric_is_judged_otherwise():
    decision = decided(make_pairs(12, 1.19), *(change(name, 0.2) for name in TIMES if name != "p95"))
    assert decision.kind == "regressed"
    assert [one.metric for one in decision.comparisons if one.verdict == "regressed"] == ["p95"]
    known = {one.metric: one for one in decision.comparisons if one.gated}
    assert known["p50"].accepted == change("p50", 0.2)
    assert known["p95"].accepted is None
    assert "of which 20 % are accepted" in known["p50"].reason
    assert (known["p50"].noise_band, known["p50"].margin) == pytest.approx((0.212, 0.26))


def test_an_expired_acceptance_does_not_count_and_is_told():
    changes, after = [change(name, 0.2) for name in TIMES], LATER + datetime.timedelta(days=1)
    assert decided(make_pairs(12, 1.19), *changes, today=LATER).kind == "pass"
    decision = decided(make_pairs(12, 1.19), *changes, today=after)
    assert decision.kind == "regressed"
    notes = list(acceptance_notes(decision.comparisons, AcceptedChanges(tuple(changes), after)))
    assert len(notes) == 4
    assert "expired on 2027-01-01: the regression counts again. It was accepted because: a known cost." in notes[0]
    current = list(acceptance_notes(decided(make_pairs(12, 1.19), *changes).comparisons, AcceptedChanges(tuple(changes), TODAY)))
    assert "a slowdown of up to 20 % is accepted until 2027-01-01: a known cost." in current[0]


def test_a_verdict_is_accepted_up_to_the_upper_ends_of_its_intervals():
    decision = decided(make_pairs(12, 1.19))
    changes = accept_verdict(verdict(decision), (), reason="why", accepted=TODAY, expires=LATER)
    assert [one.key for one in changes] == [("s", STANDARD_POINTS.get(name, STANDARD_POINTS["p50"]), name) for name in TIMES]
    for one in changes:
        comparison = next(found for found in decision.comparisons if found.gated and found.metric == one.metric)
        end = 1 / comparison.interval[0] if one.metric == "throughput" else comparison.interval[1]
        assert end - 1 <= one.slowdown < end - 1 + 0.001
        assert (one.commit, one.reason, one.accepted, one.expires) == ("c0ffee", "why", TODAY, LATER)
    assert decided(make_pairs(12, 1.19, seed=5), *changes).kind == "pass"
    (p99,) = accept_verdict(verdict(decision), ("p99",), reason="why", accepted=TODAY, expires=LATER)
    assert p99.metric == "p99"


def test_what_cannot_be_accepted_is_refused():
    passed, regressed = decided(make_pairs(12)), decided(make_pairs(12, 1.19))
    endless = dataclasses.replace(
        regressed, comparisons=tuple(one.model_copy(update={"interval": (None, None)}) for one in regressed.comparisons)
    )
    for given, metrics, message in (
        (verdict(passed), (), "this verdict is pass, and no metric has regressed"),
        (verdict(regressed), ("p98",), "--metric p98: the verdict does not gate it; it gates throughput, p50, p95, p99, error_rate"),
        (verdict(regressed, kind="invalid"), (), "this verdict is invalid"),
        (verdict(endless), (), "its slowdown has no upper limit"),
        (verdict(decided(make_pairs(12, 0.8))), ("p50",), "none of these metrics is slower than the baseline"),
    ):
        with pytest.raises(UsageError, match=message):
            accept_verdict(given, metrics, reason="why", accepted=TODAY, expires=LATER)


def test_the_commit_of_a_stored_candidate_is_that_of_its_runs():
    regressed = decided(make_pairs(12, 1.19))
    for commits, expected in ((["abc"], "abc"), (["abc", "def"], ""), ([], "")):
        stored = verdict(regressed, mode="stored", environment={"candidate": {"commits": commits}})
        changes = accept_verdict(stored, (), reason="why", accepted=TODAY, expires=LATER)
        assert {one.commit for one in changes} == {expected}


def canary_verdict(day=1, *, noise=0.02, seed=0, **facts):
    """A gate of a server against itself, on a machine whose runs vary by `noise`."""
    decision = decide_control(make_pairs(12, seed=seed, noise=noise), 12, MetricChoice(is_standard=True))
    environment = {
        **{key: value for key, value in ENVIRONMENT.items() if key != "target"},
        "baseline": ENVIRONMENT["target"],
        "model": ["m", "1"],
    }
    known = {
        "kind": "pass", "reasons": ("Fine.",), "mode": "paired", "scenario": "smoke", "baseline": "cmd:a", "candidate": "cmd:a",
        "false_alarm_rate": 0.01, "pairs": 12, "comparisons": [] if decision is None else decision.comparisons,
        "started_at": f"2026-01-{day:02}T00:00:00.000+00:00", "environment": environment,
    }  # fmt: skip
    return Verdict.model_validate({**known, **facts})


def test_the_noise_is_the_standard_deviation_of_the_pairs_differences():
    quiet = canary_verdict(noise=0.002)
    record = record_of_canary(quiet, "canary")
    assert (record.series.kind, record.series.branch, record.series.machine, record.series.model) == ("canary", "main", "host-a", "m 1")
    figures = {(one.load_point, one.metric): one for one in record.figures}
    for comparison in quiet.gated:
        if comparison.scale == "ratio":
            values = [math.log(b / a) for a, b in zip(comparison.baseline_values, comparison.candidate_values, strict=True)]
            load_point = {"throughput": "http, saturation"}.get(comparison.metric, "http, 70 % of the capacity")
            noise = figures[load_point, f"noise_{comparison.metric}"]
            assert noise.unit == "share"
            assert noise.value == pytest.approx(statistics.stdev(values))
            assert noise.value == pytest.approx(0.002 * math.sqrt(2), rel=0.6)  # of two runs, from twelve pairs
            assert figures[load_point, f"mde_{comparison.metric}"].value == comparison.minimum_detectable_effect
    assert not any(metric == "noise_error_rate" for _, metric in figures)  # it did not vary


def test_a_canary_of_the_same_payload_and_model_is_on_the_series_of_its_machine():
    assert record_of_canary(canary_verdict(), "c").series == record_of_canary(canary_verdict(2, seed=1), "c").series
    assert record_of_canary(canary_verdict(), "c", branch="b", machine="runners").series.place == "b, runners"
    assert record_of_canary(canary_verdict(), "c").entry.fingerprint["kernel"] == "6.1.0"
    assert not any(figure.is_valid for figure in record_of_canary(canary_verdict(kind="invalid"), "c").figures)


def test_control_pairs_are_a_canary_and_other_verdicts_are_none():
    control = canary_verdict().comparisons
    record = record_of_canary(canary_verdict(candidate="cmd:b", comparisons=(), control=control, kind="regressed"), "c")
    assert record.figures == record_of_canary(canary_verdict(), "c").figures
    for facts in ({"candidate": "cmd:b"}, {"mode": "stored"}, {"comparisons": ()}):
        with pytest.raises(UsageError, match="c: this verdict does not compare a server with itself"):
            record_of_canary(canary_verdict(**facts), "c")


def test_a_noisier_machine_is_an_alarm_of_the_history(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    for day in range(1, 25):
        folder = tmp_path / f"canary{day}"
        folder.mkdir()
        noisy = canary_verdict(day, noise=0.01 if day < 13 else 0.05, seed=day)
        (folder / "verdict.json").write_text(json.dumps(noisy.document()))
    assert main(["history", "add", *(f"canary{day}" for day in range(1, 24)), "canary24/verdict.json"]) == 0
    assert capsys.readouterr().out == "perfkit-history.sqlite: 24 added\n"
    with open_history(tmp_path / "perfkit-history.sqlite") as history:
        assert {len(trend.values) for trend in history.trends(Choice(metrics=("noise_p99", "mde_p99")))} == {24}
    assert main(["history", "check", "--metric", "noise_p99"]) == 1
    said = capsys.readouterr().out
    assert said.startswith("alarm: smoke: noise_p99, http, 70 % of the capacity (main, host-a): the machine got noisier: ")
    assert "higher since 2026-01-13" in said
    assert main(["history", "plot", "--out", "page.html"]) == 0
    assert "Noise floor" in (tmp_path / "page.html").read_text()
