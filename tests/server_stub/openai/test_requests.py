"""What the OpenAI front end reads from requests, and what it refuses with which error."""

import json

import pytest

from server_stub.openai.requests import (
    EmbeddingsRequest,
    TextRequest,
    read_chat,
    read_completions,
    read_embeddings,
)

CHAT = {"model": "synthetic", "messages": [{"role": "user", "content": "hi"}]}
PROMPT = {"model": "synthetic", "prompt": "hi"}
TOOL = {"type": "function", "function": {"name": "find", "parameters": {}}}
OTHER_TOOL = {"type": "function", "function": {"name": "send"}}


@pytest.mark.parametrize(
    ("keys", "expected"),
    [
        ({}, TextRequest("chat", 1)),
        ({"messages": [{"role": "system", "content": "be  kind\n"}, {"role": "user", "content": " how are\tyou? "}]}, TextRequest("chat", 5)),
        ({"messages": [{"role": "assistant", "content": None}, {"role": "user", "content": ""}]}, TextRequest("chat", 0)),
        ({"messages": [{"role": "user", "content": [{"type": "text", "text": "a b"}, {"type": "text", "text": "c"}]}]}, TextRequest("chat", 3)),
        ({"max_tokens": 7}, TextRequest("chat", 1, 7)),
        ({"max_completion_tokens": 7}, TextRequest("chat", 1, 7)),
        ({"max_tokens": 9, "max_completion_tokens": 7}, TextRequest("chat", 1, 7)),
        ({"max_tokens": None, "stream": None, "stream_options": None, "temperature": None, "tools": None}, TextRequest("chat", 1)),
        ({"max_tokens": 131072, "temperature": 2, "top_p": 0.5, "n": 1, "ignore_eos": True, "top_k": -1}, TextRequest("chat", 1, 131_072)),
        ({"stream": True, "stream_options": {"include_usage": True}}, TextRequest("chat", 1, None, True, True)),
        (
            {"stream": True, "stream_options": {"include_usage": True, "continuous_usage_stats": True}},
            TextRequest("chat", 1, None, True, True, True),
        ),
        ({"tools": [TOOL, OTHER_TOOL]}, TextRequest("chat", 1, tool="find")),
        ({"tools": [TOOL, OTHER_TOOL], "tool_choice": OTHER_TOOL}, TextRequest("chat", 1, tool="send")),
        ({"tools": [TOOL], "tool_choice": "required"}, TextRequest("chat", 1, tool="find")),
        ({"tools": [TOOL], "tool_choice": "none"}, TextRequest("chat", 1)),
        ({"tools": []}, TextRequest("chat", 1)),
    ],
)  # fmt: skip
def test_what_a_chat_asks_for(keys, expected):
    assert read_chat({**CHAT, **keys}) == expected


@pytest.mark.parametrize(("prompt", "tokens"), [("one two", 2), (["one two"], 2), ("", 0), ([5, 6, 7], 3), ([[5, 6, 7]], 3)])
def test_a_prompt_is_a_text_or_token_ids(prompt, tokens):
    assert read_completions({**PROMPT, "prompt": prompt, "max_tokens": 3}) == TextRequest("completions", tokens, 3)


@pytest.mark.parametrize(
    ("keys", "expected"),
    [
        ({"input": "one two"}, EmbeddingsRequest((2,), 8, False)),
        ({"input": ["one two", "three"], "dimensions": 3}, EmbeddingsRequest((2, 1), 3, False)),
        ({"input": [[1, 2], [3]], "encoding_format": "base64"}, EmbeddingsRequest((2, 1), 8, True)),
        ({"input": ["a"] * 64, "encoding_format": "float"}, EmbeddingsRequest((1,) * 64, 8, False)),
    ],
)
def test_what_a_request_for_embeddings_asks_for(keys, expected):
    assert read_embeddings(keys) == expected


