"""Which part changed between two sides: the planted part is named with its interval, and nothing where nothing changed."""

import dataclasses
import json
import math

import numpy as np
import pytest

from perfkit.cli.main import main
from perfkit.gate.metrics import MetricChoice
from perfkit.gate.paired import rule_for
from perfkit.gate.paired_decision import decide_pairs
from perfkit.spans.breakdown import break_down
from perfkit.spans.change import change_between, change_over_pairs, describe_change
from perfkit.spans.split import PARTS, SplitRequests
from tests.report.test_breakdown import result_with, split_requests
from tests.simulated_pairs import CLOSED, OPEN, make_pairs
from tests.stored_results import document, write


def requests(seed, count=2_000, queue_ns=1_000_000):
    rng = np.random.default_rng(seed)
    parts = np.zeros((count, len(PARTS)), np.int64)
    parts[:, PARTS.index("queue")] = queue_ns + rng.exponential(500_000, count)
    parts[:, PARTS.index("compute_infer")] = 5_000_000 + rng.normal(0, 100_000, count)
    numbers = np.arange(count)
    return SplitRequests(("0" * 32,) * count, numbers, numbers, np.zeros(count, np.int64), parts, np.ones(len(PARTS), bool), 0, 0, 0)


def parts_of(queue_ns, infer_ns):
    return dict.fromkeys(PARTS, 0) | {"queue": round(queue_ns), "compute_infer": round(infer_ns)}


def test_a_longer_queue_is_named_with_its_interval():
    changes = change_between("http", break_down(requests(1)), break_down(requests(2, queue_ns=4_000_000)))
    assert [change.percentile for change in changes] == ["p50", "p99"]
    for change in changes:
        low, high = change.intervals_ns["queue"]
        assert low < 3_000_000 < high
        assert change.total_ns == sum(change.parts_ns.values())
        assert "more in the server's queue (" in describe_change(change)
        assert "inference" not in describe_change(change)


def test_the_intervals_are_the_root_of_the_squares_of_both():
    first, second = break_down(requests(1)), break_down(requests(2, queue_ns=4_000_000))
    change = change_between("http", first, second)[0]
    one, two = first.p50, second.p50
    assert one is not None
    assert two is not None
    halves = [(side.intervals_ns["queue"][1] - side.intervals_ns["queue"][0]) / 2 for side in (one, two)]
    low, high = change.intervals_ns["queue"]
    assert (high - low) / 2 == pytest.approx(math.hypot(*halves), rel=1e-3)


def test_a_part_that_one_side_does_not_know_did_not_change():
    """As of two servers of which one reports a single span: its queue is in the remainder."""
    rows, queue, rest = requests(2), PARTS.index("queue"), PARTS.index("remainder")
    moved, is_known = rows.parts_ns.copy(), rows.is_known.copy()
    moved[:, rest], moved[:, queue], is_known[queue] = moved[:, queue], 0, False
    silent = dataclasses.replace(rows, parts_ns=moved, is_known=is_known)
    for first, second in ((requests(1, queue_ns=4_000_000), silent), (silent, requests(1, queue_ns=4_000_000))):
        change = change_between("http", break_down(first), break_down(second))[0]
        assert change.parts_ns["queue"] == 0
        assert change.total_ns == sum(change.parts_ns.values())
        assert describe_change(change).endswith("; in no part for certain.")


def test_a_way_changed_only_beyond_the_errors_of_both_clocks():
    way = PARTS.index("request_way")

    def with_way(seed, way_ns):
        parts = requests(seed).parts_ns.copy()
        parts[:, way] = way_ns
        return dataclasses.replace(requests(seed), parts_ns=parts, clock_bound_ns=2_000_000)

    low, high = change_between("http", break_down(with_way(1, 1_000_000)), break_down(with_way(2, 4_000_000)))[0].intervals_ns[
        "request_way"
    ]
    assert (low, high) == (-1_000_000, 7_000_000)


def test_equal_sides_show_no_change_in_about_19_of_20_comparisons():
    said = [
        describe_change(change_between("http", break_down(requests(seed, 1_000)), break_down(requests(seed + 500, 1_000)))[0])
        for seed in range(100)
    ]
    assert sum("no change" in one for one in said) >= 88


def test_too_few_requests_are_said_to_be_that():
    (change,) = change_between("http", break_down(requests(1, 9)), break_down(requests(2)))
    assert describe_change(change) == (
        "Which part of the time changed at http, p50 cannot be told: too few samples (9 requests were traced; p50 needs 10 in each)."
    )


