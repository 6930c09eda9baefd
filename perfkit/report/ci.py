"""A verdict for CI systems: JUnit XML for their test reports; annotations and the job's summary for GitHub Actions."""

import pathlib
from xml.etree import ElementTree

from perfkit.errors import UsageError
from perfkit.gate.sentences import headline
from perfkit.gate.verdict import Comparison, Verdict
from perfkit.report.verdict import describe_change, format_figure
from perfkit.text import LONGEST_SENTENCE, safe_lines, sentence

_FAILED_AS_A_WHOLE = ("incomparable", "invalid", "error")
_ESCAPES = str.maketrans({"%": "%25", "\r": "%0D", "\n": "%0A"})
_PROPERTY_ESCAPES = _ESCAPES | str.maketrans({":": "%3A", ",": "%2C"})
_MAXIMUM = 10  # GitHub shows ten annotations of a kind for each step


def render_junit(verdict: Verdict) -> str:
    """The document: a regression is a failure, an inconclusive metric is skipped, incomparable or invalid is an error.

    Metrics that do not gate are skipped. A gate that failed as a whole has a test case of its own, so that only a pass shows as passed.
    """
    cases = [_comparison_case(verdict, one) for one in verdict.comparisons]
    if verdict.kind in _FAILED_AS_A_WHOLE or not cases:
        kind = {"regressed": "failure", "inconclusive": "skipped", "pass": ""}.get(verdict.kind, "error")
        log = () if verdict.failure is None else (verdict.failure.log_title, *verdict.failure.last_lines)
        text = "\n".join((*verdict.reasons, *filter(None, log), *(f"Next: {step}" for step in _next_steps(verdict))))
        cases.insert(0, _case(verdict, "gate", kind, _summary(verdict), text))
    failures, errors, skipped = (str(sum(case.find(kind) is not None for case in cases)) for kind in ("failure", "error", "skipped"))
    suite = _element(
        "testsuite", id="0", package="perfkit.gate", name=f"perfkit gate {verdict.scenario}", tests=str(len(cases)), failures=failures,
        errors=errors, skipped=skipped, time="0", timestamp=verdict.started_at[:19], hostname="localhost",
    )  # fmt: skip
    properties = ElementTree.SubElement(suite, "properties")
    facts = {"verdict": verdict.kind, "mode": verdict.mode, "baseline": verdict.baseline, "candidate": verdict.candidate}
    for name, value in {
        **facts,
        "headline": headline(verdict),
        "pairs": str(verdict.pairs),
        "false_alarm_rate": f"{verdict.false_alarm_rate:g}",
    }.items():
        properties.append(_element("property", name=name, value=value))
    if verdict.failure is not None:
        for name, fact in verdict.failure.facts.items():
            properties.append(_element("property", name=name, value=fact))
    suite.extend(cases)
    output = ElementTree.SubElement(suite, "system-out")
    output.text = _text(
        "\n".join((headline(verdict), *verdict.notes, *verdict.reasons, *(f"Next: {step}" for step in _next_steps(verdict))))
    )
    ElementTree.SubElement(suite, "system-err")
    suites = ElementTree.Element("testsuites")
    suites.append(suite)
    ElementTree.indent(suites)
    return '<?xml version="1.0" encoding="UTF-8"?>\n' + ElementTree.tostring(suites, encoding="unicode") + "\n"


def _comparison_case(verdict: Verdict, one: Comparison) -> ElementTree.Element:
    kind, message = "", describe_change(one)
    if verdict.kind in _FAILED_AS_A_WHOLE:
        kind, message = "error", _summary(verdict)
    elif not one.gated:
        kind, message = "skipped", f"for information: {message}"
    elif one.verdict != "pass":
        kind = "failure" if one.verdict == "regressed" else "skipped"
    values = (("baseline", one.baseline), ("candidate", one.candidate))
    figures = ", ".join(f"{arm} {format_figure(one, value)}" for arm, value in values if value is not None)
    return _case(verdict, one.title, kind, message, f"{one.reason}\n{figures}".rstrip())


def _case(verdict: Verdict, name: str, kind: str, message: str, text: str) -> ElementTree.Element:
    """A test case; without a kind of outcome it has passed."""
    case = _element("testcase", name=name, classname=f"perfkit.gate.{verdict.scenario}", time="0")
    if kind:
        outcome = _element(kind, message=message)
        if kind != "skipped":
            outcome.set("type", "regressed" if kind == "failure" else verdict.kind)
        outcome.text = _text(text)
        case.append(outcome)
    return case


def _summary(verdict: Verdict) -> str:
    if verdict.failure is not None:
        return verdict.failure.quoted_reason
    return verdict.reasons[0] if verdict.reasons else verdict.kind


def _next_steps(verdict: Verdict) -> list[str]:
    return [f"{step.text} {step.command}".rstrip() for step in verdict.next_steps]


def _element(tag: str, /, **attributes: str) -> ElementTree.Element:
    return ElementTree.Element(tag, {key: _text(value) for key, value in attributes.items()})


def _text(text: str) -> str:
    """The text without the characters that XML 1.0 cannot express, and without commands of CI systems, which print test reports."""
    return safe_lines("\n".join(line[:LONGEST_SENTENCE] for line in text.split("\n")))


def render_annotations(verdict: Verdict) -> str:
    """Workflow commands, one per line: `::error title=…::p99 +12.3 % [+7.9,+16.8], n=15, MDE 6 %`; the last are a pass and what to do next."""
    gate = f"perfkit gate {verdict.scenario}"
    following = [_command("notice", f"{gate}: next", step) for step in _next_steps(verdict)]
    if verdict.kind in _FAILED_AS_A_WHOLE:
        reasons = (_summary(verdict), *verdict.reasons[1:_MAXIMUM]) if verdict.reasons else ()
        return "".join([*(_command("error", f"{gate}: {verdict.kind}", reason) for reason in reasons), *following])
    commands = [
        _command(level, f"{kind}: {one.title} ({verdict.scenario})", describe_change(one))
        for kind, level in (("regressed", "error"), ("inconclusive", "warning"))
        for one in [one for one in verdict.gated if one.verdict == kind][:_MAXIMUM]
    ]
    passed = [_command("notice", gate, headline(verdict))] if verdict.kind == "pass" else []
    return "".join([*commands, *passed, *following])


def append_summary(path: pathlib.Path, markdown: str) -> None:
    """Appends to the file that $GITHUB_STEP_SUMMARY names; raises UsageError if it cannot be written."""
    try:
        with path.open("a", encoding="utf-8") as file:
            file.write(markdown + "\n")
    except (OSError, ValueError) as error:  # a null character
        raise UsageError(f"$GITHUB_STEP_SUMMARY {path}: cannot be written: {getattr(error, 'strerror', error)}") from None


def _command(level: str, title: str, message: str) -> str:
    """A command, escaped as GitHub's own toolkit does: colons and commas in properties only."""
    return f"::{level} title={sentence(title).translate(_PROPERTY_ESCAPES)}::{sentence(message).translate(_ESCAPES)}\n"
