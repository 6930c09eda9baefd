"""Predictions compared with measured values."""

from benchmarks.plan_densenet import ServerSetup, compare, rates, report

PREDICTED = {
    "configurations": [
        {
            "predictions": [
                {"percentile": "p50", "expected": {"rate_per_s": 10.4, "value": 100e6, "low": 80e6, "high": 130e6}},
                {"percentile": "p99", "expected": {"rate_per_s": 10.4, "value": 300e6, "low": 200e6, "high": 450e6}},
            ]
        }
    ]
}
MEASURED = {"summary": [{"valid": True, "response_time_ns": {"p50": 81_000_000, "p99": 451_000_000, "count": 260}}]}


def test_measured_values_are_compared_with_their_intervals():
    inside, outside = compare("onnx-1", PREDICTED, MEASURED)
    assert (inside.is_inside, outside.is_inside) == (True, False)
    assert (inside.half_width, outside.half_width) == (0.3, 0.5)


def test_a_withheld_percentile_is_not_inside():
    nothing = {"summary": [{"valid": True, "response_time_ns": {"p50": 81_000_000, "p99": None, "count": 60}}]}
    assert [one.is_inside for one in compare("onnx-1", PREDICTED, nothing)] == [True, False]


def test_the_report_shows_half_widths_and_counts_the_values_inside():
    plan = "# Capacity plan\n\n- 12 replicas.\n\n## Configurations\n"
    text = "\n".join(report(plan, compare("onnx-1", PREDICTED, MEASURED), ["batch-2: too few rates"]))
    assert "No plan for batch-2: too few rates" in text
    assert "| onnx-1 | 10.4/s | p99 | 300 ms | 200 to 450 ms | 50% | 451 ms | 260 | no | yes |" in text
    assert "Inside their intervals: 1 of 2; of the p99: 0 of 1." in text
    assert "\n## The plan\n" in text
    assert "\n### Configurations\n" in text


def test_rates_are_shares_of_the_saturated_throughput():
    assert rates(16.0, (0.65,)) == [10.4]
    assert rates(16.0, (0.5, 0.6, 0.7)) == [8.0, 9.6, 11.2]
    assert ServerSetup("densenet_batch", 2, "0,1").price == "batch-2=$0.10/h"
