"""A verdict in one line."""

import pytest

from perfkit.gate.headline import headline
from perfkit.gate.verdict import Comparison, Verdict


def comparison(metric, verdict, estimate, interval, *, load_point="http, concurrency 4", **changes):
    is_rate, is_share = metric == "throughput", metric == "error_rate"
    known = {
        "metric": metric, "load_point": load_point, "unit": "per_s" if is_rate else "share" if is_share else "ns",
        "better": "higher" if is_rate else "lower", "scale": "difference" if is_share else "ratio", "baseline": 0.1, "candidate": 0.1,
        "estimate": estimate, "interval": interval, "confidence": 0.9667, "pairs": 12, "noise_band": 0.001 if is_share else 0.01,
        "margin": 0.001 if is_share else 0.1 if metric == "p99" else 0.05, "verdict": verdict, "reason": "",
    }  # fmt: skip
    return Comparison.model_validate({**known, **changes})


def verdict(kind, *comparisons):
    return Verdict(
        kind=kind, reasons=("So.",), mode="paired", scenario="x", baseline="cmd:a", candidate="cmd:b", false_alarm_rate=0.01, pairs=12,
        comparisons=comparisons, started_at="2026-01-02T03:04:05.678+00:00",
    )  # fmt: skip


THROUGHPUT = comparison("throughput", "pass", 1.0, (1 / 1.022, 1.01))  # 1.022 times as slow
P99 = comparison("p99", "pass", 1.0, (0.97, 1.041))
ERRORS = comparison("error_rate", "pass", 0.0, (-0.0002, 0.0002))
SLOWER = comparison("p99", "regressed", 1.123, (1.079, 1.168))
FASTER = comparison("p50", "pass", 0.9, (0.85, 0.95), improved=True)


@pytest.mark.parametrize(
    ("kind", "comparisons", "line"),
    [
        ("pass", (THROUGHPUT, P99), "pass: no slowdown above 2.2 % of throughput, 4.1 % of p99"),
        ("pass", (P99, ERRORS), "pass: no slowdown above 4.1 % of p99; no rise of the error rate above 0.02 points"),
        # of each metric the load point that rules out least
        ("pass", (P99, comparison("p99", "pass", 1.0, (0.9, 1.08), load_point="b")), "pass: no slowdown above 8.0 % of p99"),
        ("pass", (comparison("p99", "pass", 0.99, (0.98, 0.995)),), "pass: no slowdown above 0.0 % of p99"),
        ("pass", (FASTER, P99), "pass: faster: p50 -10.0 % [-15.0, -5.0]; no slowdown above 4.1 % of p99"),
        (
            "pass",
            (comparison("error_rate", "pass", -0.02, (-0.03, -0.01), improved=True), P99),
            "pass: better: error rate -2.00 [-3.00, -1.00] points; no slowdown above 4.1 % of p99",
        ),
        ("regressed", (SLOWER, THROUGHPUT), "regressed: p99 +12.3 % [+7.9, +16.8]"),
        ("regressed", (SLOWER, FASTER), "regressed: p99 +12.3 % [+7.9, +16.8]; faster: p50 -10.0 % [-15.0, -5.0]"),
        (
            "regressed",
            (comparison("throughput", "regressed", 0.9, (0.88, 0.92)), comparison("throughput", "regressed", 0.8, (0.78, 0.82))),
            "regressed: throughput -20.0 % [-22.0, -18.0]",
        ),
        (
            "inconclusive",
            (THROUGHPUT, comparison("p99", "inconclusive", 1.05, (0.95, 1.14))),
            "inconclusive: no slowdown above 2.2 % of throughput; not ruled out: p99 worse by up to 14.0 % (margin 10 %)",
        ),
        (
            "inconclusive",
            (P99, comparison("p99", "inconclusive", 1.05, (None, None), load_point="b")),
            "inconclusive: not ruled out: p99 worse by any amount (margin 10 %)",
        ),
        (
            "inconclusive",
            (comparison("error_rate", "inconclusive", 0.001, (0.0, 0.0031)), comparison("throughput", "inconclusive", 0.9, (0.01, 1.1))),
            (
                "inconclusive: not ruled out: error rate worse by up to 0.31 points (margin 0.1 points), "
                "throughput worse by any amount (margin 5 %)"
            ),
        ),
        ("invalid", (SLOWER,), "invalid: this measurement cannot be relied on"),
        ("incomparable", (), "incomparable: baseline and candidate were measured under different conditions"),
        ("pass", (), "pass: no metric is worse than its margin allows"),
        ("pass", (comparison("p99_9", "inconclusive", 2.0, (1.0, 3.0), gated=False),), "pass: no metric is worse than its margin allows"),
    ],
)  # fmt: skip
def test_the_headline_says_what_was_found_and_what_was_ruled_out(kind, comparisons, line):
    assert headline(verdict(kind, *comparisons)) == line
