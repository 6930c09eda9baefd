"""Scenarios as YAML files for `perfkit run`."""

import re
from collections.abc import Mapping, Sequence
from typing import Any

import yaml

from perfkit.scenario.redaction import with_variables
from perfkit.scenario.shipped import SCHEMA_FILE
from perfkit.text.foreign import one_line


def scenario_text(document: Mapping[str, Any], comments: Sequence[str] = ()) -> str:
    """A scenario as YAML, to be saved as a file for `perfkit run`; secrets become environment variables, and comments follow the first lines."""
    document, keys = with_variables(document)
    text = yaml.safe_dump(document, sort_keys=False, default_flow_style=None, allow_unicode=True, width=120)
    return "\n".join([*scenario_head(keys), *(f"# {one_line(comment)}" for comment in comments), text])


def scenario_head(keys: Mapping[str, str]) -> list[str]:
    """The first lines of a scenario file: its schema for editors, where its keys are described, and its environment variables."""
    lines = [
        f"# yaml-language-server: $schema={SCHEMA_FILE.as_uri()}",
        "# `perfkit help scenarios` describes every key; `perfkit validate FILE` checks a scenario without sending anything.",
    ]
    if keys:
        lines.append("# Set these environment variables, not percent-encoded; the file does not hold the secrets themselves:")
        lines += [f"#   {name} for {one_line(key)}" for name, key in keys.items()]
    return lines


def scenario_name(model: str) -> str:
    """A valid scenario name, made from a model's name."""
    return re.sub(r"^[^A-Za-z0-9]+|[^\w.-]+", "-", model).lstrip("-") or "scenario"
