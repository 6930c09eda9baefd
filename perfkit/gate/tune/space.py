"""The space of a tune: its keys with their values, and the candidates, which are configurations of a model or commands. Pure."""

import contextlib
import copy
import dataclasses
import itertools
import json
import math
import re
from collections.abc import Mapping, Sequence
from typing import Any

from perfkit.errors import UsageError, suggestion
from perfkit.gate.tune.moves import MOST_MEASURED

_MOST_COMBINATIONS = 6_400
_BATCHING, _DELAY, _COUNT = "dynamic_batching", "dynamic_batching.max_queue_delay_microseconds", "instance_group.count"
_DELAYS_US = ("0", "100", "500", "2000")
_OPTIONAL = ("dynamic_batching", "instance_group", "max_batch_size", "optimization", "parameters", "response_cache", "sequence_batching")
"""Keys that a configuration need not name."""
_KEYS = {
    "instance_group": ("count", "kind", "gpus", "host_policy", "name", "passive", "profile", "rate_limiter", "secondary_devices"),
    "rate_limiter": ("priority", "resources"),
    "dynamic_batching": (
        "default_priority_level", "default_queue_policy", "max_queue_delay_microseconds", "preferred_batch_size", "preserve_ordering",
        "priority_levels", "priority_queue_policy",
    ),
    "default_queue_policy": ("allow_timeout_override", "default_timeout_microseconds", "max_queue_size", "timeout_action"),
    "sequence_batching": (
        "control_input", "direct", "generative_sequence", "iterative_sequence", "max_sequence_idle_microseconds", "oldest", "state",
    ),
    "direct": ("max_queue_delay_microseconds", "minimum_slot_utilization"),
    "oldest": ("max_candidate_sequences", "max_queue_delay_microseconds", "preferred_batch_size", "preserve_ordering"),
    "optimization": (
        "cuda", "eager_batching", "execution_accelerators", "gather_kernel_buffer_threshold", "graph", "input_pinned_memory",
        "output_pinned_memory", "priority",
    ),
    "cuda": ("busy_wait_events", "graph_spec", "graphs", "output_copy_stream"),
    "graph": ("level",),
    "input_pinned_memory": ("enable",),
    "output_pinned_memory": ("enable",),
    "response_cache": ("enable",),
    "model_transaction_policy": ("decoupled",),
}  # fmt: skip
"""The keys of Triton's messages, by the field that has the message."""
_WHOLE = re.compile(r"-?(0|[1-9]\d*)")
_OTHER_SCHEDULERS = ("sequence_batching", "ensemble_scheduling")
_NAME = re.compile(r"\w[\w.-]*")
_PLACE = re.compile(r"\{([A-Za-z_]\w*)\}")
_PORTS = {"port", "http_port", "grpc_port"}
REPOSITORY = "repository"
"""The place of a command for the folder of a model repository that perfkit edits."""

Config = Mapping[str, Any]
"""A model's configuration, as the JSON of Triton's model configuration extension has it."""
Values = Mapping[str, str]
"""The value of each key, as a person writes it."""
Space = Mapping[str, Sequence[str]]
"""The values of each key."""


@dataclasses.dataclass(frozen=True, slots=True)
class Candidate:
    """One configuration; number 0 is the present one."""

    number: int
    values: Values
    command: str = ""
    """The command that starts the server; empty for a running one."""
    configs: Mapping[str, str] = dataclasses.field(default_factory=dict)
    """The configuration of each model that is tuned, as JSON; empty where the command's places alone vary."""

    @property
    def title(self) -> str:
        """Its values in words: `instance_group.count 4, dynamic_batching on`."""
        return ", ".join(f"{key} {value}" for key, value in self.values.items())


