"""The origin of each value of a scenario, its line or its override, and validation errors as messages that name file, line and key."""

import pathlib
from collections.abc import Callable, Sequence
from typing import Any, TypeAlias

import pydantic

from perfkit.errors import ScenarioError

KeyPath: TypeAlias = tuple[str | int, ...]
Origins: TypeAlias = dict[KeyPath, str]
"""The file and line, or the override, in which each key and list element is set."""
_MAX_PROBLEMS, _MAX_CHARACTERS = 20, 1000
URL_KEYS = (("target", "url"), ("target", "urls"), ("target", "metrics_url"), ("metrics", "url"))


def validation_error(
    error: pydantic.ValidationError,
    document: Any,
    origins: Origins,
    path: pathlib.Path,
    place: Callable[[KeyPath], KeyPath] = lambda key_path: key_path,
) -> ScenarioError:
    """An error with one line for each invalid key; `place` gives the file's key for a key of the document."""
    # pydantic drops invalid elements, and then also complains that their list is too short
    problems = [problem for problem in error.errors() if not (problem["type"] == "too_short" and problem["input"])]
    lines = [_message(problem, document, origins, path, place) for problem in problems[:_MAX_PROBLEMS]]
    if len(problems) > _MAX_PROBLEMS:
        lines.append(f"{path}: {len(problems) - _MAX_PROBLEMS:,} more problems")
    return ScenarioError("\n".join(lines))


def origin_of(key_path: KeyPath, origins: Origins, path: pathlib.Path) -> str:
    """Where a key is set; for a missing one, where its nearest parent is."""
    while key_path and key_path not in origins:
        key_path = key_path[:-1]
    return origins.get(key_path, str(path))


def dotted(key_path: KeyPath) -> str:
    """A key path as messages show it: `load.closed.concurrency[1]`."""
    text = "".join(f"[{part}]" if isinstance(part, int) else f".{part}" for part in key_path)
    return on_one_line(text.lstrip("."))


def displayed(value: object, key_path: KeyPath) -> str:
    """A value as messages show it; one that may hold a secret is not shown."""
    key_path = outside_mix(key_path)
    if key_path in (("target",), ("workloads",)) or key_path[:2] in (("target", "headers"), *URL_KEYS) or may_hold_command(key_path):
        return "a value that is not shown here"
    return repr(value)


def may_hold_command(key_path: KeyPath) -> bool:
    """Whether a key may hold the command of a secret: it is not the file, nor the time after which it is read again."""
    return key_path[:2] == ("target", "secrets") and key_path[3:] not in (("file",), ("every",))


def outside_mix(key_path: KeyPath) -> KeyPath:
    """The key of the scenario that a workload of a mix overlays, such as `target.url` for `workloads[0].target.url`."""
    return key_path[2:] if key_path[:1] == ("workloads",) and key_path[2:] else key_path


def _message(problem: Any, document: Any, origins: Origins, path: pathlib.Path, place: Callable[[KeyPath], KeyPath]) -> str:
    is_key = problem["loc"][-1:] == ("[key]",)  # pydantic's name for an invalid key of a mapping
    key_path = _key_path(problem["loc"][:-1] if is_key else problem["loc"], document)
    context, found = problem.get("ctx", {}), repr(problem["input"]) if is_key else displayed(problem["input"], key_path)
    match problem["type"]:
        case "unknown_key":
            key_path = _key_path((*problem["loc"], context["key"]), document)
            text = problem["msg"]
        case "missing":
            text = "this key is required"
        case "value_error":
            text = str(context["error"])
        case "not_values" | "variant":
            text = problem["msg"]
        case "not_a_mapping" | "dict_type":
            text = f"expected keys and values, found {found}"
        case "literal_error":
            text = f"expected {context['expected']}, found {found}"
        case "int_type" | "int_parsing":
            text = f"expected an integer, found {found}"
        case "string_type":
            text = f"expected text, found {found}; put it in quotes"
        case "string_pattern_mismatch":
            text = f"expected letters, digits, '_', '.' and '-', beginning with a letter or digit, found {found}"
        case "tuple_type":
            text = f"expected a list, found {found}"
        case "too_short":
            text = "expected at least one element, found none"
        case _:
            text = f"{problem['msg'][:1].lower()}{problem['msg'][1:]}, found {found}"
    key_path = place(key_path)
    return f"{origin_of(key_path, origins, path)}: {dotted(key_path) or 'the scenario'}: {on_one_line(text)}"


def _key_path(location: Sequence[str | int], document: Any) -> KeyPath:
    """Pydantic's location without the names of union members, and those that a short form stands for: they are not keys of the file."""
    key_path: KeyPath = ()
    for index, part in enumerate(location):
        if isinstance(part, str) and not isinstance(document, dict):
            continue
        following = location[index + 1] if index + 1 < len(location) else None
        child = _child(document, part)
        if following is not None and (child is None or (_child(child, following) is None and _child(document, following) is not None)):
            continue
        document, key_path = child, (*key_path, part)
    return key_path


def _child(document: Any, part: str | int) -> Any:
    if isinstance(document, dict):
        return document.get(part)
    return document[part] if isinstance(document, list) and isinstance(part, int) and part < len(document) else None


def on_one_line(text: str) -> str:
    """A text with its line breaks escaped, cut after 1,000 characters."""
    if len(text) > _MAX_CHARACTERS:
        text = f"{text[:_MAX_CHARACTERS]}… ({len(text):,} characters)"
    return text.replace("\n", "\\n")
