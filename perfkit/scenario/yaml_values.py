"""YAML as plain values with the origin of each.

What is read is bounded before it is expanded: aliases can make gigabytes of a few lines.
"""

import re
from collections.abc import Callable
from typing import Any

import yaml

from perfkit.errors import ScenarioError
from perfkit.scenario.origins import KeyPath, Origins, dotted
from perfkit.units import format_bytes

MAX_DOCUMENT_BYTES = 8 * 2**20
"""The longest text that is read; with its aliases expanded it may not be longer either."""
_MAX_VALUES, _MAX_DEPTH, _MAX_CHARACTERS = 250_000, 100, 1000
# libyaml's parser, which is ten times as fast; PyYAML's own where it was built without
_Loader: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)


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
