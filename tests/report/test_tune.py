"""A tune on the terminal, as Markdown and as a page."""

import io

from perfkit.report.page import Figure
from perfkit.report.tune import effects_table, print_tune, render_tune_html, render_tune_markdown, tune_page, tune_table
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


def test_what_each_key_does_is_a_table_on_the_page_and_in_markdown():
    outcome = make_outcome([100, 160, 130])
    (first, second) = effects_table(outcome).texts
    assert first[:3] == ["instance_group.count", "2", "1"]
    assert first[3].startswith("1.6 (1.5")
    assert second[1] == "3"
    for text in (render_tune_html(outcome), render_tune_markdown(outcome)):
        assert "What each key does by itself" in text
    assert "What each key does by itself" not in render_tune_html(make_outcome([100, 160], refused=[1]))


def test_the_chart_has_the_intervals_of_both_figures():
    outcome = make_outcome([100, 160, 158], rounds=8)
    (chart,) = [panel for block in tune_page(outcome).sections[0].blocks if isinstance(block, Figure) for panel in block.charts.charts]
    best = next(line for line in chart.lines if line.name == "best")
    row = outcome.row(1)
    assert row.throughput_interval_per_s is not None
    assert row.p99_interval_ns is not None
    (interval,) = best.intervals
    assert interval is not None
    assert interval[:2] == row.throughput_interval_per_s
    assert interval[0] < 160 < interval[1]
    assert interval[2] == row.p99_interval_ns[0] / 1e6


def test_a_latency_has_no_concurrency_and_costs_have_cpus():
    assert "in flight" not in [column.heading for column in tune_table(make_outcome([0.1, 0.2], objective="latency")).columns]
    assert "CPUs" in [column.heading for column in tune_table(make_outcome([100, 160], objective="cost")).columns]
    assert "0.50 ×" in render_tune_html(make_outcome([0.1, 0.2], objective="latency"))
