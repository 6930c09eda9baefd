"""Times to the first response, gaps and times to the last one, against their definitions for one request at a time."""

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from perfkit.recorder import recorder
from perfkit.recorder.histogram import encode
from perfkit.recorder.recorder import Recorder
from perfkit.recorder.recording import merge
from perfkit.recorder.window import cut
from perfkit.stats.buckets import EMPTY, BucketCounts
from perfkit.transport.base import Outcome, Reply

MS, S = 1_000_000, 1_000_000_000
START, END = 100 * S, 110 * S
NAMES = ("first_response_time", "response_gap", "stream_time")
TIMED = (Outcome.OK, Outcome.INVALID_OUTPUT, Outcome.TIMED_OUT, Outcome.UNFINISHED)
CANCELLED = (Outcome.TIMED_OUT, Outcome.UNFINISHED)


def reply(started_ns, gaps_ns, outcome=Outcome.OK, *, delay_ns=0, rest_ns=0):
    """A reply to a request whose responses come after each other by these gaps, and which ends some time after the last."""
    responses_ns = tuple(int(at) for at in started_ns + np.cumsum(np.array(gaps_ns, dtype=np.int64)))
    finished_ns = (responses_ns[-1] if responses_ns else started_ns) + rest_ns
    one = Reply(outcome, started_ns, finished_ns, None, "" if outcome is Outcome.OK else outcome.value, responses_ns=responses_ns)
    one.intended_ns = one.paced_ns = started_ns - delay_ns
    return one


def record(replies, *, is_open=False, window_end_ns=END):
    recorder = Recorder(window_start_ns=START, window_end_ns=window_end_ns, is_open=is_open, is_streamed=True)
    for one in replies:
        recorder.add(one)
    return recorder.finish(window_end_ns)


def window_of(replies, *, is_open=False):
    return cut(record(replies, is_open=is_open), START, is_open=is_open)


def test_a_stream_gives_the_time_to_its_first_response_its_gaps_and_the_time_to_its_last():
    window = window_of([reply(START, [5 * MS, 2 * MS, 3 * MS])])
    assert {name: values(window, name) for name in NAMES} == {
        "first_response_time": bucketed(5 * MS), "response_gap": bucketed(2 * MS, 3 * MS), "stream_time": bucketed(10 * MS)
    }  # fmt: skip
    assert (window.count("responses"), window.count("responses_ended"), window.count("without_response"), window.count("cancelled")) == (
        3,
        3,
        0,
        0,
    )


def test_in_an_open_loop_streams_are_timed_from_their_intended_start_and_gaps_are_not():
    window = window_of([reply(START + MS, [5 * MS, 2 * MS], delay_ns=MS)], is_open=True)
    assert values(window, "first_response_time") == bucketed(6 * MS)
    assert values(window, "response_gap") == bucketed(2 * MS)
    assert values(window, "stream_time") == bucketed(8 * MS)


def test_an_empty_stream_has_no_times_but_is_counted():
    window = window_of([reply(START, [], rest_ns=4 * MS)])
    assert all(values(window, name) == {} for name in NAMES)
    assert window.times["service_time"].count == 1
    assert (window.count("responses"), window.count("without_response")) == (0, 1)


def test_what_was_cut_off_counts_at_its_age_and_what_came_before_counts_as_it_was():
    cut_off = reply(START, [5 * MS, 2 * MS], Outcome.TIMED_OUT, rest_ns=13 * MS)
    silent = reply(START, [], Outcome.UNFINISHED, rest_ns=30 * MS)
    window = window_of([cut_off, silent])
    assert values(window, "first_response_time") == bucketed(5 * MS, 30 * MS)
    assert values(window, "response_gap") == bucketed(2 * MS)
    assert values(window, "stream_time") == bucketed(20 * MS, 30 * MS)
    assert window.count("cancelled") == 2


def test_a_stream_that_fails_has_no_times_but_its_responses_came():
    window = window_of([reply(START, [5 * MS, 2 * MS], Outcome.REJECTED)])
    assert all(values(window, name) == {} for name in NAMES)
    assert (window.count("responses"), window.count("responses_ended")) == (2, 2)


