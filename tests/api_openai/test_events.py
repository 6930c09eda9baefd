"""Streams of chunks as literal bytes: which events have content, what they report, and what is refused."""

import json
import tracemalloc

import pytest
from hypothesis import given
from hypothesis import strategies as st

from perfkit.api_openai import answers
from perfkit.api_openai.answers import CUT_OFF, EventsAnswer
from perfkit.api_openai.token_counts import streamed_tokens
from perfkit.errors import AnswerTooLargeError
from perfkit.protocol.generate import EventSplitter
from perfkit.protocol.message import TokenCounts
from perfkit.transport.base import Outcome
from perfkit.transport.http.event_stream import NO_EVENTS, stream_reply

ROLE = {"choices": [{"index": 0, "delta": {"role": "assistant", "content": ""}, "finish_reason": None}]}
FINISH = {"choices": [{"index": 0, "delta": {}, "finish_reason": "length"}], "usage": None}
DONE = b"data: [DONE]\n\n"


def delta(**parts):
    return {"id": "c", "model": "m", "choices": [{"index": 0, "delta": parts, "finish_reason": None}]}


def usage(output, given=5, choices=()):
    return {"choices": [*choices], "usage": {"prompt_tokens": given, "completion_tokens": output, "total_tokens": given + output}}


def event(document):
    return b"data: " + json.dumps(document).encode() + b"\n\n"


def received(*pieces, each_ns=10):
    """The answer and the reply to a stream that comes in these pieces, one after each such time."""
    answer, at_ns = EventsAnswer(), [0]
    splitter = EventSplitter(64 << 20, lambda data: answer.take(data, at_ns[0]))
    for piece in pieces:
        at_ns[0] += each_ns
        splitter.append(piece)
    return answer, stream_reply(answer, splitter, 0, at_ns[0])


@pytest.mark.parametrize(
    "content",
    [
        delta(content="a"),
        delta(content=" "),
        delta(reasoning_content="hm"),
        delta(reasoning="hm"),
        delta(refusal="no"),
        delta(content=[{"type": "text", "text": "a"}]),
        delta(tool_calls=[{"index": 0, "function": {"name": "f", "arguments": ""}}]),
        delta(content="", tool_calls=[{"index": 0, "function": {"arguments": "{"}}]),
        {"choices": [{"index": 0, "text": "a"}]},
    ],
)
def test_text_reasoning_and_calls_of_tools_are_content_and_nothing_else_is(content):
    answer, reply = received(event(ROLE), event(content), event(FINISH), event(content), event(usage(2)), DONE)
    assert (reply.outcome, list(reply.responses_ns), reply.error) == (Outcome.OK, [20, 40], "")
    assert answer.tokens == TokenCounts(5, 2, 1, has_several=False), "as many tokens as events with content: one each"


@pytest.mark.parametrize("no_content", [ROLE, FINISH, usage(0), {"choices": [{"delta": None}]}, {"choices": [7]}, {"object": "ping"}])
def test_a_stream_may_have_no_content(no_content):
    answer, reply = received(event(no_content), event(usage(0)), DONE)
    assert (reply.outcome, list(reply.responses_ns), reply.payload, answer.tokens) == (Outcome.OK, [], None, TokenCounts(5, 0, 0))


def with_usage(output, **parts):
    return {**usage(output), "choices": delta(**parts)["choices"]}


STOP = {"choices": [{"index": 0, "delta": {}, "finish_reason": "stop"}]}


@pytest.mark.parametrize(
    ("events", "output", "later", "has_several"),
    [
        ([delta(content="a"), delta(content="b"), FINISH], 2, 1, False),
        ([delta(content="a b c"), delta(content="d"), FINISH], 4, None, True),
        ([with_usage(3, content="a b c"), with_usage(4, content="d"), FINISH], 4, 1, True),
        ([with_usage(3, content="a b c"), delta(content="d"), FINISH], 4, None, True),
        ([delta(content="a b c d"), FINISH], 4, 0, True),
        ([delta(content="a"), delta(content="b"), STOP], 3, None, False),  # either event has two tokens, or the third one ends the text
        ([delta(content="a"), delta(content="b"), {"choices": [{"delta": {}, "finish_reason": "tool_calls"}]}], 3, None, False),
        ([delta(content="a"), delta(content="b"), STOP], 2, 1, False),
        ([with_usage(1, content="a"), with_usage(2, content="b"), STOP], 3, 1, False),
        ([with_usage(1, content="a"), with_usage(3, content="b"), STOP], 3, 2, True),
        ([delta(content="a"), delta(content="b"), FINISH], 3, None, True),
        ([delta(content="a"), delta(content="b"), STOP], 4, None, True),
        ([with_usage(1, content="a"), with_usage(2, content="b"), with_usage(3, role="assistant"), STOP], 3, 1, False),
        ([with_usage(5, content="a"), with_usage(2, content="b"), FINISH], 5, None, True),
        ([with_usage(1, content="a"), with_usage(1, content="b"), with_usage(4, content="c"), FINISH], 4, 3, True),
    ],
)
def test_the_tokens_after_the_first_event_are_those_that_events_report_or_that_leave_no_choice(events, output, later, has_several):
    answer, _ = received(*map(event, events), event(usage(output)), DONE)
    assert answer.tokens == TokenCounts(5, output, later, has_several)


