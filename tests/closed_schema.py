"""A JSON Schema that allows no property which it does not describe."""

import copy
from typing import Any


def closed(schema: dict[str, Any]) -> dict[str, Any]:
    """The schema with every described object closed: a key that the schema lacks is an error."""
    made = copy.deepcopy(schema)
    for node in (made, *made.get("$defs", {}).values()):
        if "properties" in node:
            node.setdefault("additionalProperties", False)
    return made
