"""The bodies of requests to chat, completions and embeddings."""

import json
from collections.abc import Mapping
from typing import Any

from perfkit.protocol.message import InferRequest
from perfkit.protocol.prompt import read_prompt
from perfkit.transport.http.calls import HttpCall

PATHS = {"chat": "/v1/chat/completions", "completions": "/v1/completions", "embeddings": "/v1/embeddings"}
"""By endpoint."""
_JSON = {"Content-Type": "application/json"}


def encode_request(request: InferRequest, endpoint: str, *, is_streamed: bool) -> HttpCall:
    """The call of a request, whose one tensor is a prompt; a streamed one asks for the usage at its end, unless the prompt says otherwise."""
    prompt = read_prompt(request)
    document: dict[str, Any] = {"model": request.model}
    if endpoint == "chat":
        document["messages"] = prompt.messages or [{"role": "user", "content": prompt.text}]
    else:
        document["input" if endpoint == "embeddings" else "prompt"] = prompt.text or _joined(prompt.messages)
    if endpoint != "embeddings" and prompt.max_tokens is not None:
        document["max_tokens"] = prompt.max_tokens
    if is_streamed:
        document |= {"stream": True, "stream_options": {"include_usage": True}}
    body = json.dumps({**document, **prompt.extra}, ensure_ascii=False, separators=(",", ":")).encode()
    return HttpCall("POST", PATHS[endpoint], _JSON, [body])


def _joined(messages: list[Mapping[str, Any]]) -> str:
    """The texts of messages for an endpoint that takes a single text."""
    return "\n".join(str(message.get("content", "")) for message in messages)
