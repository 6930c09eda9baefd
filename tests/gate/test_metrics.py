"""Metrics, their comparisons from paired values, and the verdict as a document."""

import math

import pytest

from perfkit.gate.metrics import Metric, PairedValues
from perfkit.gate.paired import decide, rule_for
from perfkit.gate.paired_decision import compare_pairs, judge
from perfkit.gate.sentences import format_change
from perfkit.gate.verdict import Verdict

POINT = "http, concurrency 4"
THROUGHPUT, P99 = Metric("throughput", POINT, "per_s", 0.05), Metric("p99", POINT, "ns", 0.10)
ERRORS, P99_9 = Metric("error_rate", "all load points", "share", 0.001), Metric("p99_9", POINT, "ns", None)


def values(metric, baseline, factor=1.0, plus=0.0, count=12):
    """Pairs whose ratio is `factor` times 1 + k/10,000, with a different k for each."""
    base = tuple(baseline * (1 + 0.001 * index) for index in range(count))
    return PairedValues(metric, base, tuple(value * factor * (1 + 1e-4 * (index - count / 2)) + plus for index, value in enumerate(base)))


def compared(metrics, *given):
    return decide(judge(rule_for(metrics), given)), compare_pairs(rule_for(metrics), given)


def test_a_slower_candidate_is_reported_in_each_metrics_direction():
    decision, (throughput, p99, errors) = compared(2, values(THROUGHPUT, 1000, 1 / 1.2), values(P99, 5e6, 1.3), values(ERRORS, 0.0))
    assert decision == "regressed"
    assert (throughput.verdict, p99.verdict, errors.verdict) == ("regressed", "regressed", "pass")
    assert throughput.better == "higher"
    assert throughput.estimate == pytest.approx(1 / 1.2, rel=1e-3)
    assert throughput.slowdown == pytest.approx(0.2, abs=2e-3)
    assert p99.slowdown == pytest.approx(0.3, abs=2e-3)
    for one in (throughput, p99):
        low, high = one.interval
        assert low < one.estimate < high
        assert one.adjusted_p < 0.01
        assert one.reason.startswith(f"{one.title}: ")
        assert "worse by more than the noise band of 1 % (adjusted p" in one.reason
    assert format_change(throughput).startswith("-16.7 % [")
    assert (errors.estimate, errors.interval, errors.scale) == (0.0, (0.0, 0.0), "difference")


def test_a_pass_requires_the_interval_to_stay_within_the_margin():
    _, (passing, failing) = compared(2, values(P99, 5e6, 1.005), values(THROUGHPUT, 1000, 1 / 1.3))
    assert passing.verdict == "pass"
    assert passing.interval[1] < 1 + passing.margin
    assert passing.confidence == pytest.approx(1 - 2 * 0.3 * (0.05 - 2**-7))
    assert "within the margin of 10 %" in passing.reason
    assert failing.interval[0] < 1 / 1.05


def test_too_few_pairs_leave_the_interval_unbounded():
    decision, (p99,) = compared(1, values(P99, 5e6, 2.0, count=3))
    assert decision is None
    assert (p99.verdict, p99.interval) == ("inconclusive", (None, None))
    assert format_change(p99) == "+100.0 % [not bounded]"


def test_a_metric_for_information_does_not_count():
    decision, (_, for_information) = compared(1, values(P99, 5e6), values(P99_9, 5e6, 3.0))
    assert decision == "pass"
    assert (for_information.gated, for_information.adjusted_p) == (False, None)
    assert "for information only" in for_information.reason


def test_error_rates_are_compared_by_difference():
    decision, (_, errors) = compared(1, values(P99, 5e6), values(ERRORS, 0.0, plus=0.005))
    assert decision == "regressed"
    assert errors.estimate == errors.slowdown == pytest.approx(0.005)
    assert "+0.50 points [" in errors.reason


def test_a_faster_candidate_has_improved_and_passes():
    decision, (throughput, p99, errors) = compared(
        2, values(THROUGHPUT, 1000, 1.2), values(P99, 5e6, 0.995), values(ERRORS, 0.005, plus=-0.0045)
    )
    assert decision == "pass"
    assert [one.verdict for one in (throughput, p99, errors)] == ["pass"] * 3
    assert [one.outcome for one in (throughput, p99, errors)] == ["improved", "pass", "improved"]  # within 1 % is no change
    assert throughput.improvement_p < 0.01 < p99.improvement_p
    assert "better by more than the noise band of 1 % (adjusted p" in throughput.reason


@pytest.mark.parametrize("metric", [THROUGHPUT, P99])
def test_the_figures_of_a_row_differ_by_its_estimate_and_lie_among_the_values(metric):
    scattered = PairedValues(metric, (90.0, 101.0, 99.0, 250.0, 98.0), (108.0, 120.0, 131.0, 117.0, 119.0))
    (one,) = compare_pairs(rule_for(1), [scattered])
    assert one.baseline is not None
    assert one.candidate is not None
    assert one.candidate / one.baseline == pytest.approx(one.estimate, rel=1e-12)
    assert one.candidate / one.baseline != pytest.approx(119 / 99, rel=1e-3)  # the ratio of the medians
    assert 90 < one.baseline < 131
    assert 108 < one.candidate < 131


@pytest.mark.parametrize(("baseline", "candidate"), [(0.0, 0.0), (0.0, 0.004), (0.004, 0.0), (0.2, 0.9), (1.0, 0.3)])
def test_shares_of_a_row_differ_by_its_estimate_and_stay_shares(baseline, candidate):
    (one,) = compare_pairs(rule_for(0), [PairedValues(ERRORS, (baseline,) * 10 + (0.1,), (candidate,) * 10 + (0.0,))])
    assert one.baseline is not None
    assert one.candidate is not None
    assert one.candidate - one.baseline == pytest.approx(one.estimate, abs=1e-15)
    assert 0 <= one.baseline <= 1
    assert 0 <= one.candidate <= 1


def test_a_value_of_zero_has_no_ratio():
    with pytest.raises(ValueError, match="p99 at http, concurrency 4: there is no ratio of 5 to 0"):
        P99.difference(0.0, 5.0)


def test_a_verdict_survives_writing_and_reading():
    _, comparisons = compared(2, values(THROUGHPUT, 1000), values(P99, 5e6), values(ERRORS, 0.0), values(P99_9, 9e6))
    verdict = Verdict(
        kind="pass", reasons=("Fine.",), mode="paired", scenario="x", baseline="http://a", candidate="http://b", false_alarm_rate=0.01,
        pairs=12, looks=(12, 16, 20), comparisons=comparisons, started_at="2026-01-02T03:04:05.678+00:00",
    )  # fmt: skip
    document = verdict.document()
    assert document["schema"] == "perfkit.verdict/1"
    assert Verdict.model_validate(document) == verdict
    assert [one.metric for one in verdict.gated] == ["throughput", "p99", "error_rate"]
    effects = [one.minimum_detectable_effect for one in comparisons[:2]]
    assert verdict.minimum_detectable_effect == max(effects)
    assert all(math.isfinite(effect) and effect > 0.01 for effect in effects)
