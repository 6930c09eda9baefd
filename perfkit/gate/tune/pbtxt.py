"""A model's configuration as `config.pbtxt`: protobuf's text format of what Triton gives as JSON. Pure."""

import json
import re
from collections.abc import Iterator, Mapping
from typing import Any

_MAPS = {
    "parameters", "cc_model_filenames", "metric_tags", "inputs", "input", "input_map", "output_map", "properties", "priority_queue_policy",
}  # fmt: skip
"""Fields that are maps where the JSON has an object."""
_ENUMS = {"data_type", "format", "kind", "priority", "timeout_action"}
_LONG = {
    "dim", "dims", "shape", "versions", "model_version", "max_sequence_idle_microseconds", "max_queue_delay_microseconds",
    "default_timeout_microseconds", "priority_levels", "default_priority_level", "delay",
}  # fmt: skip
"""Fields of 64 bits, which JSON may have as text."""
_NUMBER = re.compile(r"-?\d+")


def config_text(config: Mapping[str, Any]) -> str:
    """The text of `config.pbtxt`; every message is in it, also an empty one, and numbers and texts at their default are left out."""
    return "\n".join(_fields(config, "")) + "\n"


def _fields(message: Mapping[str, Any], indent: str) -> Iterator[str]:
    for name, value in message.items():
        if name in _MAPS and isinstance(value, dict):
            for key, held in value.items():
                yield f"{indent}{name} {{"
                yield f"{indent}  key: {key if name == 'priority_queue_policy' else _quoted(key)}"
                yield from _field("value", held, f"{indent}  ", is_whole=True)
                yield f"{indent}}}"
        else:
            yield from _field(name, value, indent)


def _field(name: str, value: Any, indent: str, *, is_whole: bool = False) -> Iterator[str]:
    if isinstance(value, dict):
        inner = list(_fields(value, f"{indent}  "))
        yield from (f"{indent}{name} {{", *inner, f"{indent}}}") if inner else (f"{indent}{name} {{ }}",)
    elif isinstance(value, list):
        for one in value:
            yield from _field(name, one, indent, is_whole=True)
    elif is_whole or isinstance(value, bool) or value not in ("", 0, "0", None):
        yield f"{indent}{name}: {_scalar(name, value)}"


def _scalar(name: str, value: Any) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, int | float):
        return json.dumps(value)
    return value if name in _ENUMS or (name in _LONG and _NUMBER.fullmatch(value)) else _quoted(value)


def _quoted(text: str) -> str:
    return json.dumps(text, ensure_ascii=False)
