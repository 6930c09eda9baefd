"""JSON Schemas of the files that perfkit reads and writes, generated from their models.

Every node has a description: the docstring below the field, or the text in `schema_words` for a field without a docstring.
"""

import ast
import dataclasses
import functools
import inspect
import sys
import textwrap
import types
import typing
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import pydantic

from perfkit.cli.dataclass_schema import dataclass_schema
from perfkit.cli.schema_words import BY_FIELD, BY_NAME

DIALECT = "https://json-schema.org/draft/2020-12/schema"


def _load(module: str, name: str) -> Callable[[], Any]:
    def load() -> Any:
        __import__(module)
        return getattr(sys.modules[module], name)

    return load


DOCUMENTS: Mapping[str, tuple[str, Callable[[], Any]]] = {
    "scenario": ("a scenario file", _load("perfkit.scenario.model", "Scenario")),
    "result": ("result.json of a run", _load("perfkit.result.model", "Result")),
    "sweep": ("sweep.json of a sweep", _load("perfkit.result.sweep", "SweepDocument")),
    "verdict": ("verdict.json of a gate", _load("perfkit.gate.verdict", "Verdict")),
    "gate": ("gate.json of a gate", _load("perfkit.gate.manifest", "GateManifest")),
    "pair": ("an element of pairs.json of a gate", _load("perfkit.gate.pairs", "Pair")),
    "accepted": ("a file of accepted changes, which is YAML", _load("perfkit.history.accepted", "AcceptedFile")),
    "bisection": ("bisection.json of a bisection", _load("perfkit.bisection.folder", "Bisection")),
    "baseline": ("a baseline file", _load("perfkit.gate.baseline", "Baseline")),
    "plan": ("plan.json of a capacity plan", _load("perfkit.plan.model", "CapacityPlan")),
    "comparison": ("what `perfkit compare --format json` prints", _load("perfkit.comparison.result_comparison", "ResultComparison")),
    "steps": ("what `perfkit history steps --format json` prints", _load("perfkit.history.trend", "StepsDocument")),
    "history-check": ("what `perfkit history check --format json` prints", _load("perfkit.history.check", "HistoryCheck")),
    "calibration": ("the calibration of a machine", _load("perfkit.calibration.model", "Calibration")),
}
"""By document name: a description of the file, and a function that loads its model."""


def schema_of(document: str) -> dict[str, Any]:
    """The JSON Schema of a document, given by its name in `DOCUMENTS`."""
    model = DOCUMENTS[document][1]()
    if issubclass(model, pydantic.BaseModel):
        is_scenario = document == "scenario"
        schema = model.model_json_schema(by_alias=True, mode="validation" if is_scenario else "serialization")
        if is_scenario:
            schema["required"].remove("name")  # a file without it has the file's name
    else:
        schema = dataclass_schema(model)
        schema["properties"] = {"schema": {"type": "string", "description": BY_NAME["schema"]}, **schema["properties"]}
    classes = {found.__name__: found for found in _classes(model, set())}
    for name, node in [(model.__name__, schema), *schema.get("$defs", {}).items()]:
        if name in classes:
            _describe(classes[name], node)
    return {"$schema": DIALECT, **schema}


def _describe(model: type, node: dict[str, Any]) -> None:
    """Adds descriptions to an object's schema, renames its properties to the file's keys, and removes those not stored."""
    if model.__doc__:
        node["description"] = _sentence(model.__doc__)
    texts, properties = _docstrings(model), node.get("properties", {})
    for field, key, is_stored in _fields(model):
        text = texts.get(field) or BY_FIELD.get(f"{model.__name__}.{field}") or BY_NAME.get(key)
        if key != field and field in properties:
            properties[key] = properties.pop(field)
            node["required"] = [key if name == field else name for name in node.get("required", ())]
        if not is_stored:
            properties.pop(key, None)
            node["required"] = [name for name in node.get("required", ()) if name != key]
        elif key in properties and text:
            properties[key]["description"] = _sentence(text)


def _fields(model: type) -> Iterator[tuple[str, str, bool]]:
    """Each field's name, its key in the file, and whether it is stored."""
    if issubclass(model, pydantic.BaseModel):
        for name, field in model.model_fields.items():
            yield name, field.alias or name, True
    elif dataclasses.is_dataclass(model):
        for one in dataclasses.fields(model):
            yield one.name, one.metadata.get("key", one.name), one.metadata.get("is_stored", True)


@functools.cache
def _module_tree(module: str) -> ast.Module:
    return ast.parse(inspect.getsource(sys.modules[module]))


def _docstrings(model: type) -> dict[str, str]:
    """The docstrings below the fields of a class and its bases, by field."""
    texts: dict[str, str] = {}
    for one in reversed(model.__mro__):
        if not one.__module__.startswith("perfkit."):
            continue
        for node in _module_tree(one.__module__).body:
            if isinstance(node, ast.ClassDef) and node.name == one.__name__:
                for field, following in zip(node.body, node.body[1:], strict=False):
                    if (
                        isinstance(field, ast.AnnAssign)
                        and isinstance(field.target, ast.Name)
                        and isinstance(following, ast.Expr)
                        and isinstance(following.value, ast.Constant)
                    ):
                        texts[field.target.id] = str(following.value.value)
    return texts


def _classes(annotation: Any, seen: set[Any]) -> Iterator[type]:
    """The models and dataclasses in a type annotation, nested ones included."""
    if isinstance(annotation, type) and (dataclasses.is_dataclass(annotation) or issubclass(annotation, pydantic.BaseModel)):
        if annotation in seen:
            return
        seen.add(annotation)
        yield annotation
        for hint in typing.get_type_hints(annotation, include_extras=True).values():
            yield from _classes(hint, seen)
        return
    value = getattr(annotation, "__value__", None)
    for part in (*typing.get_args(annotation), *((value,) if value is not None else ())):
        if not isinstance(part, str | types.NoneType):
            yield from _classes(part, seen)


def _sentence(text: str) -> str:
    return " ".join(textwrap.dedent(text).split())
