"""Answers as literal bytes, and their numbers of tokens in every form."""

import json

import pytest

from server_stub.openai.answers import Answer, embeddings_document
from server_stub.openai.requests import EmbeddingsRequest, TextRequest
from server_stub.synthetic.service_model import TextForm


def answer(form=None, endpoint="chat", prompt_tokens=3, **request):
    return Answer(TextRequest(endpoint, prompt_tokens, is_streamed=True, **request), form or TextForm(), "synthetic", "id-1", 1_700_000_000)


def head(kind):
    return f'{{"id":"id-1","object":"{kind}","created":1700000000,"model":"synthetic"'


CHAT, TEXT = head("chat.completion.chunk"), head("text_completion")


def chat(delta, finish="null"):
    return f'data: {CHAT},"choices":[{{"index":0,"delta":{delta},"logprobs":null,"finish_reason":{finish}}}]}}\n\n'


def text(words, finish="null", usage=""):
    return f'data: {TEXT},"choices":[{{"index":0,"text":"{words}","logprobs":null,"finish_reason":{finish}}}]{usage}}}\n\n'


def sent(one):
    return [event.decode() for event in one.events()]


def test_a_chat_has_one_event_for_each_token_behind_one_with_the_role():
    assert sent(answer(max_tokens=3)) == [
        chat('{"role":"assistant","content":""}') + chat('{"content":"token"}'),
        chat('{"content":" token"}'),
        chat('{"content":" token"}') + chat("{}", '"length"') + "data: [DONE]\n\n",
    ]


def test_a_completion_that_the_model_ends():
    assert sent(answer(TextForm(tokens=2), "completions")) == [
        text("token"),
        text(" token") + text("", '"stop"') + "data: [DONE]\n\n",
    ]


def usage(prompt, completion):
    return f'{{"prompt_tokens":{prompt},"completion_tokens":{completion},"total_tokens":{prompt + completion}}}'


def test_usage_at_the_end_has_an_event_without_choices():
    assert sent(answer(TextForm(tokens_per_event=4), "completions", max_tokens=6, include_usage=True)) == [
        text("token token token token", usage=',"usage":null'),
        text(" token token", usage=',"usage":null')
        + text("", '"length"', ',"usage":null')
        + f'data: {TEXT},"choices":[],"usage":{usage(3, 6)}}}\n\ndata: [DONE]\n\n',
    ]


def test_usage_in_all_events_counts_the_tokens_so_far():
    form = TextForm(tokens_per_event=2, usage="chunks")
    assert sent(answer(form, "completions", max_tokens=3, include_usage=True, continuous_usage=True)) == [
        text("token token", usage=f',"usage":{usage(3, 2)}'),
        text(" token", usage=f',"usage":{usage(3, 3)}')
        + text("", '"length"', f',"usage":{usage(3, 3)}')
        + f'data: {TEXT},"choices":[],"usage":{usage(3, 3)}}}\n\ndata: [DONE]\n\n',
    ]


@pytest.mark.parametrize(
    ("offered", "asked"),
    [
        ("off", {"include_usage": True, "continuous_usage": True}),
        ("final", {}),
        ("chunks", {}),
        ("chunks", {"continuous_usage": True}),  # as vLLM, which heeds it beside include_usage alone
    ],
)
def test_usage_that_is_not_offered_or_not_asked_for_is_not_there(offered, asked):
    assert "usage" not in "".join(sent(answer(TextForm(usage=offered), **asked)))


def test_usage_only_at_the_end_if_the_server_does_not_offer_it_in_all_events():
    events = "".join(sent(answer(TextForm(usage="final"), max_tokens=5, include_usage=True, continuous_usage=True)))
    assert events.count('"completion_tokens":5') == events.count('"completion_tokens"') == 1


def test_reasoning_comes_first_and_shares_no_event_with_the_text():
    form = TextForm(tokens_per_event=2, reasoning=3)
    assert sent(answer(form, max_tokens=6)) == [
        chat('{"role":"assistant","content":""}') + chat('{"reasoning_content":"token token"}'),
        chat('{"reasoning_content":" token"}'),
        chat('{"content":"token token"}'),
        chat('{"content":" token"}') + chat("{}", '"length"') + "data: [DONE]\n\n",
    ]
    document = answer(form, max_tokens=6).document()
    assert document["choices"][0]["message"] == {
        "role": "assistant",
        "content": "token token token",
        "reasoning_content": "token token token",
    }
    assert document["usage"] == {
        "prompt_tokens": 3, "completion_tokens": 6, "total_tokens": 9, "completion_tokens_details": {"reasoning_tokens": 3},
    }  # fmt: skip


