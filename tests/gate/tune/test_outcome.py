"""What a tune says, by what its windows show."""

import pytest

from perfkit.gate.tune.outcome import config_diff, percent_text
from perfkit.gate.tune.race import Ratio, answer_of
from tests.gate.tune.tune_outcomes import make_outcome


def test_a_better_configuration_is_named_with_its_ratio_and_what_the_others_may_be():
    outcome = make_outcome([100, 160, 130])
    assert outcome.kind == "better"
    assert outcome.sentence.startswith("instance_group.count 1 → 2: 1.60 times the throughput under p99 < 50ms [1.59, 1.6")
    assert outcome.sentence.endswith("; all others are shown worse.")
    assert [row.state for row in outcome.rows] == ["worse", "racing", "worse"]
    assert "best.config.pbtxt" in outcome.next_step
    assert outcome.command == ""


def test_a_command_is_named_where_perfkit_starts_the_server():
    outcome = make_outcome([100, 160], restores=False)
    assert outcome.command == "serve 2"


def test_one_that_is_hardly_better_is_not_worth_a_change():
    outcome = make_outcome([100, 101])
    assert outcome.kind == "kept"
    assert outcome.sentence.startswith("The present configuration is good enough: the best other one has 1.01 times the throughput")
    assert outcome.next_step == ""


def test_nothing_better_than_the_present_configuration():
    outcome = make_outcome([100, 100.2, 60], rounds=20)
    assert outcome.kind == "kept"
    assert outcome.best == 0
    assert outcome.sentence.startswith("No better configuration was found than the present one; no other is better than it by more than ")


def test_a_tie_beside_the_best_is_bounded():
    outcome = make_outcome([100, 160, 160.2], rounds=20)
    assert outcome.kind == "better"
    assert outcome.others_better_by is not None
    assert 0 < outcome.others_better_by <= 0.03
    assert "no other is better than it by more than" in outcome.sentence


def test_noise_leaves_it_undecided_and_names_what_is():
    outcome = make_outcome([100, 110, 112], rounds=3, pairs=3, noise=40)
    assert outcome.kind == "undecided"
    assert outcome.notes[-1] == "More time decides more: --resume with a longer --time."
    assert any(note.startswith("Not told apart from the best one: instance_group.count") for note in outcome.notes)
    assert "before the best configuration was compared with the present one" in " ".join(outcome.notes)


def test_a_present_configuration_that_misses_the_slo_has_no_ratio():
    outcome = make_outcome([0, 100, 50])
    assert outcome.kind == "better"
    assert outcome.ratio is None
    assert outcome.sentence.startswith(
        "instance_group.count 1 → 2: 100/s under p99 < 50ms, which the present configuration meets at no load"
    )


def test_a_refused_configuration_has_no_place_in_the_answer():
    outcome = make_outcome([100, 160, 300], refused=[2])
    assert outcome.kind == "better"
    assert outcome.best == 1
    assert outcome.sentence.endswith("; 1 is shown worse; 1 could not be compared (1 refused).")
    assert (outcome.rows[2].state, outcome.rows[2].reason, outcome.rows[2].throughput_per_s) == ("refused", "out of memory", None)


@pytest.mark.parametrize("refused", [1, 2])
def test_nothing_is_said_to_be_worse_that_was_not_compared(refused):
    outcome = make_outcome([100, 90, 80][: refused + 1], refused=range(1, refused + 1))
    assert (outcome.kind, outcome.best) == ("kept", 0)
    assert outcome.sentence == (
        f"No better configuration was found than the present one; {refused} could not be compared ({refused} refused)."
    )


def test_a_better_one_that_may_miss_the_slo_is_undecided():
    outcome = make_outcome([100, 160], doubtful=[1])
    assert outcome.rows[1].slo == "inconclusive"
    assert outcome.kind == "undecided"
    assert any("instance_group.count 2 meets the SLO is not shown: The SLO is inconclusive" in note for note in outcome.notes)
    assert make_outcome([100, 160], doubtful=[0]).kind == "better", "the present one is not the one to use"


def test_a_present_one_that_may_miss_the_slo_is_not_kept():
    assert make_outcome([100, 60], doubtful=[0]).kind == "undecided"
    assert make_outcome([100, 101], doubtful=[0]).kind == "undecided"
    assert make_outcome([100, 101], doubtful=[1]).kind == "kept"


@pytest.mark.parametrize(("high", "bound", "answer"), [(1.02, 1.005, "kept"), (1.02, 1.02, None), (1.02, None, None), (1.03, 1.0, "kept")])
def test_the_present_one_is_kept_where_neither_the_leader_nor_another_is_better_by_more(high, bound, answer):
    assert answer_of(Ratio(1.0, 0.99, high, 5), bound, 0.03) == answer
    assert answer_of(Ratio(1.05, 1.01, high + 0.1, 5), bound, 0.03) == "better"


