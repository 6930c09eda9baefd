"""The keys of a document, from its JSON Schema: a section for each object, with a table of its keys."""

import dataclasses
import json
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from docs_build.reference.marked_parts import anchor, cell
from perfkit.cli.schema import schema_of
from perfkit.units import write_duration_ns

Node = Mapping[str, Any]

_KINDS = {"250us": "duration", "0.1%": "share", "64MB": "size", 100: "rate"}
"""By the first example of a value that is written with a unit."""
_TYPES = {
    "string": "text",
    "integer": "whole number",
    "number": "number",
    "boolean": "true or false",
    "null": "null",
    "array": "list",
    "object": "mapping",
}


@dataclasses.dataclass(frozen=True)
class Section:
    """An object of the document."""

    path: str
    """Where it is, such as `target.tls`; empty for the document itself."""
    variant: str
    """What tells it apart from other objects that can be at the same place, a key or `key: value`; empty if there are none."""
    node: Node
    order: tuple[int, ...]
    """The numbers of the keys that lead to it, by which sections are sorted."""

    @property
    def title(self) -> str:
        """The heading, without its level."""
        return f"`{self.path}`{f' with `{self.variant}`' if self.variant else ''}"

    @property
    def link(self) -> str:
        """A link to the section; its text is what a table calls it."""
        return f"[{f'`{self.variant}`' if self.variant else 'mapping'}](#{anchor(self.title)})"


def schema_sections(document: str, *, has_defaults: bool) -> str:
    """The keys of a document that `perfkit schema` knows; with defaults for a file that people write."""
    return _Page(schema_of(document), has_defaults=has_defaults).text()


class _Page:
    def __init__(self, schema: Node, *, has_defaults: bool) -> None:
        self._definitions, self._has_defaults = schema.get("$defs", {}), has_defaults
        self._places: dict[str, Section] = {}
        """By name of a definition, the section that shows it, which is the one with the shortest way to it; others link there."""
        self._sections = [Section("", "", schema, ())]
        for section in self._sections:  # which grows meanwhile, level by level
            for number, (key, node) in enumerate(section.node.get("properties", {}).items()):
                self._add_below(f"{section.path}.{key}".lstrip("."), node, (*section.order, number))

    def text(self) -> str:
        titles = [anchor(section.title) for section in self._sections]
        if len(titles) != len(set(titles)):
            raise ValueError(f"two sections have one anchor: {sorted(title for title in titles if titles.count(title) > 1)}")
        return "\n\n".join(part for section in sorted(self._sections, key=lambda one: one.order) for part in self._shown(section))

    def _add_below(self, path: str, node: Node, order: tuple[int, ...]) -> None:
        """Adds the objects that can be at a path."""
        found = list(_objects(node, path))
        for number, (place, name) in enumerate(found):
            definition = self._definitions[name]
            if (inner := _wrapped(definition)) is not None and len(found) > 1:
                self._add_below(f"{place}.{next(iter(definition['properties']))}", inner, (*order, number))
            elif name not in self._places:
                others = [self._definitions[other] for other_place, other in found if other_place == place and other != name]
                section = Section(place, _variant(definition, others) if others else "", definition, (*order, number))
                self._places[name] = section
                self._sections.append(section)

    def _shown(self, section: Section) -> Iterator[str]:
        if section.path:
            yield f"{'##' if '.' not in section.path else '###'} {section.title}"
            if text := section.node.get("description"):
                yield text
        properties = section.node.get("properties", {})
        if not properties:
            return
        heads = ["key", "type", "default", "meaning"] if self._has_defaults else ["key", "type", "meaning"]
        rows = [f"| {' | '.join(heads)} |", f"|{'---|' * len(heads)}"]
        for key, node in self._unwrapped(properties):
            default = [_default(node, is_required=key in section.node.get("required", ()))] if self._has_defaults else []
            rows.append(f"| {' | '.join([f'`{key}`', cell(self._type(node)), *default, cell(node.get('description', ''))])} |")
        yield "\n".join(rows)

    def _unwrapped(self, properties: Mapping[str, Node]) -> Iterator[tuple[str, Node]]:
        """The keys, where each of several wrapped variants is a key of its own, such as `load.closed`."""
        for key, node in properties.items():
            names = [name for _, name in _objects(node, "")]
            yield key, node
            for definition in (self._definitions[name] for name in names if len(names) > 1):
                if _wrapped(definition) is not None:
                    ((inner_key, inner),) = definition["properties"].items()
                    yield f"{key}.{inner_key}", inner

    def _type(self, node: Node) -> str:
        if "$ref" in node:
            name = node["$ref"].rpartition("/")[2]
            definition = self._definitions[name]
            if name in self._places:
                return self._places[name].link
            inner = _wrapped(definition)
            return f"`{next(iter(definition['properties']))}`" if inner is not None else self._type(definition)
        for word in ("anyOf", "oneOf"):
            if word in node:
                types = dict.fromkeys(self._type(one) for one in node[word])
                if self._has_defaults:
                    types.pop("null", None)  # no value is the default
                return ", ".join(types)
        if "enum" in node:
            return ", ".join(f"`{value}`" for value in node["enum"])
        if "const" in node:
            return f"`{node['const']}`"
        if kind := _KINDS.get(next(iter(node.get("examples", ())), "")):
            return kind
        kinds = node.get("type", "anything")
        if kinds == "array":
            items = node.get("items")
            return f"list of {self._type(items)}" if isinstance(items, Mapping) and items else "list"
        if kinds == "object" and isinstance(values := node.get("additionalProperties"), Mapping):
            return f"mapping of names to {self._type(values)}"
        name = " or ".join(_TYPES.get(kind, kind) for kind in ([kinds] if isinstance(kinds, str) else kinds))
        return f"{name}{_bounds(node)}" if name in ("whole number", "number") else name


