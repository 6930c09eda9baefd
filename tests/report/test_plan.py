"""The folder of a plan: a self-contained page, Markdown, and every table as CSV and JSON, all with the same figures."""

import csv
import dataclasses
import html
import io
import itertools
import json
import math
import re
import xml.etree.ElementTree as ET

import pytest

from perfkit.errors import ResultError
from perfkit.plan.capacity import Energy, count_replicas
from perfkit.plan.configuration import plan_capacity
from perfkit.plan.evidence import gather_evidence, read_sources
from perfkit.plan.input_texts import Price
from perfkit.plan.inputs import PlanInputs, parse_slo
from perfkit.report.chart_svg import render_plots
from perfkit.report.plan import headline, plan_charts, plan_notes, plan_tables, plan_title, rate_rounded_down, slo_text, write_plan
from perfkit.report.plan_charts import gpu_group, rate_group, throughput_group
from tests.own_scripts import without_own_scripts
from tests.queue_results import shared_mm1_results

SVG = "{http://www.w3.org/2000/svg}"


@pytest.fixture(scope="module")
def plan(tmp_path_factory):
    peaks = tuple((f"2026-{month:02d}-{day:02d}", 400 * 1.004 ** (28 * month + day)) for month in (1, 2, 3) for day in range(1, 29))
    prices, slo = {"": Price(2.5, "$")}, parse_slo(["p99<300ms"])
    inputs = PlanInputs(slo, (1000.0,), prices=prices, redundancy=1, rates_per_s=(55.0,), peaks=peaks, replicas_now=12)
    folders = shared_mm1_results(tmp_path_factory)
    (evidence,) = gather_evidence(read_sources(list(map(str, folders))))
    return plan_capacity([dataclasses.replace(evidence, notes=("The server shared its CPU.",))], inputs)


@pytest.fixture(scope="module")
def mm1_plan_with_zones(plan):
    inputs = dataclasses.replace(plan.inputs, redundancy=0, zones=3)
    rows = tuple(
        dataclasses.replace(
            row, replicas=count_replicas(row.demand_per_s, 80.0, headroom=row.headroom, redundancy=row.redundancy, zones=3).replicas
        )
        for row in plan.chosen.table
    )
    return dataclasses.replace(plan, inputs=inputs, configurations=(dataclasses.replace(plan.chosen, table=rows),))


@pytest.fixture(scope="module")
def folder(plan, tmp_path_factory):
    folder = tmp_path_factory.mktemp("report") / "plan"
    write_plan(plan, folder)
    return folder


def test_every_form_is_written_without_temporary_files(folder):
    names = {str(file.relative_to(folder)) for file in folder.rglob("*") if file.is_file()}
    tables = {
        "ranking",
        "configurations",
        "points",
        "predictions",
        "fleets",
        "front",
        "laws",
        "held_out",
        "forecast",
        "forecast_models",
        "risk",
    }
    plots = {"rate", "front", "throughput", "latency-throughput", "forecast", "held-out", "risk"}
    expected = {"plan.html", "plan.md", "plan.json", *(f"tables/{name}.{kind}" for name in tables for kind in ("csv", "json"))}
    assert {name for name in names if "what_if" not in name} == expected | {f"plots/{name}.svg" for name in plots}


def test_the_page_is_self_contained(folder):
    page = (folder / "plan.html").read_text()
    page = without_own_scripts(page)
    assert re.findall(r'(?:src|href)="(?!#)[^"]*"', page.replace('href="http', 'x="')) == []
    assert "<script" not in page
    assert "@import" not in page
    assert page.count("<figure") == len(list((folder / "plots").iterdir()))
    assert "@media print" in page


def test_csv_json_and_page_agree(plan, folder):
    page = html.unescape(re.sub(r"<[^>]*>", "", without_own_scripts((folder / "plan.html").read_text()).replace("<br>", " ")))
    for table in plan_tables(plan):
        records = json.loads((folder / "tables" / f"{table.name}.json").read_text())
        rows = list(csv.DictReader(io.StringIO((folder / "tables" / f"{table.name}.csv").read_text())))
        assert len(rows) == len(records) == len(table.rows)
        for row, record in zip(rows, records, strict=True):
            for key, value in record.items():
                if isinstance(value, float):
                    assert float(row[key]) == pytest.approx(value, rel=1e-5)
                elif value is not None:
                    assert row[key] == str(value)
        for text in itertools.chain(*table.texts[:3]):
            assert text in page
    assert ",knee,16,,," in (folder / "tables" / "laws.csv").read_text()


