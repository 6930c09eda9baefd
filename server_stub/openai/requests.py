"""Requests of the OpenAI API, read from JSON. Prompt tokens are the words between white space, since there is no tokenizer."""

import dataclasses
from collections.abc import Mapping
from typing import Any, Literal

from server_stub.synthetic.declaration import MAX_TOKENS

MAX_INPUTS, MAX_DIMENSIONS = 64, 4096
"""The highest number of texts in a request for embeddings, and of elements in each embedding."""
_DEFAULT_DIMENSIONS = 8
_RANGES = {"temperature": (0, 2), "top_p": (0, 1), "presence_penalty": (-2, 2), "frequency_penalty": (-2, 2)}

Endpoint = Literal["chat", "completions"]


class RequestError(Exception):
    """A request that is refused: the message, the parameter that is wrong, and OpenAI's code for it, if there is one."""

    def __init__(self, message: str, param: str | None = None, *, status: int = 400, code: str | None = None) -> None:
        super().__init__(message)
        self.param, self.status, self.code = param, status, code


@dataclasses.dataclass(frozen=True, slots=True)
class TextRequest:
    """A request for a text."""

    endpoint: Endpoint
    prompt_tokens: int
    max_tokens: int | None = None
    """The number of output tokens; None leaves it to the model."""
    is_streamed: bool = False
    include_usage: bool = False
    """Whether a stream should state the numbers of tokens at its end."""
    continuous_usage: bool = False
    """Whether it should state them in all events, too."""
    tool: str = ""
    """The function to call in place of a text; empty for a text."""


@dataclasses.dataclass(frozen=True, slots=True)
class EmbeddingsRequest:
    """A request for embeddings."""

    input_tokens: tuple[int, ...]
    """The number of tokens of each text."""
    dimensions: int
    is_base64: bool


def read_model(document: Mapping[str, Any]) -> str:
    """The name of the model. Raises RequestError, as all functions here do."""
    model = document.get("model")
    if not isinstance(model, str) or not model:
        raise RequestError("you must provide a model parameter", "model")
    return model


def read_chat(document: Mapping[str, Any]) -> TextRequest:
    """A request to `/v1/chat/completions`."""
    messages = document.get("messages")
    if not isinstance(messages, list) or not messages:
        raise RequestError("'messages' must be a list of at least one message", "messages")
    tokens = sum(_message_tokens(message, f"messages[{number}]") for number, message in enumerate(messages))
    return _text_request("chat", document, tokens, _tool(document))


def read_completions(document: Mapping[str, Any]) -> TextRequest:
    """A request to `/v1/completions`."""
    tokens = _input_tokens(document.get("prompt"), "prompt")
    if len(tokens) != 1:
        raise RequestError("'prompt' must be one prompt", "prompt")
    return _text_request("completions", document, tokens[0])


def read_embeddings(document: Mapping[str, Any]) -> EmbeddingsRequest:
    """A request to `/v1/embeddings`."""
    tokens = _input_tokens(document.get("input"), "input")
    if len(tokens) > MAX_INPUTS:
        raise RequestError(f"'input' has {len(tokens)} texts; the maximum is {MAX_INPUTS}", "input")
    encoding = document.get("encoding_format") or "float"
    if encoding not in ("float", "base64"):
        raise RequestError("'encoding_format' must be float or base64", "encoding_format")
    dimensions = _whole(document, "dimensions", MAX_DIMENSIONS)
    return EmbeddingsRequest(tokens, dimensions or _DEFAULT_DIMENSIONS, encoding == "base64")


def _text_request(endpoint: Endpoint, document: Mapping[str, Any], prompt_tokens: int, tool: str = "") -> TextRequest:
    for key, (low, high) in _RANGES.items():
        value = document.get(key)
        if value is not None and (isinstance(value, bool) or not isinstance(value, int | float) or not low <= value <= high):
            raise RequestError(f"'{key}' must be a number from {low} to {high}", key)
    _whole(document, "n", 1)
    # the newer key counts if both are given, as in vLLM
    limits = [_whole(document, key, MAX_TOKENS) for key in ("max_completion_tokens", "max_tokens")]
    is_streamed = _flag(document, "stream")
    options = document.get("stream_options")
    if options is not None and not (is_streamed and isinstance(options, dict)):
        raise RequestError("'stream_options' must be an object, and needs 'stream': true", "stream_options")
    include_usage, continuous_usage = (_flag(options or {}, key) for key in ("include_usage", "continuous_usage_stats"))
    return TextRequest(
        endpoint, prompt_tokens, limits[1] if limits[0] is None else limits[0], is_streamed, include_usage, continuous_usage, tool
    )


def _whole(document: Mapping[str, Any], key: str, high: int) -> int | None:
    """A whole number from 1 on; None if it is missing or null."""
    value = document.get(key)
    if value is not None and (isinstance(value, bool) or not isinstance(value, int) or not 1 <= value <= high):
        raise RequestError(f"'{key}' must be {f'a whole number from 1 to {high}' if high > 1 else '1'}", key)
    return value


def _flag(document: Mapping[str, Any], key: str) -> bool:
    value = document.get(key)
    if value is not None and not isinstance(value, bool):
        raise RequestError(f"'{key}' must be true or false", key)
    return bool(value)


def _message_tokens(message: object, param: str) -> int:
    if not isinstance(message, dict) or not isinstance(message.get("role"), str):
        raise RequestError(f"'{param}' must be an object with a 'role'", param)
    content = message.get("content")
    parts = content if isinstance(content, list) else [] if content is None else [{"type": "text", "text": content}]
    texts = [part.get("text") if isinstance(part, dict) and part.get("type") == "text" else None for part in parts]
    if not all(isinstance(text, str) for text in texts):
        raise RequestError(f"the content of '{param}' must be a text, or a list of parts with a text each", param)
    return sum(len(str(text).split()) for text in texts)


def _input_tokens(value: object, key: str) -> tuple[int, ...]:
    """The number of tokens of each text: a text, token ids, or a list of either."""
    given: list[Any] = value if isinstance(value, list) and value and not _are_ids(value) else [value]
    if not all(isinstance(text, str) or _are_ids(text) for text in given):
        raise RequestError(f"'{key}' must be a text, a list of token ids, or a list of either", key)
    return tuple(len(text.split() if isinstance(text, str) else text) for text in given)


def _are_ids(value: object) -> bool:
    return isinstance(value, list) and bool(value) and all(isinstance(one, int) and not isinstance(one, bool) for one in value)


def _tool(document: Mapping[str, Any]) -> str:
    """The function that a chat calls: the one that `tool_choice` names, or the first of the tools that are offered."""
    tools, choice = document.get("tools"), document.get("tool_choice")
    if not tools:
        return ""
    names = [_function_name(tool) for tool in tools] if isinstance(tools, list) else [""]
    if not all(names):
        raise RequestError("'tools' must be a list of functions with a name each", "tools")
    if choice == "none":
        return ""
    if choice is None or choice in ("auto", "required"):
        return names[0]
    if (name := _function_name(choice)) not in names:
        raise RequestError("'tool_choice' must be none, auto, required, or a function of 'tools'", "tool_choice")
    return name


def _function_name(tool: object) -> str:
    function = tool.get("function") if isinstance(tool, dict) and tool.get("type") == "function" else None
    name = function.get("name") if isinstance(function, dict) else None
    return name if isinstance(name, str) else ""
