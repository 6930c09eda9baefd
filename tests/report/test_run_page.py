"""The HTML page of a run: well-formed, complete, escaped, and self-contained."""

import html
import html.parser
import re

import pytest
import yaml

from perfkit.errors import MeasurementWarning
from perfkit.report.grouped_warnings import grouped_warnings, warnings_table
from perfkit.report.render import render_html
from perfkit.report.run import run_page, write_reports
from perfkit.report.table import Table
from perfkit.text import to_the_second
from perfkit.units import format_duration_ns, format_rate_per_s
from tests.own_scripts import without_own_scripts
from tests.report.test_answer import closed

VOID = {"meta", "br", "hr", "img", "link", "input", "col"}
HOSTILE = '</title><script>alert("x")</script> | `code` & {{ 7*7 }}'


class Page(html.parser.HTMLParser):
    """Checks that tags are balanced; collects tables, titles and tags."""

    def __init__(self, text):
        super().__init__()
        self.open: list[str] = []
        self.tags: set[str] = set()
        self.tables: list[list[list[str]]] = []
        self.titles: list[str | None] = []
        self.text = ""
        self.feed(text)
        self.close()
        assert self.open == []

    def handle_starttag(self, tag, attrs):
        self.tags.add(tag)
        if tag not in VOID:
            self.open.append(tag)
        if tag == "table":
            self.tables.append([])
        if tag == "tr":
            self.tables[-1].append([])
        if tag in ("td", "th"):
            self.tables[-1][-1].append("")
            self.titles.append(dict(attrs).get("title"))

    def handle_startendtag(self, tag, attrs):
        self.tags.add(tag)

    def handle_endtag(self, tag):
        assert self.open.pop() == tag

    def handle_data(self, data):
        self.text += data
        if any(tag in self.open for tag in ("td", "th")):
            self.tables[-1][-1][-1] += data


def page(synthetic, **options):
    result = synthetic(**options).write()
    return result, Page(without_own_scripts(render_html(run_page(result, {}))))


def test_the_summary_table_has_every_figure_of_each_load_point(synthetic):
    result, found = page(synthetic, samples=1000)
    heading, *rows = found.tables[0]
    percentiles = ["p50", "p90", "p95", "p99", "p99.9"]
    ending = ["max", "errors", "generator CPU"]
    assert heading == ["protocol", "concurrency", "throughput", "inferences", *percentiles, *ending]
    for row, point in zip(rows, result.summary, strict=True):
        rates = [format_rate_per_s(rate) for rate in (point.throughput_per_s, point.inferences_per_s)]
        times = [getattr(point.service_time_ns, name) for name in ("p50", "p90", "p95", "p99", "p99_9", "max")]
        assert row == [
            point.protocol,
            str(point.load.concurrency),
            *rates,
            *map(format_duration_ns, times),
            "0",
            "6.0%",
        ]


def test_repetitions_are_grouped_by_load_point(synthetic):
    result, found = page(synthetic)
    rows = found.tables[-1][1:]
    assert [row[:3] for row in rows[:4]] == [["http", "1", "1"], ["http", "1", "2"], ["http", "2", "1"], ["http", "2", "2"]]
    assert len(rows) == len(result.points)


def test_a_withheld_percentile_is_a_dash_with_a_tooltip_of_the_samples_it_needs(synthetic):
    result, found = page(synthetic, samples=5)
    assert result.summary[0].service_time_ns.count == 50
    assert found.tables[0][1][7:9] == ["–", "–"]
    assert {f"withheld: needs at least {needed} samples, this point has 50" for needed in ("100", "1,000")} <= set(found.titles)


def test_a_point_without_samples_shows_no_times(synthetic):
    _, found = page(synthetic, samples=0)
    assert found.tables[0][1] == ["http", "1", "0.00/s", *["–"] * 6, "0", "6.0%", "NOT VALID"]
    assert "svg" not in found.tags