def test_one_that_was_not_measured_leaves_it_undecided():
    outcome = make_outcome([100, 160], rounds=0, pairs=0)
    assert outcome.kind == "undecided"


def test_no_configuration_that_meets_the_slo():
    outcome = make_outcome([0, 0])
    assert outcome.sentence == "No configuration was found that answers requests with p99 < 50ms."
    assert outcome.best is None


@pytest.mark.parametrize(("share", "text"), [(0.0, "0 %"), (0.02001, "2.1 %"), (0.03, "3 %"), (0.125, "12.5 %")])
def test_a_bound_is_rounded_up(share, text):
    assert percent_text(share) == text


def test_a_difference_of_configurations_has_the_changed_keys_alone():
    diff = config_diff('{"b": [1], "a": 1}', '{"a": 1, "b": [2]}')
    assert [line for line in diff.splitlines() if line[0] in "+-" and line[:3] not in ("+++", "---")] == ["-    1", "+    2"]


def test_a_searched_space_says_how_much_of_it_was_measured():
    outcome = make_outcome([100, 160, 160.2], rounds=20, unmeasured=77)
    assert outcome.kind == "better"
    assert (len(outcome.rows), outcome.space) == (3, 80)
    assert "no measured one is better than it by more than" in outcome.sentence
    assert outcome.sentence.endswith("; 3 of 80 configurations of the space were measured.")
    assert make_outcome([100, 160, 130], unmeasured=77).sentence.endswith(
        "; all others that were measured are shown worse; 3 of 80 configurations of the space were measured."
    )


def test_neighbours_that_were_not_measured_are_counted():
    outcome = make_outcome([100, 130, 160], unmeasured=77)  # the counts go on with 4
    assert outcome.unmeasured_neighbours == 1
    assert "1 neighbour of the best configuration was not measured: the time was over." in outcome.notes
    assert make_outcome([100, 160, 130], unmeasured=77).unmeasured_neighbours == 0


def test_the_objective_is_in_the_sentence():
    latency = make_outcome([0.1, 0.2], objective="latency")
    assert latency.sentence.startswith(
        "instance_group.count 1 → 2: p99 at 100/s 0.50 times the present one's under p99 < 50ms [0.50, 0.50]; all others"
    )
    assert latency.ratio == pytest.approx(0.5, rel=0.01)
    assert latency.interval is not None
    assert latency.interval[0] < (latency.ratio or 0.0) < latency.interval[1]
    assert [row.p99_ns is not None for row in latency.rows] == [True, True]
    cost = make_outcome([100, 160], objective="cost")
    assert cost.sentence.startswith("instance_group.count 1 → 2: 1.60 times the throughput per CPU in use under p99 < 50ms [1.59, 1.6")
    assert cost.rows[1].server_cpus == pytest.approx(2.0)


def test_what_each_key_does_by_itself_is_the_ratio_in_common_rounds():
    outcome = make_outcome([100, 160, 130], rounds=5)
    assert [(effect.key, effect.value, effect.number) for effect in outcome.effects] == [
        ("instance_group.count", "2", 1),
        ("instance_group.count", "3", 2),
    ]
    assert [effect.ratio for effect in outcome.effects] == pytest.approx([1.6, 1.3], rel=0.005)
    assert all(effect.interval[0] < effect.ratio < effect.interval[1] for effect in outcome.effects)
    assert all(effect.rounds >= 2 for effect in outcome.effects)
    latency = make_outcome([0.1, 0.2], objective="latency").effects[0]
    assert latency.ratio == pytest.approx(0.5, rel=0.01)


def test_a_present_one_that_does_not_have_the_load_is_no_measure():
    outcome = make_outcome([0, 0.2, 0.1], objective="latency")
    assert outcome.rows[0].state == "unmet"
    assert outcome.sentence.startswith(
        "instance_group.count 1 → 2: p99 at 100/s 5.00 ms under p99 < 50ms; the present configuration does not sustain that load within the limits"
    )
    assert make_outcome([0, 0], objective="latency").sentence == (
        "No configuration was found that answers requests at 100/s with p99 < 50ms."
    )


def test_nothing_is_kept_where_of_a_larger_space_nothing_else_was_measured():
    outcome = make_outcome([100], rounds=8, unmeasured=79)
    assert (outcome.kind, outcome.best) == ("undecided", 0)
    assert outcome.notes[:2] == (
        "Of 80 configurations, none but the present one could be measured.",
        "More time does not decide more: give another --out once the cause is gone.",
    )
    refused = make_outcome([100, 160], refused=[1], unmeasured=78)
    assert (refused.kind, refused.best) == ("undecided", 0)
    assert make_outcome([100, 60], unmeasured=78).kind == "kept"
