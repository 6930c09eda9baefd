"""The `sequences` section."""

import pytest

from perfkit.errors import ScenarioError
from perfkit.load.point import load_points
from perfkit.load.sequences import LengthLaw
from perfkit.scenario.file import read_scenario

CLOSED = "target: {model: m}\nload: {closed: {concurrency: [2, 4]}}\n"
OPEN = "target: {model: m}\nload: {open: {rate: 5}}\n"


def read(tmp_path, text):
    file = tmp_path / "s.yaml"
    file.write_text(text, encoding="utf-8")
    return read_scenario(file, (), {})


@pytest.mark.parametrize(
    ("text", "found"),
    [
        (CLOSED + "sequences: {length: 0}", "s.yaml:3: sequences.length: expected a number of steps from 1 on, or a law"),
        (CLOSED + "sequences: {length: {gamma: 3}}", "geometric with the mean; found {'gamma': 3}"),
        (CLOSED + "sequences: {length: {uniform: [3, 2]}}", "uniform takes the shortest length and the longest, found [3, 2]"),
        (CLOSED + "sequences: {live: 4}", "remove live; found 4 beside load.closed.concurrency [2, 4]"),
        (CLOSED + "sequences: {think_time: 1s}", "sequences.think_time is for open loops: give load.closed.think_time"),
        (OPEN + "sequences: {live: 4, think_time: 1s}", "think_time is for arrivals that start sequences: remove live"),
        (OPEN + "sequences: {ids: string, first_id: 3}", "first_id is for ids: integer"),
        (CLOSED + "sequences: {end_id: 9}", "s.yaml:3: sequences: end_id needs first_id, from which the ids count up: give both"),
        (CLOSED + "sequences: {first_id: 9, end_id: 9}", "end_id must be above first_id, found 9 and 9: the last id is the one below it"),
        (
            CLOSED + "sequences: {first_id: 1, end_id: 4}",
            "sequences.end_id: 3 ids are too few for the 4 live sequences of load.closed.concurrency: raise end_id, or lower load.closed",
        ),
        (OPEN + "sequences: {live: 4, first_id: 1, end_id: 4}", "3 ids are too few for the 4 live sequences of sequences.live"),
        (
            OPEN + "sequences: {first_id: 1, end_id: 4}",
            "each arrival starts a sequence: give sequences.live, or the most as load.open.max_in",
        ),
        (
            "target: {model: m}\nload: {open: {rate: 5, max_in_flight: 4}}\nsequences: {first_id: 1, end_id: 4}",
            "3 ids are too few for the 4 live sequences of load.open.max_in_flight",
        ),
        (
            CLOSED + "sequences: {}\nworkload: {data: d.json, batch_size: 2}",
            "workload.batch_size: with data, each step of a sequence is one step of its stream: set it to 1",
        ),
        (
            OPEN + "sequences: {}\nworkload: {parameters: {sequence_id: 4}}",
            "workload.parameters.sequence_id is set by sequences: remove it",
        ),
        (OPEN + "sequences: {}\nshared_memory: system", "set shared_memory.outputs to false"),
        (OPEN + "sequence: {}", "did you mean 'sequences'?"),
    ],
)
def test_what_is_wrong_is_named_with_its_fix(tmp_path, text, found):
    with pytest.raises(ScenarioError) as caught:
        read(tmp_path, text)
    assert found in str(caught.value)


@pytest.mark.parametrize(
    ("length", "law"),
    [("7", LengthLaw(7, 7)), ("{uniform: [2, 5]}", LengthLaw(2, 5)), ("{geometric: 2.5}", LengthLaw(geometric_mean=2.5))],
)
def test_a_law_reaches_every_load_point_with_ids_and_lengths_of_its_own(tmp_path, length, law):
    points = load_points(read(tmp_path, CLOSED + f"sequences: {{length: {length}}}\nmeasure: {{repetitions: 2}}"))
    plans = [point.loads[0].sequences for point in points if point.loads[0].sequences is not None]
    assert [plan.length for plan in plans] == [law] * 4
    assert len({plan.first_id for plan in plans}) == 4
    assert len({plan.seed for plan in plans}) == 4


@pytest.mark.parametrize(
    ("workload", "given", "law"),
    [("{}", "{}", LengthLaw(20, 20)), ("{data: d.json}", "{}", None), ("{data: d.json}", "{length: 3}", LengthLaw(3, 3))],
)
def test_sequences_without_a_length_have_20_steps_or_the_length_of_their_stream(tmp_path, workload, given, law):
    points = load_points(read(tmp_path, CLOSED + f"sequences: {given}\nworkload: {workload}"))
    assert {point.loads[0].sequences.length for point in points if point.loads[0].sequences is not None} == {law}


def test_ids_of_a_range_reach_the_load_points(tmp_path):
    (point, _) = load_points(read(tmp_path, CLOSED + "sequences: {first_id: 7, end_id: 11}\nmeasure: {repetitions: 1}"))
    assert point.loads[0].sequences is not None
    assert (point.loads[0].sequences.first_id, point.loads[0].sequences.id_count) == (7, 4)


def test_arrivals_are_steps_or_start_sequences(tmp_path):
    (steps,) = load_points(read(tmp_path, OPEN + "sequences: {live: 3, length: 4, first_id: 9}\nmeasure: {repetitions: 1}"))
    (starts,) = load_points(read(tmp_path, OPEN + "sequences: {length: 4, think_time: 1ms}\nmeasure: {repetitions: 1}"))
    assert steps.loads[0].sequences is not None
    assert starts.loads[0].sequences is not None
    assert (steps.loads[0].sequences.live, steps.loads[0].sequences.first_id, steps.loads[0].sequences.requests_per_arrival) == (3, 9, 1)
    assert (starts.loads[0].sequences.live, starts.loads[0].sequences.think_time_ns, starts.loads[0].sequences.requests_per_arrival) == (
        None,
        10**6,
        4,
    )


def test_a_scenario_without_sequences_has_none(tmp_path):
    assert [point.loads[0].sequences for point in load_points(read(tmp_path, OPEN))] == [None] * 3
