"""The report of a run that a GPU served: the GPU's figures come first, and its curves have a figure of their own."""

import dataclasses

import pytest

from perfkit.errors import MeasurementWarning
from perfkit.figures.resources import GpuFigures
from perfkit.report.page import Bullets, Figure
from perfkit.report.render import render_html, render_markdown
from perfkit.report.run import run_page, run_summary_page
from perfkit.report.run_charts import run_charts
from perfkit.report.run_tables import terminal_table
from perfkit.report.table import Table
from perfkit.report.timeline import read_timeline
from perfkit.result.checksums import write_checksums
from perfkit.result.telemetry_file import SampledPoint, TelemetryLog
from perfkit.telemetry.series import Series

S = 1_000_000_000
GPU = GpuFigures(uuid="GPU-1", name="H100", source="nvml", utilization_mean=0.64, energy_j=2000.0)
CURVES = {"gpu_utilization": 0.64, "gpu_power": 410.0, "server_queue": 1e6}


@pytest.fixture
def served(synthetic):
    """A result and its timeline, with a GPU in each point; `device` is that of the bundled server."""

    def make(device="cuda", gpus=(GPU,), energy_j=0.0123):
        maker = synthetic(protocols=("http",), concurrencies=(1, 4), repetitions=1)
        result, log = maker.write(), TelemetryLog(maker.folder)
        for (index, repetition), start_s in maker.window_starts_s.items():
            times_ns = tuple(round((start_s + at_s) * S) for at_s in range(5))
            series = tuple(
                Series(name, "", {"gpu": "GPU-1"} if name.startswith("gpu") else {}, times_ns, (value,) * 5)
                for name, value in CURVES.items()
            )
            log.add(SampledPoint(index, repetition, "http", "x", times_ns[0]), 0, series)
        log.finish()
        write_checksums(maker.folder, ("result.json", "latency.hlog", "telemetry.parquet", "telemetry.csv"))
        target = {**result.environment["target"], "bundled_server": {"device": device}}
        with_gpus = tuple(point.model_copy(update={"gpus": tuple(gpus), "energy_per_inference_j": energy_j}) for point in result.summary)
        changed = result.model_copy(update={"environment": {**result.environment, "target": target}, "summary": with_gpus})
        return changed, read_timeline(maker.folder, changed)

    return make


def page_of(result, timeline):
    return run_page(result, run_charts(result, timeline))


def headings(page):
    return page.sections[[section.title for section in page.sections].index("Summary")].blocks[0].headings


def test_the_gpus_follow_the_summary_with_their_curves_over_the_whole_width(served):
    result, timeline = served()
    page = page_of(result, timeline)
    titles = [section.title for section in page.sections]
    assert titles[titles.index("Summary") :][:2] == ["Summary", "GPUs"]
    assert titles.count("GPUs") == 1
    table, figure = page.sections[titles.index("GPUs")].blocks
    assert isinstance(table, Table)
    assert [row[1] for row in table.texts] == ["H100 GPU-1"] * 2
    assert isinstance(figure, Figure)
    assert [chart.title for chart in figure.charts.charts] == ["GPU busy", "GPU power"]
    assert figure.charts.columns == 1
    assert {y for y in figure.charts.charts[0].lines[0].ys if y is not None} == {64.0}
    (over_time,) = page.sections[titles.index("Over time")].blocks
    assert isinstance(over_time, Figure)
    drawn = [chart.title for chart in over_time.charts.charts]
    assert "server's time per request" in drawn
    assert not any("GPU" in title for title in drawn), "a curve is drawn once"


def test_energy_and_utilisation_stand_beside_throughput(served):
    result, timeline = served()
    assert headings(page_of(result, timeline))[2:6] == ["throughput", "inferences", "GPU busy", "energy per inference"]
    row = run_summary_page(result).sections[1].blocks[0].texts[0]
    assert row[4:6] == ["64%", "0.0123 J"]


def test_figures_that_no_gpu_has_are_no_columns(served):
    unsampled = dataclasses.replace(GPU, utilization_mean=None)
    result, timeline = served(gpus=(unsampled,), energy_j=None)
    assert headings(page_of(result, timeline))[2:5] == ["throughput", "inferences", "p50"]
    result, timeline = served(gpus=())
    assert "GPU busy" not in headings(page_of(result, timeline))


def test_several_gpus_have_the_range_of_their_utilisation(served):
    others = (
        dataclasses.replace(GPU, uuid="GPU-2", utilization_mean=0.2),
        dataclasses.replace(GPU, uuid="GPU-3", used_by_server=False, utilization_mean=0.99),
    )
    result, _ = served(gpus=(GPU, *others))
    assert run_summary_page(result).sections[1].blocks[0].texts[0][4] == "20% to 64%"


def test_markdown_has_the_gpus_after_the_summary(served):
    text = render_markdown(run_summary_page(served()[0]))
    lines = [line for line in text.splitlines() if line.startswith("## ")]
    assert lines[lines.index("## Summary") + 1] == "## GPUs"
    assert "| http, concurrency 1 | H100 GPU-1 | driver | 64% |" in text


def test_where_no_gpu_served_nothing_is_moved(served):
    result, timeline = served("cpu")
    page = page_of(result, timeline)
    titles = [section.title for section in page.sections]
    assert titles[titles.index("GPUs") :] == ["GPUs", "Notes", "Repetitions", "Environment", "Scenario", "How the figures are defined"]
    assert headings(page)[2:5] == ["throughput", "inferences", "p50"]
    (over_time,) = page.sections[titles.index("Over time")].blocks
    assert [chart.title for chart in over_time.charts.charts][2:] == ["server's time per request", "GPU busy", "GPU power"]
    assert "GPUs" not in [section.title for section in run_summary_page(result).sections]


def test_a_gpu_without_samples_over_time_has_no_figure(served):
    result, timeline = served()
    assert "gpus" in run_charts(result, timeline)
    assert "gpus" not in run_charts(result, dataclasses.replace(timeline, telemetry={}))


def test_an_idle_gpu_is_told_before_the_figures_and_in_the_terminal_s_states(served):
    result, timeline = served()
    warning = MeasurementWarning("gpu_idle", "The GPU was idle: H100 was busy for 0.0% of the window.")
    cold, warm = result.summary
    points = (cold.model_copy(update={"warnings": (*cold.warnings, warning)}), warm)
    result = result.model_copy(update={"summary": points})
    page = page_of(result, timeline)
    (item,) = next(block for block in page.sections[0].blocks if isinstance(block, Bullets)).items
    assert (item.subject, item.text, item.code) == ("http, concurrency 1 (not the load of the answer)", warning.message, "gpu_idle")
    assert [row[-1] for row in terminal_table(points).texts] == ["GPU idle", "ok"]
    assert "The GPU was idle while requests waited" in render_html(page)


def test_curves_are_shown_although_the_load_points_have_no_figures_of_gpus(served):
    page = page_of(*served(gpus=()))
    (figure,) = page.sections[[section.title for section in page.sections].index("GPUs")].blocks
    assert [chart.title for chart in figure.charts.charts] == ["GPU busy", "GPU power"]