def parse_space(texts: Sequence[str]) -> dict[str, tuple[str, ...]]:
    """Reads `key=v1,v2` of each option; raises UsageError."""
    space: dict[str, tuple[str, ...]] = {}
    for text in texts:
        key, equals, values = text.partition("=")
        given = tuple(value.strip() for value in values.split(","))
        if not equals or not _NAME.fullmatch(key) or not all(given):
            raise UsageError(f"--space {text}: expected a key and its values, such as instance_group.count=1,2,4")
        if key in space:
            raise UsageError(f"--space {text}: {key} is given twice: give all its values at once")
        if len(set(given)) < len(given):
            raise UsageError(f"--space {text}: a value is given twice")
        space[key] = given
    return space


def default_space(config: Config, cpus: int) -> dict[str, tuple[str, ...]]:
    """The number of instances, and dynamic batching with its delay, as far as a model's configuration allows them.

    Instances on CPUs are at most as many as `cpus`, or as there are now. Raises UsageError if the configuration allows nothing.
    """
    space: dict[str, tuple[str, ...]] = {}
    groups = config.get("instance_group") or []
    kinds = {group.get("kind") for group in groups}
    if not kinds & {"KIND_MODEL"} and "ensemble_scheduling" not in config:
        now = max((int(group.get("count") or 1) for group in groups), default=1)
        most = max(now, cpus) if kinds == {"KIND_CPU"} else 4 * now
        space[_COUNT] = tuple(str(count) for count in sorted({max(now // 2, 1), now, 2 * now, 4 * now}) if count <= most)
    if int(config.get("max_batch_size") or 0) > 1 and not any(key in config for key in _OTHER_SCHEDULERS):
        space[_BATCHING] = ("off", "on")
        space[_DELAY] = _DELAYS_US
    if not space:
        raise UsageError("the model's configuration has neither instances nor batches to vary: give --space KEY=VALUE,…")
    return space


def default_space_of(models: Mapping[str, Config], cpus: int) -> dict[str, tuple[str, ...]]:
    """The default space of a model, the first one; of an ensemble those of its members, with their names before the keys. Raises UsageError."""
    if not (members := members_of(models)):
        return default_space(next(iter(models.values())), cpus)
    space: dict[str, tuple[str, ...]] = {}
    for member in members:
        with contextlib.suppress(UsageError):  # one that has nothing to vary
            space |= {f"{member}.{key}": values for key, values in default_space(models[member], cpus).items()}
    if not space:
        raise UsageError(
            "the configurations of the ensemble's members have neither instances nor batches to vary: give --space MEMBER.KEY=VALUE,…"
        )
    return space


def members_of(models: Mapping[str, Config]) -> tuple[str, ...]:
    """The models that an ensemble, the first one, runs; empty if the first one is no ensemble."""
    first, *others = models
    return tuple(one for one in others if "ensemble_scheduling" not in models[one]) if "ensemble_scheduling" in models[first] else ()


def step_models(config: Config) -> tuple[str, ...]:
    """The models of an ensemble's steps; empty for another model."""
    steps = (config.get("ensemble_scheduling") or {}).get("step") or []
    return tuple(dict.fromkeys(str(step["model_name"]) for step in steps))


def candidates_of_config(texts: Mapping[str, str], space: Space, command: str = "") -> tuple[Candidate, ...]:
    """The present configuration, then every other combination of the values, each once; raises UsageError.

    `texts` has the model's present configuration as the server writes it, and after an ensemble those of its members, to which the keys
    then belong. Keys that are places of `command` have their first value at present.
    """
    configs = {model: json.loads(text) for model, text in texts.items()}
    at_first = first_values(command, space)
    places = at_first.keys()
    owners = {key: _owner(key, configs) for key in space if key not in places}
    for model, key in owners.values():
        _check_key(configs[model], key)
    models = tuple(dict.fromkeys(model for model, _ in owners.values()))
    present = {key: present_value(configs[model], name) for key, (model, name) in owners.items()}
    combinations = _combinations(_with_present(present, space))
    found: dict[str, Candidate] = {}
    for values in (at_first, *combinations):
        changed = {
            model: _changed(
                configs[model], {key: values[full] for full, (owner, key) in owners.items() if owner == model and full in values}
            )
            for model in models
        }
        shown = {
            key: value
            for key in space
            if (value := values[key] if key in places else present_value(changed[owners[key][0]], owners[key][1]))
        }
        applied = {model: texts[model] if one == configs[model] else json.dumps(one) for model, one in changed.items()}
        started = filled(command, values)
        identity = json.dumps([started, _canonical(changed)], sort_keys=True)
        found.setdefault(identity, Candidate(len(found), shown, started, applied))
    return _checked(tuple(found.values()))


def candidates_of_command(command: str, space: Space) -> tuple[Candidate, ...]:
    """The command with every combination of the values, the first value of each key at first; raises UsageError."""
    places = _places(command)
    first_values(command, space)
    if unused := [key for key in space if key not in places]:
        raise UsageError(f"--space {unused[0]}: the command does not say where its value goes: write {{{unused[0]}}} in it")
    if not space:
        raise UsageError(f"{command}: nothing varies: write a key such as {{threads}} in it, and give --space threads=1,2,4")
    return _checked(tuple(Candidate(number, one, filled(command, one)) for number, one in enumerate(_combinations(space))))


def first_values(command: str, space: Space) -> dict[str, str]:
    """The present value of each place of a command but the ports and the repository; raises UsageError for one without values."""
    places = [place for place in _places(command) if place != REPOSITORY or place in space]
    if missing := [place for place in places if place not in space]:
        raise UsageError(f"{command}: {{{missing[0]}}} has no values: give --space {missing[0]}=VALUE,VALUE")
    return {place: space[place][0] for place in places}


def filled(command: str, values: Values) -> str:
    """The command with values in its places."""
    return _PLACE.sub(lambda match: values.get(match[1], match[0]), command)


def present_value(config: Config, key: str) -> str:
    """The value of a key in a configuration; empty without one. Those of several instance groups are joined by a plus."""
    if key == _BATCHING:
        return "on" if _BATCHING in config else "off"
    found: list[Any] = [config]
    for name in key.split("."):
        inner = [one for part in found for one in (part if isinstance(part, list) else [part])]
        found = [one[name] for one in inner if isinstance(one, dict) and name in one]
    found = [one["string_value"] if isinstance(one, dict) and "string_value" in one else one for one in found]
    return "+".join(dict.fromkeys(one if isinstance(one, str) else json.dumps(one) for one in found))


def is_same_config(text: str, other: str) -> bool:
    """Whether two configurations are the same in all but the order of keys: Triton writes `parameters` in another order after each load."""
    return text == other or bool(_canonical(json.loads(text)) == _canonical(json.loads(other)))


def _canonical(value: Any) -> Any:
    """A configuration in which all whole numbers are numbers; JSON may have those of 64 bits as text."""
    if isinstance(value, dict):
        return {key: _canonical(one) for key, one in value.items()}
    if isinstance(value, list):
        return [_canonical(one) for one in value]
    return int(value) if isinstance(value, str) and len(value) < 20 and _WHOLE.fullmatch(value) else value


def _places(command: str) -> list[str]:
    """The places of a command for values."""
    return list(dict.fromkeys(place for place in _PLACE.findall(command) if place not in _PORTS))


def _owner(key: str, configs: Mapping[str, Config]) -> tuple[str, str]:
    """The model that a key belongs to, and its key there; the keys of an ensemble's members begin with their names."""
    if not (members := members_of(configs)):
        return next(iter(configs)), key
    owners = [member for member in members if key.startswith(f"{member}.")]
    if not owners:
        raise UsageError(
            f"--space {key}: an ensemble is tuned by its members ({', '.join(members)}): write the member before the key, such as "
            f"{members[0]}.instance_group.count"
        )
    owner = max(owners, key=len)
    return owner, key.removeprefix(f"{owner}.")


def _check_key(config: Config, key: str) -> None:
    """Refuses a key that neither the present configuration nor Triton has."""
    names, found, known = key.split("."), [config], {*config, *_OPTIONAL}
    for depth, name in enumerate(names):
        if known and name not in known:
            place = f"{'.'.join(names[:depth])} of a model's configuration" if depth else "a model's configuration"
            raise UsageError(f"--space {key}: {place} has no {name}{suggestion(name, known)}")
        if name in ("parameters", "execution_accelerators", "priority_queue_policy"):  # these have names of one's own
            return
        inner = [part.get(name) for part in found]
        found = [one for part in inner for one in (part if isinstance(part, list) else [part]) if isinstance(one, dict)]
        known = {*_KEYS.get(name, ()), *(below for one in found for below in one)}


def _with_present(present: Values, space: Space) -> Space:
    """A space that is measured by moves, with the present value of each key among its values, empty if it has none: the moves begin there."""

    def is_given(key: str) -> bool:  # one of batching has no value while that is off
        return all(present.get(other) != "off" for other in space if key.startswith(f"{other}."))

    if math.prod(len(values) for values in space.values()) <= MOST_MEASURED:
        return space
    missing = {key: (value,) for key, value in present.items() if value not in space[key] and is_given(key)}
    return {key: (*missing.get(key, ()), *values) for key, values in space.items()}


def _combinations(space: Space) -> list[dict[str, str]]:
    if (number := math.prod(len(values) for values in space.values())) > _MOST_COMBINATIONS:
        raise UsageError(_too_many(f"{number:,} configurations, and {_MOST_COMBINATIONS:,} are the most", space))
    moves = 1 + sum(len(values) - 1 for values in space.values())
    if number > MOST_MEASURED and moves > MOST_MEASURED:
        raise UsageError(
            _too_many(f"{moves} configurations differ from the present one by one key, and {MOST_MEASURED} are measured at most", space)
        )
    return [dict(zip(space, values, strict=True)) for values in itertools.product(*space.values())]


def _checked(candidates: tuple[Candidate, ...]) -> tuple[Candidate, ...]:
    if len(candidates) < 2:
        raise UsageError("--space: its only configuration is the present one: give further values")
    return candidates


def _too_many(what: str, space: Space) -> str:
    longest = max(space, key=lambda key: len(space[key]))
    return (
        f"--space: {what}: give fewer values, such as {longest}={','.join(space[longest][:2])}, or leave a key out and tune it afterwards"
    )


def _changed(config: Config, values: Values) -> dict[str, Any]:
    """A configuration with other values; without dynamic batching, its other keys have no effect."""
    changed: dict[str, Any] = copy.deepcopy(dict(config))
    for key, value in values.items():
        if key == _BATCHING:
            if value not in ("off", "on"):
                raise UsageError(f"--space {key}: expected off or on, found {value}")
            if value == "on":
                changed.setdefault(_BATCHING, {})
        elif value != present_value(config, key) and (key.partition(".")[0] != _BATCHING or values.get(_BATCHING) != "off"):
            _set(changed, key, value)
    if values.get(_BATCHING) == "off":
        changed.pop(_BATCHING, None)
    return changed


def _set(config: dict[str, Any], key: str, value: str) -> None:
    *path, last = key.split(".")
    if path == ["parameters"]:
        config.setdefault("parameters", {})[last] = {"string_value": value}
        return
    parts: list[dict[str, Any]] = [config]
    for name in path:
        inner: list[dict[str, Any]] = []
        for part in parts:
            found = part.setdefault(name, [{}] if name == "instance_group" else {})
            inner += found if isinstance(found, list) else [found]
        if not all(isinstance(one, dict) for one in inner):
            raise UsageError(f"--space {key}: {name} of the model's configuration has no keys")
        parts = inner
    for part in parts:
        part[last] = _json_value(value)


def _json_value(value: str) -> Any:
    """A number or a truth value as such, anything else as text."""
    try:
        parsed = json.loads(value)
    except ValueError:
        return value
    return parsed if isinstance(parsed, bool | int | float) else value
