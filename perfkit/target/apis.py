"""The APIs that perfkit speaks, and how they differ. Whatever depends on the API of a target asks its `Api`, not its name."""

import dataclasses
from collections.abc import Mapping
from typing import Literal, TypeAlias

ApiName: TypeAlias = Literal["v2", "openai"]
EndpointName: TypeAlias = Literal["chat", "completions", "embeddings"]


@dataclasses.dataclass(frozen=True, slots=True)
class Endpoint:
    """A place that requests go to."""

    name: str = ""
    """An `EndpointName`; empty if the API has only one."""
    can_stream: bool = True
    writes_text: bool = False
    """Whether every answer is a text of a language model: streamed unless a scenario says otherwise, and faster where prefixes are cached."""
    takes_parts: bool = False
    """Whether the content of a message may have other parts than text."""


@dataclasses.dataclass(frozen=True, slots=True)
class Api:
    """How an API differs from the others: the keys that a scenario for it may have, and what its requests carry."""

    name: ApiName
    title: str
    """The name of the API in messages."""
    slo_parts: tuple[str, ...]
    """The keys of `slo` for the times of parts of its streamed answers."""
    absent_keys: tuple[str, ...] = ()
    """The keys that a scenario for it must not have."""
    is_http_only: bool = False
    base_path_suffix: str = ""
    """The end of the URL that users may give or leave out, since the paths of requests begin with it."""
    endpoints: tuple[Endpoint, ...] = (Endpoint(),)
    """The first is the default."""
    takes_prompts: bool = False
    """Whether requests carry prompts, in place of the tensors of a model's inputs."""
    own_members: Mapping[str, str] = dataclasses.field(default_factory=dict)
    """The members of a request's body that `workload.prompts.extra` must not set, and the keys that set them."""
    several_answers: tuple[str, ...] = ()
    """The members that ask for several answers when they are more than 1."""

    def endpoint(self, name: str | None) -> Endpoint | None:
        """The endpoint of that name, by default the first; None if the API has no such endpoint."""
        return next((one for one in self.endpoints if name in (None, one.name)), None)


V2 = Api("v2", "v2", slo_parts=("first_response",))
OPENAI = Api(
    "openai",
    "OpenAI's API",
    slo_parts=("first_token", "per_token"),
    absent_keys=(
        *("target.version", "target.composing_models", "sequences", "shared_memory", "stream.body", "check.outputs", "slo.wrong_answers"),
        *("traces.files", "tune", "workload.batch_size", "workload.data", "workload.inputs", "workload.outputs", "workload.encoding"),
        *("workload.request_id", "workload.priority", "workload.queue_timeout", "workload.parameters"),
    ),
    is_http_only=True,
    base_path_suffix="/v1",
    endpoints=(
        Endpoint("chat", writes_text=True, takes_parts=True),
        Endpoint("completions", writes_text=True),
        Endpoint("embeddings", can_stream=False),
    ),
    takes_prompts=True,
    own_members={
        "model": "target.model",
        "stream": "stream",
        "max_tokens": "workload.prompts.max_tokens",
        **dict.fromkeys(("messages", "prompt", "input"), "workload.prompts.values"),
    },
    several_answers=("n", "best_of"),
)
APIS: Mapping[str, Api] = {one.name: one for one in (V2, OPENAI)}
ENDPOINTS = tuple(endpoint.name for api in APIS.values() for endpoint in api.endpoints if endpoint.name)


def api_with(endpoint: str) -> Api:
    """The first API that has the endpoint, which is one of `ENDPOINTS`."""
    return next(api for api in APIS.values() if api.endpoint(endpoint))
