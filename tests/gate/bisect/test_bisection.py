"""Bisections of revisions whose speeds are known, measured with simulated noise."""

import json
import random

import pytest

from benchmarks.gate_simulation import METRICS
from perfkit.bisection.folder import Bisection
from perfkit.errors import ResultError
from tests.closed_schema import validator_of
from tests.simulated_revisions import SimulatedRevisions, bisect, slower_from

TEN = dict.fromkeys(METRICS, 1.1)
STRONG = dict.fromkeys(METRICS, 1.5)


@pytest.mark.parametrize("seed", range(5))
def test_a_planted_regression_among_32_revisions_is_found_in_at_most_six_gates(tmp_path, seed):
    first = random.Random(seed).randint(1, 32)
    source = SimulatedRevisions(slower_from(first, 32, **TEN), seed=seed)
    found = bisect(source, tmp_path / "out")
    assert found.kind == "found"
    assert found.first_slower.subject == f"Change {first}"
    assert len(source.measured) <= 6
    assert source.measured[0] == 32
    assert source.finished
    assert found.error_rate == pytest.approx(0.06)
    assert found.interval is not None
    assert found.regression is not None
    low, high = found.interval
    truth = 1 / 1.1 if found.regression.metric == "throughput" else 1.1
    assert (low or 0.0) < truth < (high or 10.0)


@pytest.mark.parametrize("first", [1, 2, 17, 31, 32])
def test_the_ends_of_the_path_are_found_too(tmp_path, first):
    found = bisect(SimulatedRevisions(slower_from(first, 32, **STRONG)), tmp_path / "out")
    assert found.first_slower.subject == f"Change {first}"
    assert [one.subject for one in found.suspects] == [f"Change {first}"]


def test_a_path_of_one_revision_takes_one_gate(tmp_path):
    source = SimulatedRevisions(slower_from(1, 1, **STRONG))
    assert bisect(source, tmp_path / "out").first_slower.subject == "Change 1"
    assert source.measured == [1]


def test_the_metric_that_regressed_decides_whatever_the_others_do(tmp_path):
    slowdowns = [{"p50": 0.8 if number > 5 else 1.0, "p95": 1.5 if number >= 20 else 1.0} for number in range(33)]
    found = bisect(SimulatedRevisions(slowdowns), tmp_path / "out")
    assert (found.first_slower.subject, found.regression.metric) == ("Change 20", "p95")
    assert found.regression.regressed == ("p95, http, 70/s poisson",)


def test_a_revision_that_cannot_be_built_is_skipped_for_its_neighbour(tmp_path):
    source = SimulatedRevisions(slower_from(12, 32, **STRONG), faults={16: "broken", 7: "failing"})
    found = bisect(source, tmp_path / "out")
    assert found.first_slower.subject == "Change 12"
    skipped = {gate.position: gate.reason for gate in found.gates if gate.outcome == "skipped"}
    assert skipped == {
        16: "it could not be built: `make` ended with exit code 2; it said: no rule.",
        7: "3.0% of its requests failed, so its times do not measure its speed.",
    }
    assert 15 in source.measured


def test_revisions_that_cannot_be_built_around_the_change_are_named_as_suspects(tmp_path):
    found = bisect(SimulatedRevisions(slower_from(12, 32, **STRONG), faults=dict.fromkeys((11, 12, 13), "broken")), tmp_path / "out")
    assert (found.kind, found.first_slower) == ("inconclusive", None)
    assert [one.subject for one in found.suspects] == ["Change 11", "Change 12", "Change 13", "Change 14"]
    assert found.reasons[0].startswith("The first slower revision is one of 4: 000000000")
    assert found.reasons[1].startswith("Not measured: ")


def test_an_invalid_gate_is_measured_again_once(tmp_path):
    source = SimulatedRevisions(slower_from(3, 8, **STRONG), faults={4: [True]})
    assert bisect(source, tmp_path / "out").first_slower.subject == "Change 3"
    assert source.measured.count(4) == 2
    ended = bisect(SimulatedRevisions(slower_from(3, 8, **STRONG), faults={4: [True, True]}), tmp_path / "other")
    assert ended.kind == "invalid"
    assert "was invalid in 2 attempts. The load generator could not keep up" in ended.reasons[0]
    assert len(ended.suspects) == 8


def test_without_a_regression_nothing_is_searched(tmp_path):
    source = SimulatedRevisions(slower_from(99, 32))
    ended = bisect(source, tmp_path / "out")
    assert (ended.kind, ended.regression, ended.gates) == ("inconclusive", None, ())
    assert ended.reasons[0].startswith("There is no regression to search for: 0000000000 (Change 32) is not shown to be slower than")
    assert source.measured == [32]
    faster = bisect(SimulatedRevisions(slower_from(5, 32, **dict.fromkeys(METRICS, 0.7))), tmp_path / "faster")
    assert "is faster (throughput, http, concurrency 4: +4" in faster.reasons[1]
    assert "--good is the older and faster revision" in faster.reasons[1]
    invalid = bisect(SimulatedRevisions(slower_from(5, 32, **STRONG), faults={32: "invalid"}), tmp_path / "invalid")
    assert invalid.kind == "invalid"


def test_a_change_in_two_steps_is_said_to_be_one(tmp_path):
    small_first = [{"throughput": 1.0 if number < 10 else 1.15 if number < 20 else 1.5} for number in range(33)]
    found = bisect(SimulatedRevisions(small_first), tmp_path / "out")
    assert found.first_slower.subject == "Change 20"
    assert any("came in before it: --good" in reason for reason in found.reasons)
    large_first = [{"throughput": 1.0 if number < 10 else 1.3 if number < 20 else 1.5} for number in range(33)]
    found = bisect(SimulatedRevisions(large_first), tmp_path / "large")
    assert found.first_slower.subject == "Change 10"
    assert any("came in after it: --good" in reason for reason in found.reasons)
    assert found.step == pytest.approx(1 / 1.3, rel=0.1)


def test_an_interrupted_bisection_continues_after_its_last_gate(tmp_path):
    def interrupt(_position, number):
        if number == 4:
            raise KeyboardInterrupt

    source = SimulatedRevisions(slower_from(12, 32, **STRONG))
    source.before = interrupt
    with pytest.raises(KeyboardInterrupt):
        bisect(source, tmp_path / "out")
    assert source.measured == [32, 16, 8]
    assert not source.finished
    messages: list[str] = []
    source.before = None
    assert bisect(source, tmp_path / "out", messages).first_slower.subject == "Change 12"
    assert source.measured == [32, 16, 8, 32, 12, 10, 11]  # the first gate's verdict is read again
    assert messages[0].endswith("about 4 gates")
    assert json.loads((tmp_path / "out" / "bisection.json").read_text())["kind"] == "found"
    with pytest.raises(ResultError, match="is not that of an unfinished bisection"):
        bisect(source, tmp_path / "out")


def test_the_document_is_that_of_its_schema(tmp_path):
    found = bisect(SimulatedRevisions(slower_from(12, 32, **STRONG), faults={16: "broken"}), tmp_path / "out")
    document = json.loads((tmp_path / "out" / "bisection.json").read_text())
    validator_of("bisection").validate(document)
    assert Bisection.model_validate(document) == found
