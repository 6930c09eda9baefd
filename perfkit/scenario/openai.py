"""What a scenario for OpenAI's API may not have, and what only such a one may have."""

from collections.abc import Mapping

from perfkit.scenario.target import Target
from perfkit.scenario.workload import Workload

_OF_V2 = ("batch_size", "data", "inputs", "outputs", "encoding", "request_id", "priority", "queue_timeout_ns", "parameters")
_SEVERAL = ("n", "best_of")


def check_api(target: Target, workload: Workload, others: Mapping[str, bool], *, is_streamed: bool) -> None:
    """Raises ValueError if a scenario has prompts for an API without them, or keys that OpenAI's API has no place for.

    `others` says of further keys whether they are given.
    """
    if target.api == "v2":
        if workload.prompts is not None:
            raise ValueError("workload.prompts are for target.api: openai: add api: openai to the target, or remove prompts")
        return
    if target.endpoint == "embeddings" and is_streamed:
        raise ValueError("stream: embeddings are not streamed: remove stream")
    extra = {} if workload.prompts is None else workload.prompts.extra
    if is_streamed and (several := next((name for name in _SEVERAL if extra.get(name) not in (None, 1)), None)):
        raise ValueError(
            f"workload.prompts.extra.{several}: events of several answers in one stream cannot be timed: remove it, or remove stream"
        )
    defaults = Workload()
    if given := next((name for name in _OF_V2 if getattr(workload, name) != getattr(defaults, name)), None):
        name = given.removesuffix("_ns")
        raise ValueError(
            f"workload.{name} is for api: v2: remove it; prompts go into workload.prompts, and sampling options into its extra"
        )
    if key := next((key for key, is_given in others.items() if is_given), None):
        raise ValueError(f"{key}: OpenAI's API has none: remove it, or target.api: openai")