def test_responses_per_second_count_what_comes_in_the_window_whoever_asked():
    window = window_of([reply(START - S, [S // 2, S]), reply(END - S, [S // 2, S])])
    assert window.count("responses_ended") == 2, "the second one of the warm-up's request, and the first one of the last request"
    assert window.count("responses") == 2


drawn_replies = st.lists(
    st.tuples(
        st.integers(-S, 11 * S),
        st.lists(st.integers(0, 900 * MS), max_size=6),
        st.sampled_from(Outcome),
        st.integers(0, 5 * MS),
        st.integers(0, 50 * MS),
    ),
    max_size=60,
)


@settings(deadline=None)
@given(drawn_replies, st.booleans())
def test_the_recording_holds_what_the_definitions_give_for_each_request(drawn, is_open):
    replies = [reply(START + at, gaps, outcome, delay_ns=delay, rest_ns=rest) for at, gaps, outcome, delay, rest in drawn]
    expected, responses = {name: list[int]() for name in NAMES}, 0
    for one in replies:
        begun_ns = one.intended_ns if is_open else one.started_ns
        if not START <= begun_ns < END:
            continue
        responses += len(one.responses_ns)
        if one.outcome not in TIMED:
            continue
        if one.responses_ns:
            expected["first_response_time"].append(one.responses_ns[0] - begun_ns)
            expected["response_gap"] += [late - early for early, late in zip(one.responses_ns[:-1], one.responses_ns[1:], strict=True)]
        elif one.outcome in CANCELLED:
            expected["first_response_time"].append(one.finished_ns - begun_ns)
        if one.outcome in CANCELLED:
            expected["stream_time"].append(one.finished_ns - begun_ns)
        elif one.responses_ns:
            expected["stream_time"].append(one.responses_ns[-1] - begun_ns)
    recording = record(replies, is_open=is_open)
    window = cut(recording, START, is_open=is_open)
    assert window.count("responses") == responses
    assert window.count("responses_ended") == sum(START <= at < END for one in replies for at in one.responses_ns)
    for name, times_ns in expected.items():
        assert values(window, name) == bucketed(*times_ns), name
        logged = BucketCounts.merged([times.get(name, EMPTY) for _, times in recording.times_by_second()])
        assert encode(logged) == encode(BucketCounts.of(times_ns)), name
        assert sum(part.count for part in window.further_batches.get(name, ())) == len(times_ns), name


@given(drawn_replies, drawn_replies)
def test_the_streams_of_two_workers_add_up(mine, others):
    made = [[reply(START + at, gaps, outcome, rest_ns=rest) for at, gaps, outcome, _, rest in drawn] for drawn in (mine, others)]
    apart = cut(merge([record(replies) for replies in made]), START, is_open=False)
    together = window_of([*made[0], *made[1]])
    for name in NAMES:
        assert values(apart, name) == values(together, name)
    for name in ("responses", "responses_ended"):
        assert apart.count(name) == together.count(name)


def test_a_time_of_its_own_belongs_to_the_part_in_which_it_began():
    recorder = Recorder(window_start_ns=START, window_end_ns=END)
    for begun_ns, time_ns in ((START - 1, MS), (START, 2 * MS), (START + 3 * S, 40 * S), (END, MS)):
        recorder.add_time("sequence_time", begun_ns, time_ns)
    recorder.add(Reply(Outcome.OK, START, START + MS))
    recording = recorder.finish(END)
    window = cut(recording, START, is_open=False)
    assert values(window, "sequence_time") == bucketed(2 * MS, 40 * S)
    assert [part.count for part in window.further_batches["sequence_time"]].index(1, 1) == 3 * S // window.batch_ns
    assert {second: times["sequence_time"].count for second, times in recording.times_by_second()} == {0: 1, 3: 1}


def test_a_plain_load_has_no_times_of_streams():
    recorder = Recorder(window_start_ns=START, window_end_ns=END)
    recorder.add(Reply(Outcome.OK, START, START + MS))
    window = cut(recorder.finish(END), START, is_open=False)
    assert not window.further_batches
    assert set(window.times).isdisjoint(NAMES)


def values(window, name):
    counts = window.times.get(name, EMPTY)
    return dict(zip(counts.indices.tolist(), counts.counts.tolist(), strict=True))


def bucketed(*times_ns):
    counts = BucketCounts.of(list(times_ns))
    return dict(zip(counts.indices.tolist(), counts.counts.tolist(), strict=True))


def test_the_live_view_gets_the_responses_so_far_recorded_or_not():
    recorder = Recorder(window_start_ns=START, window_end_ns=END, is_streamed=True, is_live=True)
    for index in range(1500):  # more than are recorded at once
        recorder.add(reply(START + index * MS, [MS, MS, MS]))
    assert recorder.live_figures(0, START + S, 0).responses == 4500


def test_many_responses_are_counted_in_several_steps_as_they_are_in_one(monkeypatch):
    random = np.random.default_rng(5)
    outcomes = [Outcome.OK, Outcome.OK, Outcome.TIMED_OUT, Outcome.REJECTED]
    drawn = [
        (START + int(random.integers(-S, 11 * S)), random.integers(0, 50 * MS, int(random.integers(0, 7))), outcomes[number % 4])
        for number in range(200)
    ]

    def recorded():
        own = Recorder(window_start_ns=START, window_end_ns=END, is_streamed=True)
        for started_ns, gaps_ns, outcome in drawn:
            own.add(reply(started_ns, gaps_ns, outcome, rest_ns=MS))
        steps = sum(1 for _ in own.record_pending())
        window = cut(own.finish(END), START, is_open=False)
        return steps, {name: values(window, name) for name in NAMES}, dict(window.counts), window.outcomes

    steps, *expected = recorded()
    monkeypatch.setattr(recorder, "_STEP_RESPONSES", 10)
    more_steps, *found = recorded()
    assert found == expected
    assert more_steps > steps + 20
