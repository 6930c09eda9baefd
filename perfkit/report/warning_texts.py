"""What `docs/reference/warnings.md` says of each measurement warning: the one place that says it.

The terminal and the report show the remedy's options, `perfkit help CODE` all of it.
"""

import dataclasses
import functools
import pathlib
import re
from collections.abc import Mapping
from typing import Literal

import perfkit

Severity = Literal["changes the answer", "limits a percentile", "for information"]
_SEVERITIES: Mapping[str | None, Severity] = {
    None: "changes the answer", "Limits a percentile": "limits a percentile", "For information": "for information",
}  # fmt: skip
_PAGE = pathlib.Path(perfkit.__file__).absolute().parent / "docs/reference/warnings.md"
_SECTION = re.compile(
    r"^### `(?P<code>\w+)`\n\n(?P<meaning>.+?)\.(?P<invalid> The load point is not valid\.)?(?: (?P<severity>Limits a percentile|For information)\.)?\n\n"
    r"\*\*Cause\.\*\* .+\.\n\n\*\*Remedy\.\*\* .+?\.(?: Keys and options: (?P<options>.+)\.)?\n",
    re.MULTILINE,
)


@dataclasses.dataclass(frozen=True, slots=True)
class WarningText:
    """The section of one warning, in Markdown."""

    section: str
    """All of it: what was seen, its cause, and its remedy."""
    meaning: str
    """What was seen, without a full stop."""
    severity: Severity
    is_invalid: bool
    """Whether it makes a load point invalid, because its figures are those of the load generator or of a cold target."""
    options: str
    """The options of the remedy, such as `--set measure.workers=N`, which work with a scenario and with a URL; empty if there are none."""

    @property
    def is_note(self) -> bool:
        """Whether it changes no answer: it says under what conditions the figures hold, or why one is left out or uncertain."""
        return self.severity != "changes the answer"


@functools.cache
def warning_texts() -> Mapping[str, WarningText]:
    """The texts of all warnings by code."""
    found = _SECTION.finditer(_PAGE.read_text(encoding="utf-8"))
    return {
        one["code"]: WarningText(one[0], one["meaning"], _SEVERITIES[one["severity"]], bool(one["invalid"]), one["options"] or "")
        for one in found
    }
