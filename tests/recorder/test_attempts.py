"""The attempts of requests that were sent again, as they are counted."""

import numpy as np

from perfkit.recorder.recorder import Recorder
from perfkit.recorder.recording import AnswerTotals
from perfkit.recorder.window import cut
from perfkit.transport.base import Attempt, Outcome, Reply, RetriedReply

MS, S = 1_000_000, 1_000_000_000
END = 4 * S


def retried(*attempts, outcome=None, over_budget=False):
    """A request of these attempts: outcome, status, start and end in ms."""
    made = [Attempt(kind, status, start * MS, end * MS) for kind, status, start, end in attempts]
    last = Reply(outcome or made[-1].outcome, made[-1].started_ns, made[-1].finished_ns, status=made[-1].status)
    return RetriedReply.of(last, made, is_over_budget=over_budget)


def recorded(*replies):
    recorder = Recorder(window_start_ns=0, window_end_ns=END, some_retry=True)
    for reply in replies:
        recorder.add(reply)
    return recorder.finish(END)


REPLIES = (
    Reply(Outcome.OK, 100 * MS, 110 * MS),
    retried((Outcome.REJECTED, 503, 200, 205), (Outcome.TIMED_OUT, "", 1_900, 2_900), (Outcome.OK, "", 3_000, 3_020)),
    retried((Outcome.CONNECT_FAILED, "", 300, 301), (Outcome.REJECTED, 503, 400, 410), over_budget=True),
    retried((Outcome.REJECTED, 503, 500, 510), outcome=Outcome.UNFINISHED),
)


def test_attempts_are_counted_beside_requests_and_causes_beside_outcomes():
    window = cut(recorded(*REPLIES), 0, is_open=False)
    assert {outcome.value: count for outcome, count in window.outcomes.items() if count} == {"ok": 2, "rejected": 1, "unfinished": 1}
    names = ("attempts", "retries", "over_budget", "retried after 503", "retried after timeout", "retried after connect")
    assert [window.count(name) for name in names] == [1 + 3 + 2 + 1, 3, 1, 1, 1, 1]
    assert window.attempts_per_s == (5, 1, 0, 1)
    assert window.retries_per_s == (1, 1, 0, 1)


def test_the_service_time_is_that_of_the_request_and_the_server_is_compared_by_attempts():
    recording = recorded(*REPLIES)
    times = cut(recording, 0, is_open=False).times["service_time"]
    assert times.count_above(2_800 * MS) == 1  # from 200 to 3,020 ms
    assert recording.answer_totals == AnswerTotals(answered=2, answered_ns=30 * MS, perhaps_answered=1, rejected=3)


def test_an_attempt_counts_in_the_window_of_its_request_and_in_the_second_of_its_start():
    late = retried((Outcome.TIMED_OUT, "", 3_900, 4_100), (Outcome.OK, "", 4_200, 4_210))
    early = retried((Outcome.TIMED_OUT, "", -200, -100), (Outcome.OK, "", 100, 110))
    window = cut(recorded(late, early), 0, is_open=False)
    assert (window.count("attempts"), window.count("retries")) == (2, 1)
    assert (sum(window.attempts_per_s), sum(window.retries_per_s)) == (2, 1)


def test_pieces_add_up():
    recorder = Recorder(window_start_ns=0, window_end_ns=END, some_retry=True)
    for reply in REPLIES:
        recorder.add(reply)
    piece, rest = recorder.take_before(S), recorder.finish(END)
    whole = cut(recorded(*REPLIES), 0, is_open=False)
    for name in ("attempts_per_s", "retries_per_s"):
        counted = np.array([getattr(piece, name).get(second, 0) + getattr(rest, name).get(second, 0) for second in range(4)])
        assert tuple(counted) == getattr(whole, name)
    assert set(piece.attempts_per_s) == {0}
