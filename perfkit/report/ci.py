"""A verdict for CI systems: JUnit XML for their test reports; annotations and the job's summary for GitHub Actions."""

import pathlib
import re
from collections.abc import Iterator
from xml.etree import ElementTree

from perfkit.errors import UsageError
from perfkit.gate.verdict import Comparison, Verdict
from perfkit.report.verdict import OUTCOMES, describe_change, format_figure

_MAXIMUM = 10  # GitHub shows ten annotations of a kind for each step
_NOT_XML = re.compile(r"[^\t\n\r\x20-\uD7FF\uE000-\uFFFD\U00010000-\U0010FFFF]")


def render_junit(verdict: Verdict) -> str:
    """The document: a regression is a failure, an inconclusive metric is skipped, incomparable or invalid is an error.

    Metrics that do not gate are skipped. A gate that failed as a whole has a test case of its own, so that only a pass shows as passed.
    """
    cases = [_case(verdict, one) for one in verdict.comparisons]
    if verdict.kind in ("incomparable", "invalid") or not cases:
        case = _element("testcase", name="gate", classname=_class(verdict), time="0")
        kind = {"regressed": "failure", "inconclusive": "skipped", "pass": ""}.get(verdict.kind, "error")
        if kind:
            message = verdict.reasons[0] if verdict.reasons else verdict.kind
            outcome = _element(kind, message=message, **({} if kind == "skipped" else {"type": verdict.kind}))
            outcome.text = _text("\n".join(verdict.reasons))
            case.append(outcome)
        cases.insert(0, case)
    counts = {kind: sum(case.find(kind) is not None for case in cases) for kind in ("failure", "error", "skipped")}
    suite = _element(
        "testsuite",
        id="0",
        package="perfkit.gate",
        name=f"perfkit gate {verdict.scenario}",
        tests=str(len(cases)),
        failures=str(counts["failure"]),
        errors=str(counts["error"]),
        skipped=str(counts["skipped"]),
        time="0",
        timestamp=verdict.started_at[:19],
        hostname="localhost",
    )
    properties = ElementTree.SubElement(suite, "properties")
    facts = {"verdict": verdict.kind, "mode": verdict.mode, "baseline": verdict.baseline, "candidate": verdict.candidate}
    for name, value in {**facts, "pairs": str(verdict.pairs), "false_alarm_rate": f"{verdict.false_alarm_rate:g}"}.items():
        properties.append(_element("property", name=name, value=value))
    suite.extend(cases)
    output = ElementTree.SubElement(suite, "system-out")
    output.text = _text("\n".join((OUTCOMES[verdict.kind], *verdict.notes, *verdict.reasons)))
    ElementTree.SubElement(suite, "system-err")
    suites = ElementTree.Element("testsuites")
    suites.append(suite)
    ElementTree.indent(suites)
    return '<?xml version="1.0" encoding="UTF-8"?>\n' + ElementTree.tostring(suites, encoding="unicode") + "\n"


def _case(verdict: Verdict, one: Comparison) -> ElementTree.Element:
    case = _element("testcase", name=one.title, classname=_class(verdict), time="0")
    is_whole = verdict.kind in ("incomparable", "invalid")
    if is_whole:
        kind, message = "error", verdict.reasons[0] if verdict.reasons else verdict.kind
    elif one.gated and one.verdict == "regressed":
        kind, message = "failure", describe_change(one)
    elif not one.gated or one.verdict == "inconclusive":
        kind, message = "skipped", describe_change(one) if one.gated else f"for information: {describe_change(one)}"
    else:
        return case
    outcome = _element(kind, message=message, **({} if kind == "skipped" else {"type": verdict.kind if is_whole else one.verdict}))
    outcome.text = _text(f"{one.reason}\nbaseline {format_figure(one, one.baseline)}, candidate {format_figure(one, one.candidate)}")
    case.append(outcome)
    return case


def _class(verdict: Verdict) -> str:
    return f"perfkit.gate.{verdict.scenario}"


def _element(tag: str, /, **attributes: str) -> ElementTree.Element:
    return ElementTree.Element(tag, {key: _text(value) for key, value in attributes.items()})


def _text(text: str) -> str:
    """The text without the characters that XML 1.0 cannot express."""
    return _NOT_XML.sub("\N{REPLACEMENT CHARACTER}", text)


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
