"""A verdict as JUnit XML, GitHub annotations and Markdown."""

import re
from xml.etree import ElementTree

import pytest

from perfkit.errors import UsageError
from perfkit.gate.verdict import Comparison, Verdict
from perfkit.report.ci import append_summary, render_annotations, render_junit
from perfkit.report.verdict import describe_change, format_effect, print_verdict, render_verdict_markdown


def comparison(metric="p99", verdict="regressed", **changes):
    known = {
        "metric": metric, "load_point": "grpc, concurrency 16", "unit": "ns", "better": "lower", "baseline": 2e6, "candidate": 2.246e6,
        "estimate": 1.123, "interval": (1.079, 1.168), "confidence": 0.9667, "pairs": 15, "adjusted_p": 0.0004, "noise_band": 0.01, "margin": 0.1,
        "minimum_detectable_effect": 0.06, "verdict": verdict, "reason": f"{metric}: a sentence with <b> & \x1b.",
    }  # fmt: skip
    return Comparison.model_validate({**known, **changes})


def verdict(kind="regressed", *comparisons, **changes):
    known = {
        "kind": kind, "reasons": ("p99 is 12 % slower, surely.",), "notes": ("Restarted for every run.",), "mode": "paired", "scenario": "smoke",
        "baseline": "cmd:server-a", "candidate": "cmd:server-b", "false_alarm_rate": 0.01, "pairs": 15, "looks": (12, 16, 20),
        "comparisons": comparisons, "started_at": "2026-01-02T03:04:05.678+00:00",
    }  # fmt: skip
    return Verdict.model_validate({**known, **changes})


ALL = (
    comparison("throughput", "pass"),
    comparison("p50", "inconclusive"),
    comparison("p99", "regressed"),
    comparison("p99_9", "inconclusive", gated=False),
)


def parsed(text):
    return ElementTree.fromstring(text)  # noqa: S314 - what we have just written


def cases(text):
    suite = parsed(text).find("testsuite")
    return {case.get("name"): next((child.tag for child in case), "passed") for case in suite.findall("testcase")}


def test_each_metric_is_a_test_case_with_its_outcome():
    assert cases(render_junit(verdict("regressed", *ALL))) == {
        "throughput, grpc, concurrency 16": "passed",
        "p50, grpc, concurrency 16": "skipped",
        "p99, grpc, concurrency 16": "failure",
        "p99_9, grpc, concurrency 16": "skipped",
    }


def test_a_gate_that_failed_as_a_whole_or_has_no_metrics_is_a_test_case():
    for kind, outcome in {
        "incomparable": "error",
        "invalid": "error",
        "pass": "passed",
        "inconclusive": "skipped",
        "regressed": "failure",
    }.items():
        assert cases(render_junit(verdict(kind))) == {"gate": outcome}
    for kind in ("incomparable", "invalid"):
        assert set(cases(render_junit(verdict(kind, *ALL))).values()) == {"error"}


# the JUnit schema that CI systems hold reports against: attributes that must and may be there, and children in their order
_SCHEMA = {
    "testsuites": ("", "", "testsuite"),
    "testsuite": ("package id name timestamp hostname tests failures errors time", "skipped", "properties testcase system-out system-err"),
    "properties": ("", "", "property"),
    "property": ("name value", "", ""),
    "testcase": ("name classname time", "", "skipped error failure"),
    "skipped": ("", "message", ""),
    **dict.fromkeys(("error", "failure"), ("type", "message", "")),
    **dict.fromkeys(("system-out", "system-err"), ("", "", "")),
}


def check_shape(element):
    required, optional, order = map(str.split, _SCHEMA[element.tag])
    assert set(required) <= set(element.attrib) <= {*required, *optional}
    places = [order.index(child.tag) for child in element]
    assert places == sorted(places)
    if element.tag == "testcase":
        assert len(element) <= 1
    for child in element:
        check_shape(child)


@pytest.mark.parametrize("kind", ["pass", "regressed", "inconclusive", "incomparable", "invalid"])
@pytest.mark.parametrize("comparisons", [(), ALL])
def test_the_document_has_the_schemas_shape(kind, comparisons):
    suites = parsed(render_junit(verdict(kind, *comparisons)))
    check_shape(suites)
    suite = suites[0]
    assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d", suite.get("timestamp"))
    outcomes = [next((child.tag for child in case), "") for case in suite.findall("testcase")]
    counts = [len(outcomes), outcomes.count("failure"), outcomes.count("error"), outcomes.count("skipped")]
    assert [int(suite.get(name)) for name in ("tests", "failures", "errors", "skipped")] == counts


def test_texts_are_escaped_and_characters_invalid_in_xml_are_shown_as_escapes():
    text = render_junit(verdict("regressed", comparison()))
    assert "\x1b" not in text
    failure = parsed(text).find(".//failure")
    assert failure.text.startswith(r"p99: a sentence with <b> & \u001b.")
    assert failure.get("message") == "p99 +12.3 % [+7.9,+16.8], n=15, MDE 6 %"


