"""What `docs/reference/warnings.md` says of each measurement warning: the one place that says it.

The terminal and the report show the keys, `perfkit help CODE` all of it.
"""

import dataclasses
import functools
import pathlib
import re
from collections.abc import Mapping

import perfkit

_PAGE = pathlib.Path(perfkit.__file__).absolute().parent / "docs/reference/warnings.md"
_SECTION = re.compile(
    r"^### `(?P<code>\w+)`\n\n(?P<meaning>.+?)\.(?P<invalid> The load point is not valid\.)?(?P<note> For information\.)?\n\n"
    r"\*\*Cause\.\*\* .+\.\n\n\*\*Remedy\.\*\* .+?\.(?: Keys and options: (?P<keys>.+)\.)?\n",
    re.MULTILINE,
)


@dataclasses.dataclass(frozen=True, slots=True)
class WarningText:
    """The section of one warning, in Markdown."""

    section: str
    """All of it: what was seen, its cause, and its remedy."""
    meaning: str
    """What was seen, without a full stop."""
    is_invalid: bool
    """Whether it makes a load point invalid, because its figures are those of the load generator or of a cold target."""
    is_note: bool
    """Whether it is a note: it says under what conditions the figures hold, or why one is left out or uncertain."""
    keys: str
    """The scenario keys and `perfkit run` options of the remedy; empty if there are none."""


@functools.cache
def warning_texts() -> Mapping[str, WarningText]:
    """The texts of all warnings by code."""
    found = _SECTION.finditer(_PAGE.read_text(encoding="utf-8"))
    return {one["code"]: WarningText(one[0], one["meaning"], bool(one["invalid"]), bool(one["note"]), one["keys"] or "") for one in found}