def test_without_a_usage_nothing_is_known_of_tokens():
    answer, _ = received(event(delta(content="a")), event({**delta(content="b"), "usage": None}), DONE)
    assert answer.tokens is None


def test_of_a_usage_only_its_own_bytes_are_read_however_large_the_event_is():
    values = b"[" + b"{}," * 2_100_000 + b"{}]"
    large = b'{"choices": [{"delta": {"content": "b"}}], "usage": {"prompt_tokens": 5, "completion_tokens": 2}, "x": %b}' % values
    answer, reply = received(event(delta(content="a")), b"data: %b\n\n" % large, DONE)
    tracemalloc.start()
    tokens, (_, most_bytes) = answer.tokens, tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert (reply.outcome, tokens, most_bytes < 100_000) == (Outcome.OK, TokenCounts(5, 2, 1), True)


@pytest.mark.parametrize("number", [-1, 1.5, True, "7", None, 10**9, [1]])
@pytest.mark.parametrize("member", ["prompt_tokens", "completion_tokens"])
def test_a_usage_that_cannot_be_is_none(member, number):
    answer, reply = received(
        event(delta(content="a")), event({"choices": [], "usage": {**usage(1)["usage"], "total_tokens": None, member: number}}), DONE
    )
    assert (reply.outcome, answer.tokens) == (Outcome.OK, None)


@pytest.mark.parametrize(
    "usage_text", ['{"usage": {', '"usage": {"completion_tokens": 99}', '{"choices": [], "usage": {"completion_tokens": 9}}']
)
def test_what_looks_like_a_usage_within_a_text_is_none(usage_text):
    answer, reply = received(event(delta(content=usage_text)), DONE)
    assert (list(reply.responses_ns), answer.tokens) == ([10], None)


@pytest.mark.parametrize(
    ("error", "message"),
    [
        ({"error": {"message": "out of memory", "type": "x", "code": 500}}, "out of memory"),
        ({"error": "out of memory"}, "out of memory"),
        ({"object": "error", "message": "out of memory"}, "out of memory"),
        ({"error": {"code": 3}}, '{"code": 3}'),
    ],
)
def test_an_error_in_the_middle_of_a_stream_refuses_the_request(error, message):
    _, reply = received(event(ROLE), event(delta(content="a")), event(error), DONE)
    assert (reply.outcome, reply.status, reply.error, len(reply.responses_ns)) == (Outcome.REJECTED, "error", message, 1)


def test_a_text_that_speaks_of_an_error_is_content():
    _, reply = received(event(delta(content="error")), event(delta(content='{"error": "no"}')), DONE)
    assert (reply.outcome, len(reply.responses_ns)) == (Outcome.OK, 2)


@pytest.mark.parametrize(
    "end",
    [
        [event(FINISH)],
        [event({"choices": [{"delta": {"content": "b"}, "finish_reason": "stop"}]})],
        [event(FINISH), event(usage(1))],
        [event(FINISH), event({"choices": [], "timings": {}})],
        [event({"choices": [{"delta": {"content": "b"}, "finish_reason": "stop"}]}), event({"choices": [], "timings": {}})],
        [event(usage(1)), event({"object": "ping"})],
        [DONE],
    ],
)
def test_a_stream_without_done_is_whole_if_it_says_why_it_ends(end):
    assert received(event(delta(content="a")), *end)[1].outcome is Outcome.OK