def test_markup_in_texts_is_escaped(synthetic):
    warning = MeasurementWarning(code="<i>code</i>", message=HOSTILE)
    _, found = page(synthetic, name=HOSTILE, warnings=(warning,), status="incomplete", status_reason=HOSTILE, failed=1)
    assert not {"script", "i", "b"} & found.tags
    assert HOSTILE in found.text
    assert ["http, concurrency 1", "rejected", "503", "2", "–", "the queue is full <b>"] in [row for table in found.tables for row in table]
    assert any(row[:2] == ["<i>code</i>", HOSTILE] for table in found.tables for row in table)


def test_a_warning_appears_once_with_its_load_points(synthetic):
    warning = MeasurementWarning(code="shared_cpus", message="They share CPU 3.")
    _, found = page(synthetic, warnings=(warning,), seconds=10)
    rows = found.tables[1][1:]
    assert rows[0] == ["shared_cpus", "They share CPU 3.", "all load points", "--set measure.cpus=LIST"]
    # only at concurrency 1 are there too few for the p99
    assert [(row[1].partition(":")[0], row[2]) for row in rows if row[0] == "few_samples"] == [
        ("Too few samples for p99", "http, concurrency 1; grpc, concurrency 1"),
        ("Too few samples for p99.9", "http, concurrency 2, 4, 8; grpc, concurrency 2, 4, 8"),
    ]


@pytest.mark.parametrize(
    ("status", "reason", "sentence"),
    [
        ("interrupted", "interrupted", "This run was interrupted; the figures cover what was measured until then."),
        ("incomplete", "the target was lost", "the figures cover what was measured before it stopped. Reason: the target was lost."),
        ("invalid", "some points are not valid", "do not rely on its figures. Reason: some points are not valid."),
    ],
)
def test_a_status_other_than_complete_precedes_the_figures(synthetic, status, reason, sentence):
    _, found = page(synthetic, protocols=("http",), concurrencies=(1,), status=status, status_reason=reason)
    assert sentence in found.text
    assert found.text.index(sentence) < found.text.index("Summary")


def test_a_result_without_points_or_environment_has_a_page(synthetic):
    result = synthetic(protocols=(), status="interrupted").write()
    found = Page(without_own_scripts(render_html(run_page(result.model_copy(update={"environment": {}, "scenario": {}}), {}))))
    assert "No load point was measured." in found.text
    assert "No environment was recorded." in found.text
    assert found.tables == []


def test_a_stall_an_error_burst_and_an_invalid_point_are_named_before_the_figures(synthetic):
    maker = synthetic(
        protocols=("http",), concurrencies=(1, 4, 16), repetitions=1, stalled=(1,), overloaded=(16,), failed=60, failed_in_s=3
    )
    text = Page(without_own_scripts(render_html(run_page(maker.write(), {})))).text
    before = text[: text.index("Summary")]
    for sentence in (
        "http, concurrency 1 (not the load of the answer): The target answered nothing from 2.0 to 4.0 s of the window, although requests were waiting. stall",
        "all load points: 60 requests failed close together, from 3 to 4 s of the window. error_burst",
        "http, concurrency 16 (not the load of the answer): The load generator was the bottleneck: its busiest core was 95% busy, above 85%. generator_bound",
    ):
        assert sentence in " ".join(before.split())


def test_a_warning_of_another_protocols_answer_is_one_of_the_answer():
    slow = MeasurementWarning("stall", "The target answered nothing from 2.0 to 4.0 s.")

    def told(*warnings):
        result = closed(200.0, 800.0, 200.0, 900.0, protocols=["http", "http", "grpc", "grpc"], warnings=warnings)
        return Page(without_own_scripts(render_html(run_page(result.model_copy(update={"points": ()}), {})))).text

    assert slow.message in told((), (slow,), (), ())
    assert "not the load of the answer" not in told((), (slow,), (), ())
    assert "not the load of the answer" in told((slow,), (), (), ())


def test_the_banner_of_a_partly_valid_run_names_the_points_that_are_not_valid(synthetic):
    _, found = page(synthetic, protocols=("http",), concurrencies=(1, 4, 16), overloaded=(16,), status="invalid", status_reason="x")
    assert "1 of 3 load points are not valid; do not rely on their figures: http, concurrency 16." in found.text
    assert "do not rely on its figures" not in found.text


