"""Token figures of windows, against their definitions."""

import pytest

from perfkit.protocol.message import TokenCounts
from perfkit.recorder.histogram import encode
from perfkit.recorder.recorder import Recorder
from perfkit.recorder.window import cut
from perfkit.stats.buckets import EMPTY, BucketCounts
from perfkit.transport.base import Outcome, Reply

MS, S = 1_000_000, 1_000_000_000
START, END = 100 * S, 110 * S


def reply(tokens, *events_ms, at_ns=START, outcome=Outcome.OK, delay_ms=0):
    """A reply whose events with content come so long after its start, and which reports these tokens."""
    events_ns = tuple(at_ns + one * MS for one in events_ms)
    one = Reply(outcome, at_ns, events_ns[-1] if events_ns else at_ns + MS, tokens, "", responses_ns=events_ns)
    one.intended_ns = one.paced_ns = at_ns - delay_ms * MS
    return one


def window_of(*replies, is_open=False, good_within_ns=None):
    recorder = Recorder(
        window_start_ns=START,
        window_end_ns=END,
        is_open=is_open,
        is_streamed=True,
        count_tokens=lambda one: one.payload,
        good_within_ns=good_within_ns,
    )
    for one in replies:
        recorder.add(one)
    return cut(recorder.finish(END), START, is_open=is_open)


def times(window, name):
    return encode(window.times.get(name, EMPTY))


def bucketed(*values_ms):
    return encode(BucketCounts.of([int(one * MS) for one in values_ms]))


def test_the_times_of_tokens():
    window = window_of(reply(TokenCounts(7, 11, 10, has_several=True), 50, 60, 150), reply(TokenCounts(7, 9, 6, has_several=True), 20, 80))
    assert times(window, "first_token_time") == bucketed(50, 20)
    assert times(window, "event_gap") == bucketed(10, 90, 60)
    assert times(window, "time_per_output_token") == bucketed(100 / 10, 60 / 6)
    assert "first_response_time" not in window.times
    assert {name: window.count(name) for name in ("input_tokens", "output_tokens", "tokens_reported", "several_in_event")} == {
        "input_tokens": 14, "output_tokens": 20, "tokens_reported": 2, "several_in_event": 2
    }  # fmt: skip


def test_in_an_open_loop_the_first_token_is_timed_from_the_intended_start():
    window = window_of(reply(TokenCounts(7, 2, 1), 50, 60, at_ns=START + S, delay_ms=5), is_open=True)
    assert (times(window, "first_token_time"), times(window, "time_per_output_token")) == (bucketed(55), bucketed(10))


@pytest.mark.parametrize(
    ("tokens", "events_ms", "unknown", "first_unknown"),
    [
        (None, (5, 9), 1, 0),
        (TokenCounts(1, 4), (5, 9), 1, 1),
        (TokenCounts(1, 4, 0), (5,), 0, 0),
        (TokenCounts(1, 0, 0), (), 0, 0),
        (TokenCounts(1, 4), (), 0, 0),
        (TokenCounts(1, 3, 0), (5, 9), 0, 0),
    ],
)
def test_no_time_per_token_is_made_up(tokens, events_ms, unknown, first_unknown):
    window = window_of(reply(tokens, *events_ms))
    assert times(window, "time_per_output_token") == encode(EMPTY)
    assert (window.count("per_token_unknown"), window.count("first_tokens_unknown")) == (unknown, first_unknown)
    assert (window.count("tokens_reported"), window.count("tokens_unreported")) == ((0, 1) if tokens is None else (1, 0))


def test_failed_requests_have_no_tokens():
    window = window_of(reply(TokenCounts(7, 11, 10), 50, 60, outcome=Outcome.TIMED_OUT))
    assert {name: window.count(name) for name in window.counts if "token" in name} == {"per_token_cut_off": 1}
    assert times(window, "first_token_time") == bucketed(50)
    refused = window_of(reply(None, 50, 60, outcome=Outcome.REJECTED), reply(None, outcome=Outcome.TIMED_OUT))
    assert {name for name in refused.counts if "token" in name} == set()


def test_rates_are_of_answers_that_end_in_the_window_and_the_counts_of_those_that_begin_in_it():
    def begins_before():
        return reply(TokenCounts(1, 10, 1), 2, 3000, at_ns=START - S)

    window = window_of(begins_before(), reply(TokenCounts(2, 20, 1), 2, 3000, at_ns=END - S))
    assert (window.count("output_tokens"), window.count("output_tokens_ended")) == (20, 10)
    assert (window.count("input_tokens"), window.count("input_tokens_ended")) == (2, 1)
    assert window_of(begins_before()).count("output_tokens_ended") == 10


@pytest.mark.parametrize(
    ("limits_ms", "good"),
    [
        ({}, 2),
        ({"waited": 100}, 1),
        ({"first_token_time": 30}, 1),
        ({"time_per_output_token": 10}, 2),
        ({"time_per_output_token": 9}, 1),
        ({"first_token_time": 50, "time_per_output_token": 10}, 2),
        ({"first_token_time": 30, "time_per_output_token": 9}, 0),
    ],
)
def test_good_answers_are_within_all_limits(limits_ms, good):
    answers = [reply(TokenCounts(7, 11, 10), 50, 60, 140), reply(TokenCounts(7, 9, 6), 20, 80)]  # 9 and 10 ms per token
    limits_ns = {name: limit * MS for name, limit in limits_ms.items()}
    assert window_of(*answers, good_within_ns=limits_ns).count("good") == good
