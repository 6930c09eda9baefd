"""The same warning of many load points is one sentence."""

import pytest

from perfkit.errors import MeasurementWarning
from perfkit.report.grouped_warnings import grouped_by_case, grouped_warnings, joined_messages
from tests.report.test_answer import closed


@pytest.mark.parametrize(
    ("messages", "joined"),
    [
        (["It is so."], "It is so."),
        (["It took 3 ms.", "It took 12.5 ms.", "It took 7 ms."], "It took 3 ms to 12.5 ms."),
        (["It took 900 µs.", "It took 1.20 s."], "It took 900 µs to 1.20 s."),
        (["7 of 1,200 arrivals were dropped", "9 of 1,200 arrivals were dropped"], "7 to 9 of 1,200 arrivals were dropped"),
        (["The host took 2.0% of it (p99 3 ms)", "The host took 1.5% of it (p99 3 ms)"], "The host took 1.5% to 2.0% of it (p99 3 ms)"),
        (["It took 3 ms.", "It took 3 % of it."], None),
        (["It took 3 ms.", "It waited 3 ms."], None),
        (["from 5.0 to 7.0 s", "from 5.0 to 8.0 s"], None),
        (["from 5.0 to 7.0 s", "from 4.0 to 7.0 s"], None),
        (["cc1plus (pid 77)", "cc1plus (pid 78)"], None),
        (["9 × 503: no", "9 × 500: no"], None),
        (["Versions 1, 2 answered", "Versions 1, 3 answered"], None),
        (["at http://h:8000/x 3 times", "at http://h:8001/x 3 times"], None),
        (["worker 1 of 2 (process 71) was killed", "worker 2 of 2 (process 71) was killed"], None),
        (["worker 1 of 2 (process 71) was killed", "worker 1 of 2 (process 72) was killed"], None),
        (["Too few samples for p99.9", "Too few samples for p99"], None),
    ],
)
def test_messages_that_differ_in_figures_alone_are_one_with_the_range_of_each(messages, joined):
    assert joined_messages(messages) == joined


def warned(*messages, code="steal"):
    return closed(
        *[100.0] * len(messages), warnings=[(MeasurementWarning(code, message),) if message else () for message in messages]
    ).summary


def test_a_fact_about_many_load_points_is_one_sentence():
    (one,) = grouped_warnings(warned("The host took 2.0%.", "The host took 1.5%.", "The host took 3.0%."))
    assert (one.message, one.load_points) == ("The host took 1.5% to 3.0%.", "all load points")


def test_messages_that_differ_in_words_are_told_with_their_load_points_the_first_three_of_them():
    texts = [f"It stood still from {second}.0 to 9.0 s. Look there." for second in (3, 4, 5, 6, 7)]
    (one,) = grouped_warnings(warned(*texts, "", code="stall"))
    assert one.message == (
        "http, concurrency 1: It stood still from 3.0 to 9.0 s. Look there. http, concurrency 2: It stood still from 4.0 to 9.0 s. "
        "http, concurrency 4: It stood still from 5.0 to 9.0 s. And 2 more."
    )
    assert one.load_points == "http, concurrency 1, 2, 4, 8, 16"


def test_the_cases_of_a_sweep_are_one_sentence_too():
    found = grouped_by_case([("a", warned("It took 3 ms.")), ("b", warned("It took 5 ms.")), ("c", warned(""))])
    assert [(one.message, one.load_points) for one in found] == [
        ("It took 3 ms to 5 ms.", "a: http, concurrency 1; b: http, concurrency 1")
    ]
    (one,) = grouped_by_case([("a", warned("It took long.")), ("b", warned("It fell asleep.")), ("c", warned("It took long."))])
    assert (one.message, one.load_points) == ("a: It took long. b: It fell asleep.", "all cases")
