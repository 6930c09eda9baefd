"""What a scenario may have with the API of its target."""

from perfkit.scenario.prompts import Prompts
from perfkit.scenario.section import Section
from perfkit.scenario.target import Target
from perfkit.target.apis import APIS


def check_api(scenario: Section, target: Target, prompts: Prompts | None, *, is_streamed: bool) -> None:
    """Raises ValueError if a scenario has prompts for an API without them, or keys that its API has no place for."""
    api = target.spoken_api
    if prompts is not None and not api.takes_prompts:
        names = " or ".join(one.name for one in APIS.values() if one.takes_prompts)
        raise ValueError(f"workload.prompts are for target.api: {names}: add it to the target, or remove prompts")
    if is_streamed and not target.spoken_endpoint.can_stream:
        raise ValueError(f"stream: {target.endpoint} are not streamed: remove stream")
    extra = {} if prompts is None else prompts.extra
    if own := next((name for name in extra if name in api.own_members), None):
        raise ValueError(f"workload.prompts.extra: '{own}' is set by {api.own_members[own]}: remove it from extra")
    several = next((name for name in api.several_answers if extra.get(name) not in (None, 1)), None)
    if several is not None and is_streamed:
        raise ValueError(
            f"workload.prompts.extra.{several}: events of several answers in one stream cannot be timed: remove it, or remove stream"
        )
    if key := next((key for key in api.absent_keys if _is_given(scenario, key)), None):
        has_hint = api.takes_prompts and key.startswith("workload.")
        hint = "; prompts go into workload.prompts, and sampling options into its extra" if has_hint else ""
        raise ValueError(f"{key}: {api.title} has none: remove it, or target.api: {api.name}{hint}")


def _is_given(scenario: Section, key: str) -> bool:
    """Whether a dotted key has another value than its default."""
    section: object = scenario
    value = default = None
    for name in key.split("."):
        if not isinstance(section, Section):
            return False
        field, declared = next((own, one) for own, one in type(section).model_fields.items() if name in (own, one.alias))
        section = value = getattr(section, field)
        default = declared.get_default(call_default_factory=True)
    return bool(value != default)