@pytest.mark.parametrize("sign", [1, -1])
def test_over_pairs_the_pair_is_the_unit(sign):
    rng = np.random.default_rng(3)
    pairs = []
    for _ in range(12):
        machine = rng.normal(0, 2e6)  # what both runs of a pair have in common does not matter
        first, second = (parts_of(20e6 + machine + added + rng.normal(0, 1e5), 5e6 + rng.normal(0, 1e5)) for added in (0, sign * 3e6))
        pairs.append(({"p50": first, "p99": first}, {"p50": second, "p99": second}))
    changes = change_over_pairs("http", pairs)
    assert [change.percentile for change in changes] == ["p50", "p99"]
    low, high = changes[0].intervals_ns["queue"]
    differences = [second["p50"]["queue"] - first["p50"]["queue"] for first, second in pairs]
    assert (low + high) / 2 == pytest.approx(np.mean(differences), abs=2)
    # Student's t at 97.5 % with 11 degrees of freedom, from tables
    assert (high - low) / 2 == pytest.approx(2.201 * np.std(differences, ddof=1) / np.sqrt(12), rel=1e-3)
    assert f"{'longer' if sign > 0 else 'shorter'}; " in describe_change(changes[0])
    assert f"{'more' if sign > 0 else 'less'} in the server's queue" in describe_change(changes[0])


def test_over_few_pairs_nothing_is_said():
    side = {"p50": parts_of(1, 1)}
    (change,) = change_over_pairs("http", [(side, side)] * 4)
    assert "too few samples (4 pairs were measured, 5 are needed)" in describe_change(change)
    assert "a run has too few traced requests" in describe_change(change_over_pairs("http", [(side, {})] * 12)[0])
    assert "a run has too few traced requests" in describe_change(change_over_pairs("http", [])[0])


def test_over_pairs_a_part_that_one_run_does_not_know_did_not_change():
    """In one run of ten the clock is not known, so that its ways are part of its remainder."""
    rng, pairs = np.random.default_rng(6), []
    for number in range(10):
        first, second = (parts_of(queue_ns + rng.normal(0, 1e5), 5e6) | {"request_way": 2_000_000} for queue_ns in (1e6, 4e6))
        if number == 4:
            del second["request_way"]
            second["remainder"] += 2_000_000
        pairs.append(({"p50": first}, {"p50": second}))
    (change,) = change_over_pairs("http", pairs)
    assert change.parts_ns["request_way"] == change.parts_ns["remainder"] == 0
    assert change.intervals_ns.keys() == {"total", *PARTS} - {"request_way", "remainder"}
    assert change.parts_ns["queue"] == change.total_ns == pytest.approx(3e6, rel=0.1)
    assert "more in the server's queue" in describe_change(change)


def test_a_gate_names_the_part_that_regressed():
    rng = np.random.default_rng(4)

    def with_parts(run, queue_ns):
        parts = {"p50": parts_of(queue_ns + rng.normal(0, 1e5), 5e6 + rng.normal(0, 1e5))}
        return run.model_copy(update={"points": tuple(point.model_copy(update={"parts_ns": parts}) for point in run.points)})

    pairs = [
        pair.model_copy(update={"baseline": with_parts(pair.baseline, 2e6), "candidate": with_parts(pair.candidate, 5e6)})
        for pair in make_pairs(12, 1.3)
    ]
    decision = decide_pairs(rule_for(4), pairs, MetricChoice(is_standard=True))
    assert decision is not None
    assert decision.kind == "regressed"
    assert [(change.load_point, change.percentile) for change in decision.parts] == [(CLOSED, "p50"), (OPEN, "p50")]
    assert sum("more in the server's queue" in reason for reason in decision.reasons) == 2
    untraced = [pairs[0].model_copy(update={"candidate": make_pairs(1, 1.3)[0].candidate}), *pairs[1:]]
    said = decide_pairs(rule_for(4), untraced, MetricChoice(is_standard=True))
    assert said is not None
    assert all("a run has too few traced requests" in describe_change(change) for change in said.parts)
    assert said.parts
    assert type(pairs[0]).model_validate(json.loads(pairs[0].model_dump_json())) == pairs[0]


def test_compare_says_which_part_changed(tmp_path, capsys):
    one, two, three = tmp_path / "one", tmp_path / "two", tmp_path / "three"
    write(one, result_with(split_requests(stalled_every=20)))
    write(two, result_with(split_requests(stalled_every=20, stall_ns=43_000_000)))
    write(three, document())
    assert main(["compare", str(one), str(two), str(three)]) == 0
    said = capsys.readouterr().out
    assert "[2] http, concurrency 4, p99: 10.0 ms longer; 10.0 ms more in the server's queue (" in said
    assert "[3] http, concurrency 4, p99" not in said
    assert main(["compare", str(one), str(two), "--format", "json"]) == 0
    found = json.loads(capsys.readouterr().out)["parts"]
    assert (found[0], [change["percentile"] for change in found[1]]) == ([], ["p50", "p99"])