def test_an_answer_may_end_within_its_reasoning():
    document = answer(TextForm(reasoning=10), max_tokens=2).document()
    assert document["choices"][0]["message"] == {"role": "assistant", "content": None, "reasoning_content": "token token"}
    assert document["usage"]["completion_tokens_details"] == {"reasoning_tokens": 2}


def test_a_completion_has_no_reasoning():
    assert answer(TextForm(reasoning=10), "completions", max_tokens=2).document()["choices"][0]["text"] == "token token"


def test_a_tool_call_has_its_arguments_in_place_of_a_text():
    call = '{"tool_calls":[{"index":0,"id":"call_id-1","type":"function","function":{"name":"find","arguments":"{\\"words\\":\\""}}]}'
    assert sent(answer(TextForm(tokens=3), tool="find")) == [
        chat('{"role":"assistant","content":""}') + chat(call),
        chat('{"tool_calls":[{"index":0,"function":{"arguments":"token"}}]}'),
        chat('{"tool_calls":[{"index":0,"function":{"arguments":"\\"}"}}]}') + chat("{}", '"tool_calls"') + "data: [DONE]\n\n",
    ]


@pytest.mark.parametrize("tokens", [1, 2, 3, 4, 9])
@pytest.mark.parametrize("per_event", [1, 2, 4, 100])
def test_the_arguments_are_json_however_they_are_split(tokens, per_event):
    one = answer(TextForm(tokens_per_event=per_event), max_tokens=tokens, tool="find")
    (call,) = one.document()["choices"][0]["message"]["tool_calls"]
    arguments = json.loads(call["function"]["arguments"])
    assert arguments == ({} if tokens == 1 else {"words": " ".join(["token"] * (tokens - 2))})
    assert sent(one)[0].count('"name":"find"') == 1


@pytest.mark.parametrize("tokens", [1, 2, 3, 16, 17])
@pytest.mark.parametrize("per_event", [1, 3, 16, 50])
@pytest.mark.parametrize("reasoning", [0, 1, 5, 20])
def test_every_token_is_a_word_and_the_number_of_events_is_known_beforehand(tokens, per_event, reasoning):
    one = answer(TextForm(tokens_per_event=per_event, reasoning=reasoning), max_tokens=tokens)
    events = sent(one)
    assert len(events) == one.last_event + 1
    words = {"reasoning_content": "", "content": ""}
    for line in "".join(events).splitlines():
        if line.startswith("data: {"):
            (choice,) = json.loads(line.removeprefix("data: "))["choices"]
            for part in words:
                words[part] += choice["delta"].get(part) or ""
    assert [len(part.split()) for part in words.values()] == [min(reasoning, tokens), tokens - min(reasoning, tokens)]


FAILURE = (
    'data: {"error":{"message":"the stream ends here, as its service model specifies","type":"server_error","param":null,"code":null}}\n\n'
)


def test_a_stream_fails_after_its_declared_number_of_events():
    one = answer(TextForm(error_after=1), max_tokens=3)
    assert sent(one) == [
        chat('{"role":"assistant","content":""}') + chat('{"content":"token"}'),
        FAILURE + "data: [DONE]\n\n",
    ]
    assert (one.is_cut, one.last_event) == (True, 1)
    assert sent(answer(TextForm(error_after=0, sends_done=False), "completions")) == [FAILURE]


def test_a_stream_that_is_over_before_does_not_fail():
    one = answer(TextForm(error_after=3), max_tokens=3)
    assert not one.is_cut
    assert sent(one) == sent(answer(max_tokens=3))


def test_the_mark_of_the_end_may_be_missing():
    assert sent(answer(TextForm(sends_done=False, tokens=1), "completions")) == [text("token") + text("", '"stop"')]


def test_embeddings_have_length_1_in_either_encoding():
    request = EmbeddingsRequest((2, 3), 4, is_base64=False)
    document = embeddings_document(request, "synthetic", has_usage=True)
    assert document == {
        "object": "list",
        "data": [{"object": "embedding", "index": index, "embedding": [0.5] * 4} for index in range(2)],
        "model": "synthetic",
        "usage": {"prompt_tokens": 5, "total_tokens": 5},
    }
    encoded = embeddings_document(EmbeddingsRequest((2,), 4, is_base64=True), "synthetic", has_usage=False)
    assert encoded["data"][0]["embedding"] == "AAAAPwAAAD8AAAA/AAAAPw=="
    assert "usage" not in encoded
