"""A tune on the terminal, as Markdown and as a page."""

import io

from perfkit.report.tune import print_tune, render_tune_html, render_tune_markdown, tune_table
from tests.gate.tune.tune_outcomes import make_outcome


def test_the_best_configuration_is_the_first_row_and_the_present_one_the_second():
    table = tune_table(make_outcome([100, 130, 160, 50]))
    assert [row["number"] for row in table.records] == [2, 0, 1, 3]
    assert [texts[-1] for texts in table.texts][:2] == ["best", "present; worse than no. 2 (round 2)"]


def test_stdout_begins_with_the_answer(monkeypatch):
    stdout = io.StringIO()
    monkeypatch.setattr("sys.stdout", stdout)
    monkeypatch.setenv("COLUMNS", "200")
    outcome = make_outcome([100, 160, 300], refused=[2])
    print_tune(outcome)
    assert stdout.getvalue().splitlines()[0] == outcome.sentence
    assert "refused: out of memory" in stdout.getvalue()


def test_the_page_begins_with_the_ratio():
    page = render_tune_html(make_outcome([100, 160]))
    assert "1.60 ×" in page
    assert "throughput and p99" in page
    assert "best.config.pbtxt" in page


def test_words_of_the_server_cannot_be_markup():
    outcome = make_outcome([100, 160, 300], refused=[2])
    row = outcome.rows[2].model_copy(update={"reason": "<b>| no\n## memory"})
    outcome = outcome.model_copy(update={"rows": (*outcome.rows[:2], row)})
    assert "<b>|" not in render_tune_html(outcome)
    assert "<b>" not in render_tune_markdown(outcome)
    assert "\n## memory" not in render_tune_markdown(outcome)


def test_markdown_has_the_answer_and_the_table():
    outcome = make_outcome([100, 160])
    text = render_tune_markdown(outcome)
    assert "1.60 times the throughput" in text
    assert "| instance\\_group.count 2 |" in text


def test_stdout_and_markdown_have_the_command_on_a_line_of_its_own(monkeypatch):
    stdout = io.StringIO()
    monkeypatch.setattr("sys.stdout", stdout)
    outcome = make_outcome([100, 160], restores=False)
    print_tune(outcome)
    assert "serve 2" in stdout.getvalue().splitlines()
    assert outcome.next_step in stdout.getvalue()
    assert "```\nserve 2\n```" in render_tune_markdown(outcome)
    ticks = outcome.model_copy(update={"command": "serve ```\n## 2"})
    assert "````\nserve ```" in render_tune_markdown(ticks)


def test_the_present_one_is_marked_where_it_is_kept_though_another_one_leads():
    table = tune_table(make_outcome([100, 101]))
    assert [(row["number"], mark) for row, mark in zip(table.records, table.marks, strict=True)] == [(1, ""), (0, "pass")]
    assert next(texts[-1] for texts in table.texts) == "leads, but not by enough"


def test_the_verdict_on_the_slo_is_in_the_table():
    assert [row["slo"] for row in tune_table(make_outcome([100, 160], doubtful=[1])).records] == ["inconclusive", "satisfied"]
