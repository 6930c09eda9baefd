import pytest

from perfkit.gate.bisect.revision_decision import decide_revision, find_threshold
from perfkit.gate.metrics import MetricChoice
from perfkit.gate.paired import rule_for
from perfkit.gate.paired_decision import decide_pairs
from perfkit.gate.pairs import Pair, random_order
from perfkit.gate.verdict import Verdict
from tests.simulated_pairs import disturbed, make_pairs, make_run

CHOICE, RULE = MetricChoice(is_standard=True), rule_for(4)


def verdict_on(pairs):
    decision = decide_pairs(RULE, pairs, CHOICE)
    assert decision is not None
    return Verdict(
        kind=decision.kind, reasons=decision.reasons, mode="paired", scenario="s", baseline="", candidate="", false_alarm_rate=0.01,
        pairs=len(pairs), looks=RULE.looks, comparisons=decision.comparisons, started_at="",
    )  # fmt: skip


@pytest.fixture
def threshold():
    """The threshold for a bad revision that takes half as long again."""
    found = find_threshold(verdict_on(make_pairs(12, 1.5)))
    assert found is not None
    return found


def pairs_of(good, other, count=60):
    """Pairs whose times are those of `make_run` by these factors, slightly different in each."""
    return [
        Pair(
            number=number, kind="pair", seed=number, first=random_order(0, number)[0],
            baseline=make_run(good), candidate=make_run(other * (1 + 1e-4 * (number - count / 2))),
        )
        for number in range(count)
    ]  # fmt: skip


def answer_of(pairs, threshold, most=60):
    return next(
        answer for count in range(len(pairs) + 1) if (answer := decide_revision(pairs[:count], threshold, CHOICE, most)) is not None
    )


def test_the_threshold_is_half_of_the_change_on_a_logarithmic_scale(threshold):
    assert threshold.limit in ("+22.4 %", "+22.5 %", "-18.3 %", "-18.4 %", "-18.5 %")  # of times, or of a rate
    assert threshold.is_shown
    assert set(threshold.regressed) == {
        "throughput, http, concurrency 4",
        *(f"{name}, http, 70/s poisson" for name in ("p50", "p95", "p99")),
    }


@pytest.mark.parametrize("pairs", [make_pairs(12), make_pairs(20, noise=0.5)])
def test_without_a_regression_there_is_no_threshold(pairs):
    assert find_threshold(verdict_on(pairs)) is None


@pytest.mark.parametrize(
    ("factor", "outcome"), [(1.0, "not_slower"), (1.15, "not_slower"), (1.3, "slower"), (1.5, "slower"), (0.5, "not_slower")]
)
def test_a_revision_is_on_one_side_of_the_threshold(threshold, factor, outcome):
    answer = answer_of(pairs_of(1.0, factor), threshold)
    assert (answer.outcome, answer.pairs) == (outcome, 10)
    assert answer.comparison is not None


def test_a_machine_that_became_slow_hides_no_slower_revision(threshold):
    # three times the time for both, of which 20 of 30 ms are the disturbance's: +50 % is +16.7 % by then, below the threshold
    hidden = answer_of(pairs_of(3.0, 3.5), threshold)
    assert (hidden.outcome, hidden.pairs) == ("undecided", 60)
    assert answer_of(pairs_of(3.0, 3.0), threshold).outcome == "not_slower"
    assert answer_of(pairs_of(0.5, 0.5), threshold).outcome == "not_slower"


@pytest.mark.parametrize(
    ("factor", "share", "outcome"),
    [
        (1.15, 0.2, "not_slower"),  # +15 %, of which a fifth may be the generator's: +18.75 % of the server's own
        (1.15, 0.5, "undecided"),  # +30 %, beyond the threshold of +22.5 %
        (1.0, 0.95, "undecided"),  # nothing is known of the server
        (1.5, 0.5, "slower"),  # a disturbance feigns no slowdown
    ],
)
def test_a_revision_is_not_slower_only_if_the_generator_hides_no_change(threshold, factor, share, outcome):
    assert answer_of(disturbed(pairs_of(1.0, factor), share), threshold).outcome == outcome


def test_the_pairs_that_are_not_the_generators_decide_and_their_interval_is_shown(threshold):
    unchanged = pairs_of(1.0, 1.0)
    enough = [*unchanged[:10], *disturbed(unchanged[10:], 0.95)]
    assert (answer_of(enough, threshold).outcome, answer_of(enough, threshold).pairs) == ("not_slower", 10)
    few = answer_of([*unchanged[:5], *disturbed(unchanged[5:], 0.95)], threshold)
    assert (few.outcome, few.pairs) == ("undecided", 60)
    assert None in few.comparison.interval  # how much worse it may be is open


def test_a_gate_ends_undecided_at_its_most_pairs(threshold):
    at_it = [pair for two in zip(pairs_of(1.0, 1.1), pairs_of(1.0, 1.4), strict=True) for pair in two]
    assert answer_of(at_it, threshold, 14).pairs == 14


def test_pairs_that_no_gate_may_use_make_the_answer_invalid(threshold):
    assert answer_of(make_pairs(5, valid=False, codes=["generator_bound"]), threshold).outcome == "invalid"
    assert answer_of(make_pairs(1, failed=30), threshold).outcome == "skipped"
    assert answer_of(make_pairs(1, without=(threshold.metric.name,)), threshold).outcome == "invalid"
    others = tuple({"throughput", "p50", "p95", "p99"} - {threshold.metric.name})
    assert answer_of(make_pairs(10, without=others), threshold).outcome == "not_slower"