REFUSED = [
    ("chat/completions", {**CHAT, "max_tokens": 0}, "max_tokens", "'max_tokens' must be a whole number from 1 to 131072"),
    ("chat/completions", {**CHAT, "max_tokens": -1}, "max_tokens", "'max_tokens' must be"),
    ("chat/completions", {**CHAT, "max_tokens": 10**30}, "max_tokens", "'max_tokens' must be"),
    ("chat/completions", {**CHAT, "max_tokens": 1.5}, "max_tokens", "'max_tokens' must be"),
    ("chat/completions", {**CHAT, "max_tokens": True}, "max_tokens", "'max_tokens' must be"),
    ("chat/completions", {**CHAT, "max_completion_tokens": "5"}, "max_completion_tokens", "'max_completion_tokens' must be"),
    ("chat/completions", {**CHAT, "n": 2}, "n", "'n' must be 1"),
    ("chat/completions", {**CHAT, "temperature": 2.1}, "temperature", "'temperature' must be a number from 0 to 2"),
    ("chat/completions", {**CHAT, "temperature": float("nan")}, "temperature", "'temperature' must be"),
    ("chat/completions", {**CHAT, "top_p": "high"}, "top_p", "'top_p' must be a number from 0 to 1"),
    ("chat/completions", {**CHAT, "stream": "yes"}, "stream", "'stream' must be true or false"),
    ("chat/completions", {**CHAT, "stream_options": {"include_usage": True}}, "stream_options", "needs 'stream': true"),
    ("chat/completions", {**CHAT, "stream": True, "stream_options": {"include_usage": 1}}, "include_usage", "must be true or false"),
    ("chat/completions", {"model": "synthetic"}, "messages", "'messages' must be a list of at least one message"),
    ("chat/completions", {**CHAT, "messages": []}, "messages", "'messages' must be"),
    ("chat/completions", {**CHAT, "messages": ["hi"]}, "messages[0]", "'messages[0]' must be an object with a 'role'"),
    ("chat/completions", {**CHAT, "messages": [{"role": "user", "content": 5}]}, "messages[0]", "the content of 'messages[0]' must be"),
    ("chat/completions", {**CHAT, "messages": [{"role": "user", "content": [{"type": "image_url"}]}]}, "messages[0]", "a list of parts with a text"),
    ("chat/completions", {**CHAT, "tools": [{"type": "function"}]}, "tools", "'tools' must be a list of functions"),
    ("chat/completions", {**CHAT, "tools": "find"}, "tools", "'tools' must be a list of functions"),
    ("chat/completions", {**CHAT, "tools": [TOOL], "tool_choice": OTHER_TOOL}, "tool_choice", "'tool_choice' must be"),
    ("chat/completions", {"messages": CHAT["messages"]}, "model", "you must provide a model parameter"),
    ("completions", {"model": "synthetic"}, "prompt", "'prompt' must be a text, a list of token ids, or a list of either"),
    ("completions", {**PROMPT, "prompt": ["a", "b"]}, "prompt", "'prompt' must be one prompt"),
    ("completions", {**PROMPT, "prompt": []}, "prompt", "'prompt' must be a text"),
    ("completions", {**PROMPT, "prompt": [1, "a"]}, "prompt", "'prompt' must be a text"),
    ("embeddings", {"model": "synthetic", "input": ["a"] * 65}, "input", "'input' has 65 texts; the maximum is 64"),
    ("embeddings", {"model": "synthetic", "input": {}}, "input", "'input' must be a text"),
    ("embeddings", {"model": "synthetic", "input": "a", "dimensions": 4097}, "dimensions", "'dimensions' must be"),
    ("embeddings", {"model": "synthetic", "input": "a", "encoding_format": "hex"}, "encoding_format", "must be float or base64"),
    ("completions", b"{", None, "the body of the request is not a JSON object that can be read"),
    ("completions", b"[]", None, "the body of the request is not a JSON object that can be read"),
    ("completions", b"[" * 100_000, None, "the body of the request is not a JSON object that can be read"),
]  # fmt: skip


@pytest.mark.parametrize(("path", "document", "param", "text"), REFUSED)
def test_what_cannot_be_answered_is_refused_with_the_parameter(wire, path, document, param, text):
    body = document if isinstance(document, bytes) else json.dumps(document).encode()
    answer = wire.send("POST", f"/v1/{path}", body)
    error = answer.json["error"]
    assert (answer.status, answer.headers["Content-Type"]) == (400, "application/json")
    assert (error["type"], error["param"], error["code"]) == ("invalid_request_error", param, None)
    assert text in error["message"]


@pytest.mark.parametrize("model", ["simple", "nope", "\ud800"])
def test_only_synthetic_is_a_language_model(wire, model):
    answer = wire.send("POST", "/v1/chat/completions", json.dumps({**CHAT, "model": model}).encode())
    expected = {
        "message": f"The model `{model}` does not exist",
        "type": "invalid_request_error",
        "param": "model",
        "code": "model_not_found",
    }
    assert (answer.status, answer.json) == (404, {"error": expected})
    assert wire.get("/v1/models/simple").status == 404


@pytest.mark.parametrize(("method", "path"), [("GET", "/v1/chat/completions"), ("POST", "/v1/nope"), ("DELETE", "/v1/models/synthetic")])
def test_other_paths_are_refused_in_the_same_form(wire, method, path):
    answer = wire.send(method, path)
    assert (answer.status, answer.json["error"]["message"]) == (404, f"Invalid URL ({method} {path})")


def test_compressed_requests_are_refused(wire):
    answer = wire.send("POST", "/v1/completions", b"", {"Content-Encoding": "gzip"})
    assert (answer.status, answer.json["error"]["message"]) == (415, "compressed requests are not supported")


def test_bodies_beyond_the_limit_are_refused(start_server, wire_to):
    with start_server("--model=synthetic", "--max-body=1000") as server:
        answer = wire_to(server).send("POST", "/v1/completions", b"x" * 2000)
        assert (answer.status, answer.json["error"]["type"]) == (413, "invalid_request_error")
