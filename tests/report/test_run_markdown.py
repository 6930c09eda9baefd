"""The Markdown summary: a table as GitHub reads it, and the warnings."""

import re

from perfkit.errors import MeasurementWarning
from perfkit.report.answer import answer
from perfkit.report.notebook import result_fragment
from perfkit.report.render import render_markdown
from perfkit.report.run import run_summary_page
from perfkit.report.table import format_error_rate
from perfkit.units import format_duration_ns, format_rate_per_s
from tests.report.test_answer import closed


def table(text):
    """The cells of the first table, escapes undone."""
    rows = [line for line in text.splitlines() if line.startswith("|")]
    return [[re.sub(r"\\(.)", r"\1", cell.strip()) for cell in re.split(r"(?<!\\)\|", row)[1:-1]] for row in rows]


def test_the_table_has_a_row_per_load_point_with_all_figures(synthetic):
    result = synthetic(samples=1000).write()
    heading, rule, *rows = table(render_markdown(run_summary_page(result)))
    assert len(rows) == len(result.summary) == 8
    assert {len(row) for row in (heading, rule, *rows)} == {12}
    assert all(re.fullmatch(r"---:?", cell) for cell in rule)
    for row, point in zip(rows, result.summary, strict=True):
        rates = [format_rate_per_s(rate) for rate in (point.throughput_per_s, point.inferences_per_s)]
        times = [getattr(point.service_time_ns, name) for name in ("p50", "p90", "p95", "p99", "p99_9", "max")]
        assert row[:10] == [point.protocol, str(point.load.concurrency), *rates, *map(format_duration_ns, times)]


def test_withheld_percentiles_are_dashes(synthetic):
    _, _, first, *_ = table(render_markdown(run_summary_page(synthetic(samples=5).write())))
    assert first[6] != "–"
    assert first[7:9] == ["–", "–"]


def test_markup_in_names_and_messages_is_escaped(synthetic):
    warning = MeasurementWarning(code="a`b", message="<script>\n| a | [x](y) *z*")
    text = render_markdown(run_summary_page(synthetic(name="a_b<c>|d", warnings=(warning,)).write()))
    assert text.startswith("# a\\_b\\<c\\>\\|d\n")
    assert "- **all load points**: \\<script\\> \\| a \\| \\[x\\](y) \\*z\\* (`ab`)\n" in text


def test_a_warning_of_some_points_names_them(synthetic):
    text = render_markdown(run_summary_page(synthetic(seconds=10).write()))
    assert (
        "- **http, concurrency 1; grpc, concurrency 1**: Too few samples for p99: at least 662 are needed; measure longer. Remedy" in text
    )


def test_a_result_without_points_says_so(synthetic):
    text = render_markdown(run_summary_page(synthetic(protocols=(), status="interrupted", status_reason="interrupted").write()))
    assert "> **This run was interrupted; the figures cover what was measured until then.**" in text
    assert "No load point was measured." in text
    assert "|" not in text


def test_a_small_error_rate_is_told_apart_from_none():
    assert [format_error_rate(value) for value in (0.0, 0.00001, 0.0001, 0.1234, 1.0)] == ["0", "<0.01%", "0.01%", "12.34%", "100.00%"]


def test_the_markdown_and_the_notebook_view_begin_with_the_answer_of_the_terminal(synthetic):
    result = synthetic(protocols=("http",)).write()
    (sentence,) = answer(result)
    assert render_markdown(run_summary_page(result)).startswith(f"# densenet\n\n## Answer\n\n**{sentence}**\n")
    (beside_figures,) = answer(result, is_beside_figures=True)
    fragment = result_fragment(result)
    assert fragment.index(f"<p>{beside_figures}</p>") < fragment.index("<table>")


def test_a_notebook_shows_the_top_of_the_page():
    warned = (MeasurementWarning("steal", "The host took 2.0% of it."), MeasurementWarning("cache_hits", "The cache answered."))
    fragment = result_fragment(closed(200.0, 500.0, warnings=[warned, warned]))
    parts = (
        "▲ 1 warning", ">500/s<", "throughput at concurrency 2", "95 % interval: 498/s to 502/s", "<svg", "<table>",
        "(all load points) The cache answered. Remedy: --set workload.variants=N.", "<small>1 note: steal</small>",
    )  # fmt: skip
    places = [fragment.index(part) for part in parts]
    assert places == sorted(places)
    assert not re.search(r"<(script|style)\b|\bid=", fragment)
