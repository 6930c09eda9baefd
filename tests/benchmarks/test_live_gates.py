import pytest

from benchmarks.live_gates import FinishedGate, plan_gates, report, upper_bound
from perfkit.gate.verdict import Verdict


def verdict(kind):
    return Verdict(
        kind=kind, reasons=("For a reason.",), mode="paired", scenario="x", baseline="a", candidate="b", false_alarm_rate=0.01, pairs=12,
        started_at="",
    )  # fmt: skip


@pytest.mark.parametrize(
    ("alarms", "gates", "bound"),
    [(0, 12, 0.2209), (0, 59, 0.0495), (0, 300, 0.00994), (1, 12, 0.3387), (2, 10, 0.5069), (3, 3, 1.0)],
)
def test_the_bound_on_the_alarm_rate_agrees_with_published_tables(alarms, gates, bound):
    assert upper_bound(alarms, gates) == pytest.approx(bound, abs=5e-5)


def test_slower_candidates_are_spread_evenly():
    specs = plan_gates(12, 4)
    assert [spec.number for spec in specs if spec.factor != 1] == [2, 6, 10, 14]
    assert len(specs) == 16
    assert all(spec.factor == 1 for spec in plan_gates(3, 0))


def test_the_report_counts_only_judged_gates():
    kinds = ["pass", "pass", "regressed", "invalid", "inconclusive", "pass"]
    finished = [FinishedGate(spec, verdict(kind), 1.0) for spec, kind in zip(plan_gates(5, 1), kinds, strict=True)]
    assert [gate.spec.number for gate in finished if gate.spec.factor != 1] == [3]
    text = "\n".join(report(finished, "1s"))
    assert "- Unchanged candidates: 3 pass, 1 regressed, 1 inconclusive." in text
    assert "- Candidates with 10% more service time: 1 invalid." in text
    assert "1 false alarms in 5 gates:" in text
    assert f"**{upper_bound(1, 5):.0%}**" in text
    assert "- gate 4: For a reason." in text


def test_unjudged_gates_give_no_bound():
    finished = [FinishedGate(spec, verdict("invalid"), 1.0) for spec in plan_gates(2, 0)]
    assert "No unchanged candidate was judged" in "\n".join(report(finished, "1s"))
