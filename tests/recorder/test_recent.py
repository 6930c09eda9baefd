"""The replies of the last second, for a live view: each is told once, however they are batched."""

import numpy as np
import pytest

from perfkit.recorder.recorder import Recorder
from perfkit.transport.base import Outcome, Reply


def replies(number):
    """Replies that take 1000 ns and more, started 7 ns late; every tenth is rejected."""
    return [
        Reply(intended_ns=10 * i, started_ns=10 * i + 7, finished_ns=10 * i + 1007 + i, outcome=Outcome.REJECTED if i % 10 == 9 else Outcome.OK)
        for i in range(number)
    ]  # fmt: skip


@pytest.mark.parametrize("is_open", [False, True])
@pytest.mark.parametrize("every", [1, 3, 100, 256])
def test_each_answered_reply_is_told_once(is_open, every):
    recorder = Recorder(window_start_ns=0, window_end_ns=None, is_open=is_open, is_live=True)
    times, delays, sent = [], [], replies(4000)
    for number, reply in enumerate(sent, 1):
        recorder.add(reply)
        if not number % every:
            figures = recorder.live_figures(0, number, 5)
            assert (figures.replies, figures.failed, figures.in_flight) == (number, number // 10, 5)
            times += figures.times_ns.tolist()
            delays += figures.delays_ns.tolist()
            assert len(times) >= 0.9 * number - 1024, "what is missing is in one batch"
    recorder._finish_work()
    last = recorder.live_figures(0, 1, 0)
    times += last.times_ns.tolist()
    expected = [1000 + i + 7 * is_open for i in range(4000) if i % 10 != 9]
    assert sorted(times) == expected
    assert len(delays) + last.delays_ns.size == (len(expected) if is_open else 0)
    assert set(delays) <= {7}


@pytest.mark.parametrize("is_open", [False, True])
@pytest.mark.parametrize("every", [257, 1023, 1999])
def test_of_more_replies_than_that_none_is_told_twice(is_open, every):
    recorder = Recorder(window_start_ns=0, window_end_ns=None, is_open=is_open, is_live=True)
    times = []
    for number, reply in enumerate(replies(4000), 1):
        recorder.add(reply)
        if not number % every:
            times += recorder.live_figures(0, number, 5).times_ns.tolist()
    assert len(times) == len(set(times)) > 500
    assert set(times) <= {1000 + i + 7 * is_open for i in range(4000) if i % 10 != 9}


def test_a_second_without_any_reply_has_no_times():
    recorder = Recorder(window_start_ns=0, window_end_ns=None, is_open=True, is_live=True)
    recorder.add(replies(1)[0])
    for _ in recorder.record_pending():
        pass
    assert recorder.live_figures(0, 1, 5).times_ns.tolist() == [1007]
    for _ in recorder.record_pending():  # what a worker does each second, while its target stands still
        pass
    assert recorder.live_figures(0, 2, 5).times_ns.tolist() == []


def test_of_many_replies_about_a_thousand_are_told():
    recorder = Recorder(window_start_ns=0, window_end_ns=None, is_open=True, is_live=True)
    for reply in replies(20_000):
        recorder.add(reply)
    recorder._finish_work()
    figures = recorder.live_figures(0, 1, 0)
    assert 500 < figures.times_ns.size <= 1024 + 256
    assert figures.delays_ns.size == figures.times_ns.size
    assert np.median(figures.times_ns) == pytest.approx(11_000, rel=0.05)


@pytest.mark.parametrize("is_open", [False, True])
def test_the_first_responses_of_streams_are_told_once_and_only_of_those_that_have_one(is_open):
    recorder = Recorder(window_start_ns=0, window_end_ns=None, is_open=is_open, is_live=True, is_streamed=True)
    for reply in replies(200):
        if reply.started_ns % 20 == 7:
            reply.responses_ns = (reply.started_ns + 500, reply.started_ns + 900)
        recorder.add(reply)
    recorder._finish_work()
    recorder._begin_work(None)
    recorder._finish_work()
    assert sorted(recorder.live_figures(0, 1, 0).first_ns.tolist()) == [500 + 7 * is_open] * 100
    assert recorder.live_figures(0, 2, 0).first_ns.size == 0


def test_without_streams_there_are_no_first_responses():
    recorder = Recorder(window_start_ns=0, window_end_ns=None, is_live=True)
    assert recorder.live_figures(0, 1, 0).first_ns is None
