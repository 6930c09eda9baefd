"""YAML as plain values with the origin of each, its line or its override, and validation errors as messages that name file, line and key.

What is read is bounded before it is expanded: aliases can make gigabytes of a few lines.
"""

import pathlib
import re
from collections.abc import Callable, Sequence
from typing import Any, TypeAlias

import pydantic
import yaml

from perfkit.errors import ScenarioError
from perfkit.units import format_bytes

MAX_DOCUMENT_BYTES = 8 * 2**20
"""The longest text that is read; with its aliases expanded it may not be longer either."""
_MAX_VALUES, _MAX_DEPTH = 250_000, 100
# libyaml's parser, which is ten times as fast; PyYAML's own where it was built without
_Loader: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
KeyPath: TypeAlias = tuple[str | int, ...]
Origins: TypeAlias = dict[KeyPath, str]
"""The file and line, or the override, in which each key and list element is set."""
_MAX_PROBLEMS, _MAX_CHARACTERS = 20, 1000
URL_KEYS = (("target", "url"), ("target", "urls"), ("target", "metrics_url"), ("metrics", "url"))


def parse_yaml(text: str, key_path: KeyPath, origins: Origins, origin: Callable[[int], str]) -> Any:
    """YAML as plain values; adds the origin of every key and element, which `origin` makes from its line.

    Raises ScenarioError if the text is not YAML, or larger or deeper than the limits with its aliases expanded.
    """
    constructor = yaml.SafeLoader("")
    try:
        _check_size(text, origin)
        root = yaml.compose(text, Loader=_Loader)
        return _plain_value(root, key_path, origins, origin, constructor) if root else None
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        line, problem = (mark.line + 1 if mark else 1), error.problem or error.context
        # an alias or tag is often a value that should be in quotes, and may be a secret
        problem = re.sub(r"(undefined alias|tag)( '.*')?", r"\1: put the value in quotes", str(problem))
    except yaml.reader.ReaderError as error:
        line, problem = text.count("\n", 0, error.position) + 1, f"the character #x{error.character:04x} is not allowed"
    except UnicodeEncodeError as error:  # bytes of the command line that are not UTF-8
        line, problem = text.count("\n", 0, error.start) + 1, f"the character #x{ord(text[error.start]):04x} is not allowed"
    except RecursionError:
        line, problem = 1, "an alias contains itself"
    finally:
        constructor.dispose()
    raise ScenarioError(f"{origin(line)}: not valid YAML: {problem}")


def _check_size(text: str, origin: Callable[[int], str]) -> None:
    """Counts values and characters with aliases expanded, from the parser's events: nothing is made."""
    values = characters = 0
    known: dict[str | None, tuple[int, int]] = {}  # the values and characters of each anchor
    open_nodes: list[tuple[str | None, int, int]] = []  # the anchor of each, and the counts before it
    for event in yaml.parse(text, Loader=_Loader):
        if isinstance(event, yaml.AliasEvent):
            more = known.get(event.anchor, (1, 0))
            values, characters = values + more[0], characters + more[1]
        elif isinstance(event, yaml.ScalarEvent):
            values, characters = values + 1, characters + len(event.value)
            if event.anchor is not None:
                known[event.anchor] = 1, len(event.value)
        elif isinstance(event, yaml.CollectionStartEvent):
            open_nodes.append((event.anchor, values, characters))
            values += 1
        elif isinstance(event, yaml.CollectionEndEvent):
            anchor, values_before, characters_before = open_nodes.pop()
            if anchor is not None:
                known[anchor] = values - values_before, characters - characters_before
        assert event.start_mark is not None
        line = event.start_mark.line + 1
        if len(open_nodes) > _MAX_DEPTH:
            raise ScenarioError(f"{origin(line)}: not valid YAML: values are nested deeper than {_MAX_DEPTH} levels")
        if values > _MAX_VALUES:
            raise ScenarioError(
                f"{origin(line)}: more than {_MAX_VALUES:,} values, aliases expanded: put large values into files, such as "
                "workload.inputs.X.file: x.npy"
            )
        if characters > MAX_DOCUMENT_BYTES:
            raise ScenarioError(
                f"{origin(line)}: more than {format_bytes(MAX_DOCUMENT_BYTES)} of text, aliases expanded: put it into files"
            )


def _plain_value(node: yaml.Node, key_path: KeyPath, origins: Origins, origin: Callable[[int], str], constructor: yaml.SafeLoader) -> Any:
    here = origins.setdefault(key_path, origin(node.start_mark.line + 1))
    if isinstance(node, yaml.MappingNode):
        mapping: dict[str, Any] = {}
        for key_node, value_node in node.value:
            key = str(key_node.value)
            line = origin(key_node.start_mark.line + 1)
            if key in mapping:
                raise ScenarioError(f"{line}: {dotted((*key_path, key))}: this key is set twice: remove one")
            origins[*key_path, key] = line
            mapping[key] = _plain_value(value_node, (*key_path, key), origins, origin, constructor)
        return mapping
    if isinstance(node, yaml.SequenceNode):
        return [_plain_value(element, (*key_path, index), origins, origin, constructor) for index, element in enumerate(node.value)]
    try:
        value = constructor.construct_object(node, deep=True)
        str(value).encode()
    except yaml.YAMLError:
        raise
    except UnicodeEncodeError:
        raise ScenarioError(f"{here}: {dotted(key_path) or 'the scenario'}: the text holds half of a surrogate pair") from None
    except Exception as error:  # noqa: BLE001 - PyYAML passes on whatever int(), datetime and its own tables raise
        why = f"a number of {len(node.value):,} characters" if len(node.value) > _MAX_CHARACTERS else error
        raise ScenarioError(f"{here}: {dotted(key_path) or 'the scenario'}: not valid YAML: {why}") from None
    constructor.constructed_objects.clear()
    return value


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
    if key_path in (("target",), ("workloads",)) or key_path[:2] in (("target", "headers"), *URL_KEYS):
        return "a value that is not shown here"
    return repr(value)


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
    """Pydantic's location without the names of union members, which are not keys of the file."""
    key_path: KeyPath = ()
    for index, part in enumerate(location):
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