def test_environment_and_scenario_are_shown(synthetic):
    _, found = page(synthetic)
    for text in ("A machine of 8 cores", "0–3, 7", "16.0 GiB", "numpy 2.0.0, grpcio 1.70.0", "Bundled server", "http port", "server_stub"):
        assert text in found.text
    assert "event" not in found.text
    assert "load:\n  closed:\n    concurrency: [1, 2, 4, 8]\n    think_time: 0s\n" in found.text
    assert "workers: auto" in found.text


def test_the_scenario_is_valid_yaml(synthetic):
    result = synthetic(protocols=()).write()
    target = {"version": "1", "model": "a: b", "on": "yes", "empty": "", "none": None, "flag": True, "url": "http://h:1"}
    scenario = {"name": "x", "target": target}
    text = render_html(run_page(result.model_copy(update={"scenario": scenario}), {}))
    assert yaml.safe_load(html.unescape(text.split('<pre tabindex="0">')[1].split("</pre>")[0])) == scenario


def test_the_page_is_self_contained(synthetic):
    maker = synthetic(concurrencies=(1, 2))
    maker.write()
    write_reports(maker.folder)
    text = without_own_scripts((maker.folder / "report.html").read_text(encoding="utf-8"))
    assert 'class="banner"' not in text
    assert not re.search(r"<(script|link|iframe|img)\b|@import|\burl\((?!#)|\bsrc=|\bhref=\"(?!#)", text)
    ids = re.findall(r'\bid="([^"]+)"', text)
    assert len(ids) == len(set(ids))
    assert text.count('role="img"') == 3 + 2 + 2, "a picture for each panel of the load, the percentiles, and over time"


def test_the_subtitle_names_the_url_of_each_measured_protocol(synthetic):
    result = synthetic(samples=100).write()
    assert run_page(result, {}).subtitle.startswith("densenet_onnx, http://127.0.0.1:40001, started ")
    urls = {"http": "http://h:1", "grpc": "grpc://h:2"}
    result.scenario["target"]["urls"] = urls
    for measured in (["http", "grpc"], ["grpc"]):
        result.environment["target"]["protocols"] = {protocol: {} for protocol in measured}
        shown = ", ".join(urls[protocol] for protocol in measured)
        assert run_page(result, {}).subtitle.startswith(f"densenet_onnx, {shown}, started ")


def test_a_warning_told_at_the_top_in_full_has_no_row_below_and_an_empty_remedy_no_column(synthetic):
    whole = MeasurementWarning("tcp_retransmits", "63 of 16,075 TCP segments were sent again.")
    longer = MeasurementWarning(
        "cache_hits", "The server's response cache answered 40 of 500 requests. Its figures are those of the cache."
    )
    for warnings, codes in (((whole,), []), ((whole, longer), ["cache_hits"])):
        made = run_page(synthetic(protocols=("http",), concurrencies=(1, 2), warnings=warnings).write(), {})
        tables = [block for section in made.sections for block in section.blocks if isinstance(block, Table) and block.title == "Attention"]
        assert [row[0] for table in tables for row in table.texts] == codes
    notes = warnings_table(
        grouped_warnings([point.model_copy(update={"warnings": (whole,)}) for point in closed(812.0).summary]), are_notes=False
    )
    assert notes.headings == ["warning", "message", "load points"]


@pytest.mark.parametrize(
    ("instant", "shown"),
    [
        ("2026-01-02T03:04:05.678+00:00", "2026-01-02 03:04:05 UTC"),
        ("2026-01-02T03:04:05Z", "2026-01-02 03:04:05 UTC"),
        ("2026-01-02T03:04:05.678+05:30", "2026-01-02 03:04:05 +05:30"),
        ("2026-01-02", "2026-01-02"),
    ],
)
def test_an_instant_is_shown_without_its_milliseconds(instant, shown):
    assert to_the_second(instant) == shown
