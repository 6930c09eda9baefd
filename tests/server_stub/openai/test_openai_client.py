"""OpenAI's own Python client against the OpenAI front end."""

import contextlib
import functools
from typing import Any

import openai
import pytest

MESSAGES: Any = [{"role": "system", "content": "be brief"}, {"role": "user", "content": "one two three"}]
TOOL: Any = {"type": "function", "function": {"name": "find", "parameters": {"type": "object"}}}


@pytest.fixture(scope="module")
def client(start_server):
    """Clients of servers by service model, each started once."""
    with contextlib.ExitStack() as running:

        @functools.cache
        def connect(declaration=""):
            server = running.enter_context(start_server("--model", "synthetic", "--synthetic", f"service=constant:1ms{declaration}"))
            return running.enter_context(openai.OpenAI(base_url=f"http://127.0.0.1:{server.http_port}/v1", api_key="none", max_retries=0))

        yield connect


def test_models(client):
    assert [model.id for model in client().models.list()] == ["synthetic"]
    assert client().models.retrieve("synthetic").owned_by == "perfkit"


def test_a_chat(client):
    answer = client().chat.completions.create(model="synthetic", messages=MESSAGES, max_tokens=5)
    (choice,) = answer.choices
    assert (choice.message.role, choice.message.content, choice.finish_reason) == ("assistant", "token token token token token", "length")
    assert (answer.usage.prompt_tokens, answer.usage.completion_tokens, answer.usage.total_tokens) == (5, 5, 10)


def test_a_completion_and_its_default_length(client):
    answer = client(",tokens=3").completions.create(model="synthetic", prompt="one two")
    assert (answer.choices[0].text, answer.choices[0].finish_reason) == ("token token token", "stop")
    assert answer.usage.total_tokens == 5


def test_a_streamed_chat_with_usage_at_its_end(client):
    stream = client().chat.completions.create(
        model="synthetic", messages=MESSAGES, max_completion_tokens=4, stream=True, stream_options={"include_usage": True}
    )
    *chunks, last = stream
    deltas = [chunk.choices[0].delta for chunk in chunks]
    assert [delta.content for delta in deltas] == ["", "token", " token", " token", " token", None]
    assert [delta.role for delta in deltas] == ["assistant"] + [None] * 5
    assert [chunk.choices[0].finish_reason for chunk in chunks] == [None] * 5 + ["length"]
    assert [chunk.usage for chunk in chunks] == [None] * 6
    assert (last.choices, last.usage.prompt_tokens, last.usage.completion_tokens) == ([], 5, 4)


def test_usage_in_all_events(client):
    options = {"include_usage": True, "continuous_usage_stats": True}
    stream = client(",usage=chunks,tokens_per_event=2").chat.completions.create(
        model="synthetic", messages=MESSAGES, max_tokens=5, stream=True, stream_options=options
    )
    chunks = list(stream)
    assert [chunk.usage.completion_tokens for chunk in chunks] == [0, 2, 4, 5, 5, 5]
    assert {chunk.usage.prompt_tokens for chunk in chunks} == {5}


def test_a_streamed_completion(client):
    stream = client().completions.create(model="synthetic", prompt="one", max_tokens=3, stream=True)
    chunks = list(stream)
    assert "".join(chunk.choices[0].text for chunk in chunks) == "token token token"
    assert chunks[-1].choices[0].finish_reason == "length"


def test_reasoning(client):
    stream = client(",reasoning=2").chat.completions.create(
        model="synthetic", messages=MESSAGES, max_tokens=3, stream=True, stream_options={"include_usage": True}
    )
    *chunks, last = stream
    parts = [(getattr(chunk.choices[0].delta, "reasoning_content", None), chunk.choices[0].delta.content) for chunk in chunks]
    assert parts == [(None, ""), ("token", None), (" token", None), (None, "token"), (None, None)]
    assert last.usage.completion_tokens_details.reasoning_tokens == 2


def test_tool_calls(client):
    (choice,) = client().chat.completions.create(model="synthetic", messages=MESSAGES, tools=[TOOL], max_tokens=4).choices
    (call,) = choice.message.tool_calls
    assert (call.function.name, call.function.arguments, choice.finish_reason) == ("find", '{"words":"token token"}', "tool_calls")


def test_streamed_tool_calls(client):
    with client().chat.completions.stream(model="synthetic", messages=MESSAGES, tools=[TOOL], max_tokens=4) as stream:
        for _ in stream:
            pass
        (call,) = stream.get_final_completion().choices[0].message.tool_calls
    assert (call.function.name, call.function.arguments) == ("find", '{"words":"token token"}')


@pytest.mark.parametrize("encoding", [openai.omit, "float"])
def test_embeddings(client, encoding):
    """Without an encoding the client asks for base64, and decodes it."""
    answer = client().embeddings.create(model="synthetic", input=["one two", "three"], dimensions=4, encoding_format=encoding)
    assert [(one.index, one.embedding) for one in answer.data] == [(0, [0.5] * 4), (1, [0.5] * 4)]
    assert answer.usage.prompt_tokens == 3


def test_an_error_in_a_stream(client):
    stream = client(",stream_error=2").completions.create(model="synthetic", prompt="one", stream=True)
    received: list[str] = []
    with pytest.raises(openai.APIError, match="the stream ends here, as its service model specifies"):
        received.extend(chunk.choices[0].text for chunk in stream)
    assert len(received) <= 2
    with pytest.raises(openai.InternalServerError):
        client(",stream_error=2").completions.create(model="synthetic", prompt="one")


def test_a_stream_without_its_mark_of_the_end(client):
    stream = client(",done=off").completions.create(model="synthetic", prompt="one", max_tokens=2, stream=True)
    assert [chunk.choices[0].text for chunk in stream] == ["token", " token", ""]


def test_errors(client):
    with pytest.raises(openai.NotFoundError) as unknown:
        client().completions.create(model="nope", prompt="one")
    assert (unknown.value.code, unknown.value.param) == ("model_not_found", "model")
    with pytest.raises(openai.BadRequestError) as absurd:
        client().completions.create(model="synthetic", prompt="one", max_tokens=10**9)
    assert (absurd.value.type, absurd.value.param) == ("invalid_request_error", "max_tokens")
    with pytest.raises(openai.InternalServerError) as failed:
        client(",errors=100%:503").completions.create(model="synthetic", prompt="one")
    assert failed.value.status_code == 503