def test_annotations_are_workflow_commands_with_githubs_escapes():
    assert render_annotations(verdict("regressed", *ALL)) == (
        "::error title=regressed%3A p99%2C grpc%2C concurrency 16 (smoke)::p99 +12.3 %25 [+7.9,+16.8], n=15, MDE 6 %25\n"
        "::warning title=inconclusive%3A p50%2C grpc%2C concurrency 16 (smoke)::p50 +12.3 %25 [+7.9,+16.8], n=15, MDE 6 %25\n"
    )


def test_a_pass_is_a_notice_and_an_invalid_gate_an_error_on_one_line():
    passed = render_annotations(verdict("pass", ALL[0]))
    assert passed == "::notice title=perfkit gate smoke::pass: no metric is worse than its margin allows\n"
    invalid = render_annotations(verdict("invalid", reasons=("100 %\r\n::error::b",)))
    assert invalid == "::error title=perfkit gate smoke%3A invalid::100 %25\\n::error::b\n"


def test_no_more_regressions_are_annotated_than_github_shows():
    many = [comparison(load_point=f"http, concurrency {level}") for level in range(30)]
    assert render_annotations(verdict("regressed", *many)).count("::error") == 10


def test_an_error_rate_is_given_in_percentage_points():
    share = {"unit": "share", "scale": "difference", "minimum_detectable_effect": None}
    failing = comparison("error_rate", estimate=0.02, interval=(0.01, None), **share)
    assert "::error_rate +2.00 [+1.00,?] points, n=15\n" in render_annotations(verdict("regressed", failing))


def test_markdown_has_a_row_per_metric_and_escapes_names():
    text = render_verdict_markdown(verdict("regressed", *ALL, baseline="cmd:a|b"))
    assert text.startswith("## ❌ perfkit gate: smoke\n\n**regressed: the candidate is slower; minimum detectable effect 6 %**")
    assert "cmd:a\\|b" in text
    rows = [line for line in text.splitlines() if line.startswith("| ")][1:]
    assert [len(re.findall(r"(?<!\\)\|", row)) for row in rows] == [10] * 4
    assert "| p99 | grpc, concurrency 16 | 2.00 ms | 2.25 ms | +12.3 % \\[+7.9, +16.8\\] | 0.0004 | 10.0% | 6.0% | regressed |" in rows
    assert "> Restarted for every run." in text


def test_the_pairs_are_drawn_slower_to_the_right():
    slower = comparison(baseline_values=(1.0,) * 4, candidate_values=(1.09, 1.09, 0.95, 1.02))
    faster = comparison("throughput", unit="per_s", better="higher", baseline_values=(1.0, 1.0), candidate_values=(1.09, 1.09))
    lines = render_verdict_markdown(verdict("regressed", slower, faster)).splitlines()
    strips = [line[len(faster.title) :] for line in lines if re.match(r"(p99|throughput), ", line)]
    # ±10 % reach from 2 to 50; the middle stands at 26
    assert [(strip.find("·"), strip.find("∘")) for strip in strips] == [(13, 48), (-1, 4)]
    assert strips[1].rstrip().endswith("|")


@pytest.mark.parametrize("changes", [{"mode": "stored"}, {"comparisons": (comparison(),)}])
def test_without_pairs_there_are_no_strips(changes):
    known = {"comparisons": (comparison(baseline_values=(1.0, 1.0), candidate_values=(1.1, 1.1)),)}
    assert "```" not in render_verdict_markdown(verdict("regressed", **{**known, **changes}))


def test_the_job_summary_is_appended(tmp_path):
    path = tmp_path / "summary.md"
    path.write_text("before\n")
    append_summary(path, "## ours")
    assert path.read_text() == "before\n## ours\n"
    with pytest.raises(UsageError, match="GITHUB_STEP_SUMMARY"):
        append_summary(tmp_path / "no" / "where", "x")


def test_the_terminal_shows_notes_and_the_outcome_before_metrics_and_control(capsys, monkeypatch):
    monkeypatch.setenv("COLUMNS", "200")
    print_verdict(verdict("regressed", *ALL, control=(comparison(verdict="pass"),), control_pairs=3))
    printed = capsys.readouterr().out
    assert printed.startswith("note: Restarted for every run.\nREGRESSED: p99 is 12 % slower, surely.\n")
    assert "minimum detectable" in printed
    assert "baseline cmd:server-a, candidate cmd:server-b; 15 pairs\n" in printed
    assert "control: baseline cmd:server-a against itself; 3 pairs\n" in printed
    (row,) = [line for line in printed.splitlines() if line.startswith(" p99.9 ")]
    assert row.split()[-5:] == ["0.0004", "–", "–", "for", "information"]


def test_a_verdict_from_stored_results_counts_their_runs(capsys):
    print_verdict(verdict("pass", ALL[0], mode="stored", environment={"baseline": {"runs": 5}, "candidate": {"runs": 3}}))
    assert "stored results, 5 against 3 runs\n" in capsys.readouterr().out


def test_an_effect_too_large_to_detect_is_given_as_a_bound():
    unbounded = comparison(minimum_detectable_effect=10.0, pairs=1, interval=(None, None))
    assert describe_change(unbounded) == "p99 +12.3 % [?,?], n=1, MDE more than 1000 %"
    assert format_effect(unbounded, unbounded.minimum_detectable_effect) == ">1000%"