@pytest.mark.parametrize(
    "start",
    [
        [],
        [event(ROLE)],
        [event(delta(content="a"))],
        [event(usage(1)), event(delta(content="a"))],
        [event(with_usage(0, role="assistant", content=""))],
        [event(with_usage(1, content="a"))],
    ],
)
def test_a_stream_that_just_ends_is_cut_off(start):
    _, reply = received(*start)
    assert (reply.outcome, reply.error) == (Outcome.INVALID_OUTPUT, CUT_OFF)


@pytest.mark.parametrize("rest", [b'{"error": {"message": "no"}}', b"data: {", event(delta(content="a"))[:-1]])
def test_what_is_no_event_breaks_the_stream(rest):
    _, reply = received(event(delta(content="a")), rest)
    assert (reply.outcome, reply.error) == (Outcome.BROKEN, NO_EVENTS)


@pytest.mark.parametrize("data", [b"data: nonsense\n\n", b"data: [1]\n\n", b'data: {"choices": [\n\n', b"data: \xff\n\n"])
def test_an_event_that_is_no_json_object_makes_the_answer_invalid(data):
    _, reply = received(event(delta(content="a")), data, event(delta(content="b")), DONE)
    assert reply.outcome is Outcome.INVALID_OUTPUT
    assert "event" in reply.error


@given(
    st.lists(st.sampled_from([ROLE, FINISH, delta(content="ä\u2028\n\r\n\ndata: x"), delta(reasoning="b"), usage(3)]), max_size=5),
    st.sampled_from(["\n", "\r\n"]),
    st.booleans(),
    st.booleans(),
    st.integers(1, 50),
)
def test_the_same_is_read_however_lines_end_and_bytes_are_cut(documents, line_end, has_mark, has_space, size):
    field = "data: " if has_space else "data:"
    lines = [": a comment", "event: x", "id: 7", "retry: 10"]
    texts = [json.dumps(one, ensure_ascii=False, indent=0).split("\n") for one in documents]  # each over several lines of data
    text = "".join(line_end.join([*lines, *(field + line for line in one)]) + line_end * 2 for one in texts)
    data = b"\xef\xbb\xbf" * has_mark + f"{text}{field}[DONE]{line_end * 2}".encode()
    pieces = [data[first : first + size] for first in range(0, len(data), size)]
    whole, plain = received(*pieces, each_ns=0), received(*map(event, documents), DONE, each_ns=0)
    contents = sum("delta" in str(one) and one not in (ROLE, FINISH) for one in documents)
    whole_usage = TokenCounts(5, 3) if usage(3) in documents else None
    expected = (streamed_tokens(whole_usage, None, None, contents, has_end=False), Outcome.OK, contents)
    assert [(one.tokens, reply.outcome, len(reply.responses_ns)) for one, reply in (whole, plain)] == [expected] * 2


def test_an_event_of_ten_megabytes_is_one_event():
    _, reply = received(event(delta(content="a" * 10_000_000)), event(delta(content="b" * 10_000_000)), DONE)
    assert (reply.outcome, len(reply.responses_ns)) == (Outcome.OK, 2)


def test_an_event_of_millions_of_values_is_refused_before_it_is_parsed():
    _, reply = received(b"data: [" + b"0," * 2_100_000 + b"0]\n\n", DONE)
    assert reply.outcome is Outcome.INVALID_OUTPUT
    assert "JSON values" in reply.error


def test_an_event_beyond_the_limit_is_not_kept():
    answer = EventsAnswer()
    splitter = EventSplitter(1 << 20, lambda data: answer.take(data, 0))
    for _ in range(10):
        splitter.append(b"x" * 100_000)
    with pytest.raises(AnswerTooLargeError):
        splitter.append(b"x" * 100_000)


def test_a_million_events_take_eight_bytes_each():
    answer, one = EventsAnswer(), json.dumps(delta(content="a")).encode()
    for at_ns in range(1_000_000):
        answer.take(one, at_ns)
    assert len(answer.responses_ns) == 1_000_000
    assert answer.responses_ns.itemsize * len(answer.responses_ns) == 8_000_000
    answer.end(is_done=True)
    assert answer.complete(0, 1_000_000, "").outcome is Outcome.OK


def test_a_stream_of_more_events_than_are_timed_is_refused_and_takes_no_more_memory(monkeypatch):
    monkeypatch.setattr(answers, "MOST_EVENTS", 10)
    _, reply = received(*[event(delta(content="a"))] * 100, DONE)
    assert (reply.outcome, len(reply.responses_ns)) == (Outcome.INVALID_OUTPUT, 10)
    assert "more than 10 events" in reply.error
