import collections

import pytest

from benchmarks.live_gates import CANDIDATES, FinishedGate, plan_gates, report, upper_bound
from perfkit.gate.verdict import Verdict
from server_stub.synthetic.declaration import parse_service_model


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


def test_candidates_of_each_kind_are_spread_over_the_whole_time():
    specs = plan_gates((8, 4, 2, 2))
    assert [spec.number for spec in specs] == list(range(16))
    assert collections.Counter(spec.candidate for spec in specs) == dict(zip(CANDIDATES, (8, 4, 2, 2), strict=True))
    for half in (specs[:8], specs[8:]):
        assert {spec.candidate for spec in half} == set(CANDIDATES)
    assert len({spec.name for spec in specs}) == 16


def test_the_report_counts_only_judged_gates():
    kinds = ["pass", "pass", "regressed", "invalid", "error", "pass"]
    finished = [FinishedGate(spec, verdict(kind), 1.5) for spec, kind in zip(plan_gates((6, 0, 0, 0)), kinds, strict=True)]
    text = "\n".join(report(finished, "6m", 0.3))
    assert "- unchanged: 3 pass, 1 regressed, 1 invalid, 1 error." in text
    assert "- errors +0.5 %: none." in text
    assert "1 false alarms in 4 gates:" in text
    assert f"**{upper_bound(1, 4):.0%}**" in text
    assert "- gate 4: For a reason." in text
    assert "a process that takes 30% of a core" in text


def test_unjudged_gates_give_no_bound():
    finished = [FinishedGate(spec, verdict("invalid"), 1.0) for spec in plan_gates((2, 0, 0, 0))]
    assert "No unchanged candidate was judged" in "\n".join(report(finished, "6m", 0.0))


def test_every_planted_change_is_one_that_the_server_takes():
    for law in CANDIDATES.values():
        parse_service_model(law)
