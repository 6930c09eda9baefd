"""What an example of a warning is."""

import dataclasses
import pathlib
from collections.abc import Callable, Iterable

from perfkit.errors import MeasurementWarning
from perfkit.report.warning_texts import Severity

Case = Callable[[pathlib.Path], Iterable[MeasurementWarning]]
"""What a part of perfkit warns of in one situation; it is given an empty folder."""


@dataclasses.dataclass(frozen=True, slots=True)
class Example:
    """A warning's code with what is said of it, a situation in which it is given, and one near it in which it is not."""

    code: str
    severity: Severity
    text: str
    """A part of its message."""
    fires: Case
    stays_silent: Case


def changes(code: str, text: str, fires: Case, stays_silent: Case) -> Example:
    """One that changes the answer."""
    return Example(code, "changes the answer", text, fires, stays_silent)


def limits(code: str, text: str, fires: Case, stays_silent: Case) -> Example:
    """One that limits a percentile."""
    return Example(code, "limits a percentile", text, fires, stays_silent)


def informs(code: str, text: str, fires: Case, stays_silent: Case) -> Example:
    """One for information."""
    return Example(code, "for information", text, fires, stays_silent)