def _objects(node: Node, path: str) -> Iterator[tuple[str, str]]:
    """The paths and names of the definitions that a node refers to."""
    if "$ref" in node:
        yield path, node["$ref"].rpartition("/")[2]
    for word in ("anyOf", "oneOf"):
        for one in node.get(word, ()):
            yield from _objects(one, path)
    if isinstance(items := node.get("items"), Mapping):
        yield from _objects(items, f"{path}[]")
    for one in node.get("prefixItems", ()):
        yield from _objects(one, f"{path}[]")
    if isinstance(values := node.get("additionalProperties"), Mapping):
        yield from _objects(values, f"{path}.NAME")


def _wrapped(definition: Node) -> Node | None:
    """The only property of a definition that has no other, if it is an object: such a definition only names a variant."""
    properties = list(definition.get("properties", {}).values())
    return properties[0] if len(properties) == 1 and "$ref" in properties[0] else None


def _variant(definition: Node, others: Sequence[Node]) -> str:
    """The key that an object has and no other at its place, or the key with a value of its own."""
    properties = definition.get("properties", {})
    for key, node in properties.items():
        if "const" in node:
            return f"{key}: {node['const']}"
    taken = {key for other in others for key in other.get("properties", {})}
    return next((key for key in (*definition.get("required", ()), *properties) if key not in taken), "")


def _bounds(node: Node) -> str:
    low, high = node.get("minimum"), node.get("maximum")
    if low is not None and high is not None:
        return f", {low:,} to {high:,}"
    if low is not None:
        return f", at least {low:,}"
    if high is not None:
        return f", at most {high:,}"
    return f", above {node['exclusiveMinimum']:,}" if "exclusiveMinimum" in node else ""


def _default(node: Node, *, is_required: bool) -> str:
    if is_required:
        return "required"
    if "default" not in node or isinstance(node["default"], dict) or node["default"] in (None, []):
        return "–"
    value = node["default"]
    if isinstance(value, int) and not isinstance(value, bool) and _KINDS.get(next(iter(node.get("examples", ())), "")) == "duration":
        return f"`{write_duration_ns(value)}`"
    return f"`{value if isinstance(value, str) and value else json.dumps(value)}`"
