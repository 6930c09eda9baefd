"""The pages of the reference with their generated parts."""

import json
import pathlib
from collections.abc import Callable, Mapping

from docs_build.reference.commands import commands
from docs_build.reference.marked_parts import anchor, cell, with_parts
from docs_build.reference.python_interface import python_interface
from docs_build.reference.schema_sections import schema_sections
from perfkit.cli.schema import schema_of
from perfkit.report.warning_texts import Severity, warning_texts

ROOT = pathlib.Path(__file__).parents[2]


def _warning_table(severity: Severity, *, is_invalid: bool = False) -> str:
    """The warnings of a kind, from the sections of the same page."""
    kind = (severity, is_invalid)
    texts = [(code, text.meaning) for code, text in warning_texts().items() if (text.severity, text.is_invalid) == kind]
    rows = [f"| [`{code}`](#{anchor(code)}) | {cell(meaning[0].lower() + meaning[1:])} |" for code, meaning in texts]
    return "\n".join(["| code | meaning |", "|---|---|", *rows])


PARTS: Mapping[str, Callable[[], str]] = {
    "commands": commands,
    "invalid-point-warnings": lambda: _warning_table("changes the answer", is_invalid=True),
    "valid-point-warnings": lambda: _warning_table("changes the answer"),
    "limiting-warnings": lambda: _warning_table("limits a percentile"),
    "notes": lambda: _warning_table("for information"),
    "scenario-keys": lambda: schema_sections("scenario", has_defaults=True),
    "result-fields": lambda: schema_sections("result", has_defaults=False),
    "python-interface": python_interface,
}
"""By the name in a page's mark."""


def generated() -> dict[pathlib.Path, str]:
    """Every file that has generated parts, with its text as it should be."""
    pages = {path: with_parts(path.read_text(encoding="utf-8"), PARTS) for path in sorted((ROOT / "docs/reference").glob("*.md"))}
    return pages | {ROOT / "docs/scenario.schema.json": json.dumps(schema_of("scenario"), indent=1) + "\n"}
