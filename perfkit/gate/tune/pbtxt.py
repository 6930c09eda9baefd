"""A model's configuration as `config.pbtxt`: protobuf's text format of what Triton gives as JSON. Pure."""

import json
import re
from collections.abc import Iterator, Mapping
from typing import Any

_MAPS = {"parameters", "cc_model_filenames", "metric_tags", "inputs", "input_map", "output_map", "properties"}
_ENUM = re.compile(r"(TYPE|KIND|FORMAT|CONTROL|MODE|MEMORY|EXECUTION|DELAY|REJECT|PRIORITY|GRAPH)_[A-Z0-9_]+|REJECT|DELAY")
_PRESENT_IF_EMPTY = {"dynamic_batching", "sequence_batching", "oldest", "direct", "all", "latest"}
"""Messages that say something by being there."""


def config_text(config: Mapping[str, Any]) -> str:
    """The text of `config.pbtxt`; fields at their default are left out."""
    return "\n".join(_fields(config, "")) + "\n"


def _fields(message: Mapping[str, Any], indent: str) -> Iterator[str]:
    for name, value in message.items():
        if name in _MAPS and isinstance(value, dict):
            for key, held in value.items():
                yield f"{indent}{name} {{"
                yield f"{indent}  key: {json.dumps(key)}"
                yield from _field("value", held, f"{indent}  ", is_whole=True)
                yield f"{indent}}}"
        else:
            yield from _field(name, value, indent)


def _field(name: str, value: Any, indent: str, *, is_whole: bool = False) -> Iterator[str]:
    if isinstance(value, dict):
        inner = list(_fields(value, f"{indent}  "))
        if inner or is_whole or name in _PRESENT_IF_EMPTY:
            yield from (f"{indent}{name} {{", *inner, f"{indent}}}") if inner else (f"{indent}{name} {{ }}",)
    elif isinstance(value, list):
        for one in value:
            yield from _field(name, one, indent, is_whole=True)
    elif is_whole or value not in ("", 0, False, "0"):
        yield f"{indent}{name}: {_scalar(name, value)}"


def _scalar(name: str, value: Any) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, int | float):
        return json.dumps(value)
    is_number = name in _LONG and re.fullmatch(r"-?\d+", value)
    return value if _ENUM.fullmatch(value) or is_number else json.dumps(value, ensure_ascii=False)


_LONG = {
    "dims", "shape", "versions", "model_version", "max_sequence_idle_microseconds", "max_queue_delay_microseconds", "default_timeout_microseconds",
    "priority_levels", "default_priority_level", "num_versions", "delay",
}  # fmt: skip
"""Fields of 64 bits, which JSON may have as text."""
