"""A verdict as JUnit XML, GitHub annotations and Markdown."""

import argparse
import re
from xml.etree import ElementTree

import pytest

from perfkit.cli.gate_ending import write_verdict_outputs
from perfkit.errors import UsageError
from perfkit.gate.verdict import Comparison, GateFailure, NextStep, Verdict
from perfkit.report.ci import append_summary, render_annotations, render_junit
from perfkit.report.verdict import describe_amount, describe_change, format_effect, print_verdict, render_verdict_markdown
from perfkit.report.verdict_page import render_verdict_html


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


@pytest.mark.parametrize("kind", ["pass", "regressed", "inconclusive", "incomparable", "invalid", "error"])
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
    passed = render_annotations(verdict("pass", comparison("p99", "pass", interval=(0.97, 1.021))))
    assert passed == "::notice title=perfkit gate smoke::pass: no slowdown above 2.1 %25 of p99\n"
    invalid = render_annotations(verdict("invalid", reasons=("100 %\r\n::error::b",)))
    assert invalid == "::error title=perfkit gate smoke%3A invalid::100 %25\\n::error::b\n"


def test_no_more_regressions_are_annotated_than_github_shows():
    many = [comparison(load_point=f"http, concurrency {level}") for level in range(30)]
    assert render_annotations(verdict("regressed", *many)).count("::error") == 10


def test_an_error_rate_is_given_in_percentage_points():
    share = {"unit": "share", "scale": "difference", "minimum_detectable_effect": None, "baseline": 0.01, "candidate": 0.03}
    failing = comparison("error_rate", estimate=0.02, interval=(0.01, None), **share)
    assert "::error_rate +2.00 points [+1.00 or more], n=15\n" in render_annotations(verdict("regressed", failing))


def test_markdown_has_a_row_per_metric_and_escapes_names():
    text = render_verdict_markdown(verdict("regressed", *ALL, baseline="cmd:a|b"))
    assert text.startswith("## ❌ perfkit gate: smoke\n\n**regressed: p99 +12.3 % \\[+7.9, +16.8\\]**")
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


STEPS = (
    NextStep(text="Measure more <b>pairs</b>.", command="perfkit gate x.yaml --baseline 'cmd:a `b` ```c' --pairs 40"),
    NextStep(text="Or wait."),
)


def test_every_output_says_what_to_do_next(capsys):
    undecided = verdict("inconclusive", ALL[1], next_steps=STEPS)
    print_verdict(undecided)
    command = STEPS[0].command
    assert capsys.readouterr().out.endswith(f"\n\nnext: {STEPS[0].text}\n    {command}\n\nnext: Or wait.\n")
    suite = parsed(render_junit(undecided)).find("testsuite")
    assert suite.find("system-out").text.endswith(f"\nNext: {STEPS[0].text} {command}\nNext: Or wait.")
    assert suite.find("properties/property[@name='headline']").get("value").startswith("inconclusive: ")
    markdown = render_verdict_markdown(undecided)
    assert f"- **Next**: Measure more \\<b\\>pairs\\</b\\>.\n\n  ````shell\n  {command}\n  ````\n\n- **Next**: Or wait.\n" in markdown
    assert render_annotations(undecided).endswith(
        f"::notice title=perfkit gate smoke%3A next::{STEPS[0].text} {command}\n::notice title=perfkit gate smoke%3A next::Or wait.\n"
    )
    page = render_verdict_html(undecided)
    assert "Measure more &lt;b&gt;pairs&lt;/b&gt;." in page
    assert '<pre tabindex="0" class="command">perfkit gate x.yaml --baseline &#39;cmd:a `b` ```c&#39; --pairs 40</pre>' in page


def test_a_gate_that_failed_as_a_whole_says_what_to_do_next():
    failed = verdict("invalid", next_steps=STEPS)
    assert parsed(render_junit(failed)).find(".//error").text.endswith("Next: Or wait.")
    assert render_annotations(failed).count("::notice title=perfkit gate smoke%3A next::") == 2


