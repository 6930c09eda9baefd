"""The noise floor of a machine as a series of the history, from gates of a server against itself."""

import json
import math
import statistics

import pytest

from perfkit.cli.main import main
from perfkit.errors import UsageError
from perfkit.gate.canary import record_of_canary
from perfkit.gate.paired_decision import decide_control
from perfkit.gate.paired_values import MetricChoice
from perfkit.gate.verdict import Verdict
from perfkit.history.file import Choice, open_history
from tests.simulated_pairs import make_pairs
from tests.stored_results import ENVIRONMENT


def verdict(day=1, *, noise=0.02, seed=0, **facts):
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
    quiet = verdict(noise=0.002)
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
    assert record_of_canary(verdict(), "c").series == record_of_canary(verdict(2, seed=1), "c").series
    assert record_of_canary(verdict(), "c", branch="b", machine="runners").series.place == "b, runners"
    assert record_of_canary(verdict(), "c").entry.fingerprint["kernel"] == "6.1.0"
    assert not any(figure.is_valid for figure in record_of_canary(verdict(kind="invalid"), "c").figures)


def test_control_pairs_are_a_canary_and_other_verdicts_are_none():
    control = verdict().comparisons
    record = record_of_canary(verdict(candidate="cmd:b", comparisons=(), control=control, kind="regressed"), "c")
    assert record.figures == record_of_canary(verdict(), "c").figures
    for facts in ({"candidate": "cmd:b"}, {"mode": "stored"}, {"comparisons": ()}):
        with pytest.raises(UsageError, match="c: this verdict does not compare a server with itself"):
            record_of_canary(verdict(**facts), "c")


def test_a_noisier_machine_is_an_alarm_of_the_history(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    for day in range(1, 25):
        folder = tmp_path / f"canary{day}"
        folder.mkdir()
        noisy = verdict(day, noise=0.01 if day < 13 else 0.05, seed=day)
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
