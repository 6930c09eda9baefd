"""A prompt for a language model as the one tensor of a request: what workloads make, and what an API turns into the body of a request."""

import dataclasses
import json
from collections.abc import Mapping
from typing import Any

from perfkit.protocol.message import InferRequest, TensorMetadata
from perfkit.protocol.tensor import Datatype, Tensor, encode_bytes_elements

PROMPT = TensorMetadata("prompt", "BYTES", (1,))
"""The input of a model that takes prompts."""


@dataclasses.dataclass(frozen=True, slots=True)
class Prompt:
    """A text, or the messages of a conversation, and how it is to be answered."""

    text: str = ""
    messages: list[Mapping[str, Any]] = dataclasses.field(default_factory=list)
    """With `role` and `content` each; empty for a text."""
    max_tokens: int | None = None
    """The most tokens of the answer; None for the server's choice."""
    extra: Mapping[str, Any] = dataclasses.field(default_factory=dict)
    """Further members of the request's body."""


def prompt_tensor(prompt: Prompt) -> Tensor:
    """The prompt as a tensor with one element, its JSON; raises ValueError for what JSON cannot hold, such as half of a surrogate pair."""
    encoded = json.dumps(dataclasses.asdict(prompt), ensure_ascii=False, allow_nan=False, separators=(",", ":")).encode()
    return Tensor(PROMPT.name, Datatype.BYTES, PROMPT.shape, encode_bytes_elements([encoded]))


def read_prompt(request: InferRequest) -> Prompt:
    """The prompt of a request that `prompt_tensor` made."""
    (tensor,) = request.inputs
    return Prompt(**json.loads(bytes(tensor.raw[4:])))  # behind the element's length