def test_an_improved_metric_is_told_in_every_output(capsys, monkeypatch):
    monkeypatch.setenv("COLUMNS", "200")
    faster = verdict("pass", comparison("p99", "pass", improved=True, estimate=0.9, interval=(0.85, 0.95)))
    told = "pass: faster: p99 -10.0 % [-15.0, -5.0]"
    print_verdict(faster)
    printed = capsys.readouterr().out
    assert printed.splitlines()[1] == told.replace("pass", "PASS")
    (row,) = [line for line in printed.splitlines() if line.startswith(" p99 ")]
    assert row.split()[-1] == "improved"
    assert "improved |" in render_verdict_markdown(faster)
    assert parsed(render_junit(faster)).find(".//property[@name='headline']").get("value") == told
    assert told in parsed(render_junit(faster)).find(".//system-out").text
    assert '<tr class="improved">' in render_verdict_html(faster)


def test_the_page_tells_disturbed_and_discarded_pairs_and_how_the_time_was_spent():
    load = {
        "cpu_share": 0.12,
        "machine_cpu_share": 0.97,
        "others": {"cpus": 0.6, "busiest": [{"name": "cc1plus", "pid": 77, "cpus": 0.55}]},
    }
    noise = {"metric": "p99", "load_point": "grpc, concurrency 16", "between": 0.021, "within_one_second": 0.018}
    timing = {"window_s": 4.0, "window_chosen_by": "trial", "run_overhead_s": 1.0, "load_points": 2, "noise": [noise]}
    hidden = comparison(generator_share=0.3)
    page = render_verdict_html(
        verdict("regressed", hidden, disturbed_pairs=3, discarded_pairs=2, generator=load, timing=timing, duration_s=421.0)
    )
    told = [
        "<strong>Disturbed pairs</strong>: 3 of 15, in which other processes disturbed the load generator. Up to 30% of a figure",
        "cc1plus (pid 77) 55% of a CPU; the load generator itself kept 12% of a core busy",
        "<strong>Discarded pairs</strong>: 2 measured again",
        "<dt>from start to verdict</dt><dd>7 min</dd>",
        "<dt>expected</dt><dd>4 min to 6 min for 12 to 20 pairs",  # two runs a pair, each of 1 s and two windows of 4 s
        "2.1% between restarts, 0.9% within a window",
    ]
    assert [text for text in told if text not in page] == []
    assert "Disturbed pairs" not in render_verdict_html(verdict("regressed", comparison()))


def test_the_job_summary_is_appended(tmp_path):
    path = tmp_path / "summary.md"
    path.write_text("before\n")
    append_summary(path, "## ours")
    assert path.read_text() == "before\n## ours\n"
    with pytest.raises(UsageError, match="GITHUB_STEP_SUMMARY"):
        append_summary(tmp_path / "no" / "where", "x")


@pytest.mark.parametrize("place", ["no/where", ".", "\0"])
def test_a_job_summary_that_cannot_be_written_is_told_of_and_changes_nothing(tmp_path, monkeypatch, capsys, place):
    monkeypatch.setattr("os.environ", {"GITHUB_STEP_SUMMARY": str(tmp_path / place)})
    options = argparse.Namespace(junit=None, markdown=None, html=None, github="on", format="text")
    write_verdict_outputs(verdict("regressed", comparison()), options)
    said = capsys.readouterr()
    assert said.out.startswith("::error title=regressed")
    assert said.err.startswith("perfkit: $GITHUB_STEP_SUMMARY ")


def test_the_terminal_shows_notes_and_the_outcome_before_metrics_and_control(capsys, monkeypatch):
    monkeypatch.setenv("COLUMNS", "200")
    print_verdict(verdict("regressed", *ALL, control=(comparison(verdict="pass"),), control_pairs=3))
    printed = capsys.readouterr().out
    assert printed.startswith("note: Restarted for every run.\nREGRESSED: p99 +12.3 % [+7.9, +16.8]\np99 is 12 % slower, surely.\n")
    assert "minimum detectable" in printed
    assert "baseline cmd:server-a, candidate cmd:server-b; 15 pairs\n" in printed
    assert "control: baseline cmd:server-a against itself; 3 pairs\n" in printed
    (row,) = [line for line in printed.splitlines() if line.startswith(" p99.9 ")]
    assert row.split()[-5:] == ["0.0004", "–", "6.0%", "for", "information"]