def test_the_answer_gives_the_replicas_their_price_and_the_interval(plan):
    fleet, capacity = plan.chosen.fleet, plan.chosen.capacity
    sentences = headline(plan)
    assert sentences[0] == (
        f"{fleet.replicas} replicas of m serve 1,000/s within p99 < 300 ms, decided by {fleet.reason}, for ${2.5 * fleet.replicas:,.2f} per hour "
        f"(${plan.chosen.cost_per_million:,.2f} per million inferences)."
    )
    assert f"(90 % interval {capacity.low_per_s:.1f}/s to " in sentences[1]
    by_estimate, by_limit = math.ceil(1000 / capacity.per_s), math.ceil(1000 / capacity.low_per_s)
    assert 0 < by_estimate < by_limit < fleet.replicas
    added = f"{by_limit - by_estimate} for its uncertainty + {fleet.replicas - by_limit} for {fleet.reason} = {fleet.replicas} replicas."
    assert f"{by_estimate} by the estimate + {added}" in sentences[1]
    assert "(P50; P10 2026-" in sentences[-1]


def test_beside_the_headline_the_sum_is_not_told_again(folder):
    assert "by the estimate + " not in (folder / "plan.html").read_text()
    assert "by the estimate" in (folder / "plan.html").read_text()
    assert "by the estimate + " in (folder / "plan.md").read_text().replace("\\", "")


@pytest.mark.parametrize(
    ("rate", "text"), [(1234.9, "1230"), (12.38, "12.3"), (0.0129, "0.0129"), (1e6, "1000000"), (99.99, "99.9"), (250.0, "250")]
)
def test_the_rate_to_check_has_three_digits_no_exponent_and_is_never_above_the_plans(rate, text):
    assert rate_rounded_down(rate) == f"{text}/s"


def test_the_title_names_model_hardware_and_date(plan, folder):
    assert "<h1>m, 2026-01-02: capacity plan</h1>" in (folder / "plan.html").read_text()
    known = dataclasses.replace(plan, hardware=("4 × H100 80GB HBM3",))
    assert plan_title(known) == "m on 4 × H100 80GB HBM3, 2026-01-02: capacity plan"


def test_what_is_decided_comes_before_how_it_was_measured(folder):
    titles = re.findall(r"<h2>(.*?)</h2>", (folder / "plan.html").read_text())
    assert titles[0] == "Risk", "the answer has no heading"
    order = [titles.index(title) for title in ("Figures", "Forecast", "Notes", "How it was measured", "Measurements", "Data")]
    assert order == sorted(order)
    assert "Before relying on this, read “Extrapolated” and “Notes” below." in (folder / "plan.md").read_text()


def test_a_single_configuration_has_figures_and_no_rank(plan, folder):
    (table,) = (table for table in plan_tables(plan) if table.name == "ranking")
    assert (table.title, table.headings[0]) == ("Figures", "configuration")
    assert table.note.startswith("Intervals are 90 %.")
    assert "ank" not in table.note
    assert table.records[0]["rank"] == 1, "files keep the column"
    assert "## Ranking" not in (folder / "plan.md").read_text()


def test_the_answer_has_four_items_and_each_other_sentence_stands_under_its_subject(plan, folder):
    text = (folder / "plan.md").read_text().replace("\\", "")
    answer = text.partition("## The answer")[2].partition("##")[0]
    first, capacity, risk, *others = headline(plan)
    assert answer.lstrip().startswith(f"**{first}**")
    items = answer.strip().split("\n- ")[1:]
    assert items[0].startswith("Before relying on this, read ")
    assert " ".join(items[1:3]) == capacity
    assert items[3:] == [f"**Risk**: {risk}"]
    for sentence in others:
        assert f"\n- {sentence}\n" in text.partition("## Risk")[2]


def test_the_limit_is_shown_with_all_its_digits():
    assert slo_text(parse_slo(["p99<180.6ms,error_rate<0.1%"])) == "p99 < 180.6 ms, errors < 0.1 %"


def test_headrooms_and_redundancies_that_need_the_same_replicas_are_one_row(mm1_plan_with_zones):
    """Of three zones one may fail: a headroom of up to 40 % and one or two more replicas lost need nothing more."""
    (table,) = (table for table in plan_tables(mm1_plan_with_zones) if table.name == "fleets")
    records = table.records
    assert len({(one["demand_per_s"], one["replicas"]) for one in records}) == len(records) < len(mm1_plan_with_zones.chosen.table)
    assert {row[3] for row in table.texts} == {"0 to 2"}
    for row in mm1_plan_with_zones.chosen.table:
        assert any(one["demand_per_s"] == row.demand_per_s and one["replicas"] == row.replicas for one in records)


