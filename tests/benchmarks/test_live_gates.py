import pytest

from benchmarks.live_gates import Finished, plan, report, upper_bound
from perfkit.gate.verdict import Verdict


def verdict(kind):
    return Verdict(
        kind=kind, reasons=("For a reason.",), mode="paired", scenario="x", baseline="a", candidate="b", false_alarm_rate=0.01, pairs=12,
        started_at="",
    )  # fmt: skip


@pytest.mark.parametrize(
    ("alarms", "gates", "bound"),
    [(0, 12, 0.2209), (0, 59, 0.0495), (0, 300, 0.00994), (1, 12, 0.3387), (2, 10, 0.5069), (3, 3, 1.0)],  # published tables'
)
def test_few_gates_bound_the_rate_of_false_alarms_by_little(alarms, gates, bound):
    assert upper_bound(alarms, gates) == pytest.approx(bound, abs=5e-5)


def test_the_slower_candidates_stand_between_the_others():
    planned = plan(12, 4)
    assert [one.number for one in planned if one.slower != 1] == [2, 6, 10, 14]
    assert len(planned) == 16
    assert all(one.slower == 1 for one in plan(3, 0))


def test_the_report_counts_gates_that_had_a_verdict():
    kinds = ["pass", "pass", "regressed", "invalid", "inconclusive", "pass"]
    finished = [Finished(one, verdict(kind), 1.0) for one, kind in zip(plan(5, 1), kinds, strict=True)]
    assert [one.planned.number for one in finished if one.planned.slower != 1] == [3]
    text = report(finished, "1s")
    assert "- Unchanged candidates: 3 pass, 1 regressed, 1 inconclusive." in text
    assert "- Candidates with 10% more service time: 1 invalid." in text
    assert "1 false alarms in 5 gates:" in text
    assert f"**{upper_bound(1, 5):.0%}**" in text
    assert "- gate 4: For a reason." in text


def test_gates_without_a_verdict_bound_nothing():
    finished = [Finished(one, verdict("invalid"), 1.0) for one in plan(2, 0)]
    assert "No unchanged candidate got a verdict" in report(finished, "1s")
