"""`perfkit schema`: prints the JSON Schema of a file that perfkit reads or writes.

pydantic makes the schemas from the models; the docstrings of classes and below fields describe them.
"""

import argparse
import ast
import dataclasses
import functools
import importlib
import inspect
import itertools
import json
import sys
from collections.abc import Mapping
from typing import Any

from pydantic.json_schema import GenerateJsonSchema
from pydantic_core import core_schema

from perfkit.cli.exit_code import ExitCode
from perfkit.result.part import adapter_of

DIALECT = "https://json-schema.org/draft/2020-12/schema"

DOCUMENTS: Mapping[str, tuple[str, str, str]] = {
    "scenario": ("a scenario file", "perfkit.scenario.model", "Scenario"),
    "result": ("result.json of a run", "perfkit.result.model", "Result"),
    "sweep": ("sweep.json of a sweep", "perfkit.result.sweep", "SweepDocument"),
    "verdict": ("verdict.json of a gate", "perfkit.gate.verdict", "Verdict"),
    "gate": ("gate.json of a gate", "perfkit.gate.folder", "GateManifest"),
    "pair": ("an element of pairs.json of a gate", "perfkit.gate.pairs", "Pair"),
    "accepted": ("a file of accepted changes, which is YAML", "perfkit.history.accepted", "AcceptedFile"),
    "bisection": ("bisection.json of a bisection", "perfkit.bisection.folder", "Bisection"),
    "tune": ("tune.json of a tune", "perfkit.gate.tune.outcome", "TuneOutcome"),
    "baseline": ("a baseline file", "perfkit.gate.baseline", "Baseline"),
    "plan": ("plan.json of a capacity plan", "perfkit.plan.model", "CapacityPlan"),
    "comparison": ("what `perfkit compare --format json` prints", "perfkit.comparison.result_comparison", "ResultComparison"),
    "steps": ("what `perfkit history steps --format json` prints", "perfkit.history.trend", "StepsDocument"),
    "history-check": ("what `perfkit history check --format json` prints", "perfkit.history.check", "HistoryCheck"),
    "calibration": ("the calibration of a machine", "perfkit.calibration.model", "Calibration"),
}
"""By document name: a description of the file, and the module and the class of its model."""


def configure(parser: argparse.ArgumentParser) -> None:
    """Adds the command's options."""
    documents = "; ".join(f"{name}: {what}" for name, (what, *_) in DOCUMENTS.items())
    parser.add_argument(
        "what", nargs="?", choices=tuple(DOCUMENTS), default="scenario", help=f"whose schema is printed; default: scenario. {documents}"
    )
    parser.set_defaults(execute=_execute)


def _execute(options: argparse.Namespace) -> ExitCode:
    print(json.dumps(schema_of(options.what), indent=1))
    return ExitCode.DONE


def schema_of(document: str) -> dict[str, Any]:
    """The JSON Schema of a document, given by its name in `DOCUMENTS`."""
    _, module, name = DOCUMENTS[document]
    model = getattr(importlib.import_module(module), name)
    is_dataclass = dataclasses.is_dataclass(model)
    schema = adapter_of(model).json_schema(
        mode="validation" if document == "scenario" else "serialization",
        schema_generator=_DataclassSchema if is_dataclass else _DescribedSchema,
    )
    definitions = schema["$defs"]
    root = definitions.pop(name)
    if is_dataclass:
        root["properties"] = {"schema": {"type": "string", "description": "The format and its version."}, **root["properties"]}
    return {"$schema": DIALECT, **({"$defs": definitions} if definitions else {}), **root}


class _DescribedSchema(GenerateJsonSchema):
    """Describes each object by its class's docstring, and each property by the docstring below its field."""

    def model_schema(self, schema: core_schema.ModelSchema) -> dict[str, Any]:
        names = {name: field.alias or name for name, field in schema["cls"].model_fields.items()}
        return _described(super().model_schema(schema), schema["cls"], names)

    def dataclass_schema(self, schema: core_schema.DataclassSchema) -> dict[str, Any]:
        fields = dataclasses.fields(schema["cls"])
        names = {field.name: field.metadata.get("serialization_alias", field.name) for field in fields}
        return _described(super().dataclass_schema(schema), schema["cls"], names)

    def field_title_should_be_set(self, schema: object) -> bool:
        """Never: a title would repeat the key."""
        return False


class _DataclassSchema(_DescribedSchema):
    """The schema of what `dataclass_document` makes of a dataclass."""

    def float_schema(self, schema: core_schema.FloatSchema) -> dict[str, Any]:
        return {**super().float_schema(schema), "type": ["number", "null"]}  # null stands for a number that is not finite


def _described(node: dict[str, Any], model: type, names: Mapping[str, str]) -> dict[str, Any]:
    properties = node["properties"]
    for field, text in _docstrings(model).items():
        if (key := names.get(field)) in properties:
            properties[key]["description"] = _one_line(text)
    return {**node, "description": _one_line(model.__doc__ or "")}


def _docstrings(model: type) -> dict[str, str]:
    """The docstrings below the fields of a class and its bases, by field.

    pydantic's `use_attribute_docstrings` finds the same, but while the class is made, which would take 0.3 s of the start of each run.
    """
    texts: dict[str, str] = {}
    for one in reversed(model.__mro__):
        for statement, following in itertools.pairwise(_bodies(one.__module__).get(one.__name__, ())):
            match statement, following:
                case ast.AnnAssign(target=ast.Name(id=field)), ast.Expr(value=ast.Constant(value=str(text))):
                    texts[field] = text
    return texts


@functools.cache
def _bodies(module: str) -> Mapping[str, list[ast.stmt]]:
    """The bodies of the classes of one of perfkit's modules; of others none."""
    statements = ast.parse(inspect.getsource(sys.modules[module])).body if module.startswith("perfkit.") else []
    return {statement.name: statement.body for statement in statements if isinstance(statement, ast.ClassDef)}


def _one_line(text: str) -> str:
    return " ".join(text.split())