def test_assumptions_and_data_are_on_the_page(plan, folder):
    sections = dict(plan_notes(plan))
    assert len(sections["Assumptions"]) >= 5
    assert any("as no average demand is given" in sentence for sentence in sections["Assumptions"])
    assert str(plan.chosen.sources[0]) in sections["Data"][0]
    text = (folder / "plan.md").read_text()
    assert "## Assumptions" in text
    assert "| configuration | capacity | from | to | replicas |" in text


def test_the_rate_charts_show_the_measurements_the_curves_with_their_bands_and_the_slo(plan):
    (chart,) = rate_group(plan).charts
    lines = {line.name: line for line in chart.lines}
    kept = [point for point in plan.chosen.points if point.state == "kept up"]
    for name in ("p50", "p95", "p99"):
        assert lines[name].xs == tuple(point.rate_per_s for point in kept)
        assert lines[name].ys == pytest.approx([point.percentiles_ns[name] / 1e6 for point in kept])
        fitted, curve = lines[f"{name}, fitted"], plan.chosen.curves[name]
        assert fitted.ys == pytest.approx([curve.value(rate) / 1e6 for rate in fitted.xs])
        assert fitted.band[0] == pytest.approx([getattr(curve.predict(fitted.xs[0]), end) / 1e6 for end in ("low", "high")])
        assert lines[f"{name}, did not keep up"].xs == (110.0,)
    assert [(level.value, level.label) for level in chart.levels] == [(300.0, "SLO p99"), (plan.chosen.capacity.per_s, "")]
    assert (chart.spans[0].low, chart.spans[0].high) == (plan.chosen.capacity.low_per_s, plan.chosen.capacity.high_per_s)


def test_the_throughput_chart_shows_the_law_up_to_1_5_times_the_largest_concurrency(plan):
    (chart,) = throughput_group(plan).charts
    lines = {line.name: line for line in chart.lines}
    assert lines["scalability law"].xs[-1] == 96
    assert lines["extrapolated"].xs[-1] == 144
    assert lines["measured"].ys[-1] == pytest.approx(plan.chosen.usl.throughput_per_s(96), rel=0.01)


def test_the_same_plan_draws_the_same_bytes(plan, folder):
    plots = render_plots(plan_charts(plan))
    assert plots == {file.stem: file.read_text() for file in (folder / "plots").iterdir()}
    for svg in plots.values():
        assert ET.fromstring(svg).tag == f"{SVG}svg"  # noqa: S314 - our own SVG


def test_gpus_are_drawn_only_if_there_are_any(plan):
    assert gpu_group(plan) is None
    points = tuple(
        dataclasses.replace(point, gpu_utilization=0.5, power_w=200.0, energy=Energy(200 / point.rate_per_s, 100 / point.rate_per_s))
        for point in plan.chosen.points
    )
    with_gpus = dataclasses.replace(plan, configurations=(dataclasses.replace(plan.chosen, points=points),))
    busy, power, energy = gpu_group(with_gpus).charts
    assert busy.lines[0].ys == (50.0,) * len(points)
    assert power.lines[0].ys == (200.0,) * len(points)
    assert [line.name for line in energy.lines] == ["m", "m, above idle"]
    assert energy.lines[1].ys == pytest.approx([100 / point.rate_per_s for point in points])


def test_markup_in_names_does_not_reach_the_page(plan, tmp_path):
    named, ranked = (dataclasses.replace(one, name="<b>|x") for one in (plan.chosen, plan.ranking[0]))
    write_plan(dataclasses.replace(plan, configurations=(named,), ranking=(ranked,), cheapest="<b>|x"), tmp_path / "plan")
    page, text = (tmp_path / "plan" / "plan.html").read_text(), (tmp_path / "plan" / "plan.md").read_text()
    assert "<b>" not in page
    assert r"\<b\>\|x" in text


def test_a_folder_that_is_not_a_plan_is_refused(plan, tmp_path):
    (tmp_path / "mine.txt").write_text("x")
    with pytest.raises(ResultError, match="is not a plan; give another folder"):
        write_plan(plan, tmp_path)


def test_a_plan_replaces_all_files_of_an_earlier_one(plan, tmp_path):
    for name in ("plan.json", "plots/forecast.svg", "tables/forecast.csv", "tables/forecast.json"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text("earlier")
    without = dataclasses.replace(plan, forecast=None, exhaustion=None)
    written = write_plan(without, tmp_path)
    assert {file for file in tmp_path.rglob("*") if file.is_file()} == set(written)
    assert not any(file.stem == "forecast" for file in written)
