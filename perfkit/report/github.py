"""A verdict for GitHub Actions: annotations, and the job's summary."""

import pathlib
from collections.abc import Iterator

from perfkit.errors import UsageError
from perfkit.gate.verdict import Verdict
from perfkit.report.verdict import OUTCOMES, describe_change

_MAXIMUM = 10  # GitHub shows ten annotations of a kind for each step


def render_annotations(verdict: Verdict) -> str:
    """Workflow commands, one per line: `::error title=…::p99 +12.3 % [+7.9,+16.8], n=15, MDE 6 %`."""
    return "".join(f"{line}\n" for line in _annotations(verdict))


def append_summary(path: pathlib.Path, markdown: str) -> None:
    """Appends to the file that $GITHUB_STEP_SUMMARY names; raises UsageError if it cannot be written."""
    try:
        with path.open("a", encoding="utf-8") as file:
            file.write(markdown + "\n")
    except OSError as error:
        raise UsageError(f"$GITHUB_STEP_SUMMARY {path}: cannot be written: {error.strerror}") from None


def _annotations(verdict: Verdict) -> Iterator[str]:
    if verdict.kind in ("incomparable", "invalid"):
        for reason in verdict.reasons[:_MAXIMUM]:
            yield _command("error", f"perfkit gate {verdict.scenario}: {verdict.kind}", reason)
        return
    for kind, level in (("regressed", "error"), ("inconclusive", "warning")):
        for one in [one for one in verdict.gated if one.verdict == kind][:_MAXIMUM]:
            yield _command(level, f"{kind}: {one.title} ({verdict.scenario})", describe_change(one))
    if verdict.kind == "pass":
        yield _command("notice", f"perfkit gate {verdict.scenario}", OUTCOMES["pass"])


def _command(level: str, title: str, message: str) -> str:
    """A command, escaped as GitHub's own toolkit does: colons and commas in properties only."""
    data = message.replace("%", "%25").replace("\r", "%0D").replace("\n", "%0A")
    name = title.replace("%", "%25").replace("\r", "%0D").replace("\n", "%0A").replace(":", "%3A").replace(",", "%2C")
    return f"::{level} title={name}::{data}"