def test_a_terminal_gets_what_decides_and_the_first_thing_to_do(capsys, monkeypatch):
    monkeypatch.setenv("COLUMNS", "100")
    monkeypatch.setattr("sys.stdout.isatty", lambda: True, raising=False)
    shown = verdict("regressed", *ALL, reasons=("p99 is slower.", "p50 is slower, too.", "And p95."), next_steps=STEPS)
    print_verdict(shown)
    printed = capsys.readouterr().out
    assert "And p95." not in printed
    assert not [line for line in printed.splitlines() if line.endswith("for information")]
    assert "cmd:server-a" not in printed.partition("next: ")[0]
    assert "15 pairs; " in printed
    assert printed.count("next: ") == 1
    assert STEPS[0].text in printed
    assert printed.endswith("\n1 more reason and 1 more next step: verdict.json and the page of --html have them\n")


def test_the_amount_says_which_pairs_count():
    both = verdict("pass", ALL[0], disturbed_pairs=3, discarded_pairs=2)
    assert describe_amount(both) == "15 pairs (3 beside other busy processes; they count, too), and 2 more measured again"


def test_a_verdict_from_stored_results_counts_their_runs(capsys):
    print_verdict(verdict("pass", ALL[0], mode="stored", environment={"baseline": {"runs": 5}, "candidate": {"runs": 3}}))
    assert "stored results, 5 against 3 runs\n" in capsys.readouterr().out


def test_an_effect_too_large_to_detect_is_given_as_a_bound():
    unbounded = comparison(minimum_detectable_effect=10.0, pairs=1, interval=(None, None))
    assert describe_change(unbounded) == "p99 +12.3 % [not bounded], n=1, MDE more than 1000 %"
    assert format_effect(unbounded, unbounded.minimum_detectable_effect) == ">1000%"


HOSTILE = ("Traceback:", "```</details><script>\x1b[2J", "::error::&lt; ##[group]")


def failed(**changes):
    known = {"cause": "server", "reason": "The candidate failed in pair 3: it ended.", "arm": "candidate", "phase": "pair 3", "exit_code": 7,
             "last_lines": HOSTILE, "log": "out.partial/runs/002-candidate.server.log"}  # fmt: skip
    failure = GateFailure.model_validate({**known, **changes})
    return verdict("error", reasons=(failure.reason,), failure=failure, pairs=2)


def test_a_failure_is_an_error_with_its_facts_and_the_servers_last_lines():
    suites = parsed(render_junit(failed()))
    check_shape(suites)
    (case,) = suites.iterfind(".//testcase")
    (error,) = case
    assert (error.tag, error.get("type")) == ("error", "error")
    assert error.get("message", "").startswith("The candidate failed in pair 3: it ended. Its last line: ")
    lines = (error.text or "").splitlines()
    assert lines[:3] == [
        "The candidate failed in pair 3: it ended.",
        "The last lines of out.partial/runs/002-candidate.server.log:",
        "Traceback:",
    ]
    facts = {one.get("name"): one.get("value") for one in suites.iterfind(".//property")}
    assert facts.items() >= {"arm": "candidate", "phase": "pair 3", "exit_code": "7", "cause": "server"}.items()
    assert "signal" not in facts


def test_what_a_failed_server_wrote_is_shown_and_not_executed(capsys):
    annotations = render_annotations(failed())
    assert annotations.startswith("::error title=perfkit gate smoke%3A error::The candidate failed in pair 3: it ended. Its last line: ")
    assert annotations.count("\n") == 1
    markdown = render_verdict_markdown(failed())
    block = markdown.split("```text\n")[1].split("\n```\n")[0].splitlines()
    assert block == ["Traceback:", r"'''</details><script>\u001b[2J", r"\u003a:error::&lt; #\u0023[group]"]
    print_verdict(failed())
    shown = capsys.readouterr().out
    assert "\x1b[2J" not in shown
    assert "\n    Traceback:\n" in shown
    page = render_verdict_html(failed())
    assert "<script>\x1b" not in page
    assert "&lt;/details&gt;&lt;script&gt;" in page


def test_a_failure_without_output_names_where_the_log_is():
    for render in (render_junit, render_verdict_markdown, render_verdict_html):
        assert "The server&#39;s log: " in (text := render(failed(last_lines=()))).replace("'", "&#39;")
        assert "Its last line" not in text
