"""The JSON Schemas of perfkit's documents, which here allow no property that they do not describe."""

import copy
import functools
from typing import Any

import jsonschema

from perfkit.cli.schema import schema_of


def closed(schema: dict[str, Any]) -> dict[str, Any]:
    """The schema with every described object closed: a key that the schema lacks is an error."""
    made = copy.deepcopy(schema)
    for node in (made, *made.get("$defs", {}).values()):
        if "properties" in node:
            node.setdefault("additionalProperties", False)
    return made


@functools.cache
def validator_of(document: str) -> jsonschema.Draft202012Validator:
    """The validator of a named document. `jsonschema.validate` would check the schema each time; `tests/cli/test_schema.py` does once."""
    return jsonschema.Draft202012Validator(closed(schema_of(document)))
