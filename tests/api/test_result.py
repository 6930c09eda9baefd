"""A stored result and its views: the figures are those of `result.json` and `latency.hlog`, by other ways to read them."""

import html
import itertools
import json
import re

import matplotlib as mpl
import numpy as np
import pytest
from hdrh.histogram import HdrHistogram
from hdrh.log import HistogramLogReader
from matplotlib import pyplot

import perfkit
from perfkit.errors import ResultError, UsageError
from perfkit.report.terminal import print_warnings
from perfkit.report.terminal_summary import print_summary
from tests import stored_results

mpl.use("agg")  # no window, also where there is a display


@pytest.fixture(scope="module")
def measured(tmp_path_factory):
    """The folder of a short run."""
    folder = tmp_path_factory.mktemp("measured") / "out"
    perfkit.run(
        {
            "target": {"model": "simple"},
            "load": {"open": {"rate": [100, 200]}},
            "measure": {"warmup": "50ms", "duration": "1.5s", "repetitions": 2},
        },
        out=folder,
        report=False,
    )
    return folder


@pytest.fixture
def result(measured):
    return perfkit.load_result(measured)


def library_histograms(folder, kind):
    """What the hdrhistogram library reads from the log, by point, all repetitions added."""
    added: dict[str, HdrHistogram] = {}
    reader = HistogramLogReader(str(folder / "latency.hlog"), _histogram())
    while (one := reader.get_next_interval_histogram()) is not None:
        point, _, times = one.get_tag().split(".")
        if times == kind:
            added.setdefault(point, _histogram()).add(one)
    reader.close()
    return added


def _histogram():
    return HdrHistogram(1_000, 3_600_000_000_000, 3)


def test_the_frame_has_the_figures_of_the_document_with_types_for_computing(measured, result):
    document = json.loads((measured / "result.json").read_text())
    frame, repetitions = result.to_frame(), result.to_frame(repetitions=True)
    assert frame["level"].tolist() == [100.0, 200.0]
    assert frame["p50_ns"].tolist() == [point["response_time_ns"]["p50"] for point in document["summary"]]
    assert frame["times"].tolist() == ["response", "response"]
    assert repetitions.groupby("level")["ok"].sum().tolist() == [point["requests"]["ok"] for point in document["summary"]]
    assert {name: str(frame[name].dtype) for name in ("p99_99_ns", "throughput_per_s", "valid", "samples")} == {
        "p99_99_ns": "Int64", "throughput_per_s": "float64", "valid": "bool", "samples": "Int64",
    }  # fmt: skip
    assert frame["p99_99_ns"].isna().all()  # 150 samples and more, of 10,000 that it needs


def test_the_seconds_and_the_histograms_are_those_that_the_library_reads(measured, result):
    intervals, histograms = result.intervals(), result.histograms()
    for (index, level), kind in itertools.product(enumerate((100, 200)), ("service", "response", "delay")):
        expected = library_histograms(measured, kind)[f"p{index}"]
        own = intervals[(intervals["times"] == kind) & (intervals["level"] == level)]
        assert own["samples"].sum() == expected.get_total_count()
        assert own["max_ns"].max() == pytest.approx(expected.get_max_value(), rel=1e-3)
        assert set(own["repetition"]) == {0, 1}
        assert own["window_s"].round(3).isin([0.0, 1.0]).all()
    for index, level in enumerate((100, 200)):
        expected, own = library_histograms(measured, "response")[f"p{index}"], histograms[histograms["level"] == level]
        buckets = [(one.value_iterated_to, one.count_at_value_iterated_to) for one in expected.get_recorded_iterator()]
        assert list(zip(own["high_ns"], own["count"], strict=True)) == buckets
        assert own["cumulative_share"].iloc[-1] == 1.0


def test_completions_of_the_seconds_are_those_of_the_document(result):
    intervals = result.intervals()
    seconds = intervals[intervals["times"] == "response"].groupby(["level", "repetition"])["completions"].apply(list)
    for point in result.points:
        series = point.throughput_series_per_s
        assert seconds[point.load.level, point.repetition] == list(series[: len(seconds[point.load.level, point.repetition])])
    assert intervals["failures"].tolist() == [0] * len(intervals)


def test_telemetry_is_a_frame_with_units_and_empty_without_any(result, tmp_path):
    frame = result.telemetry()
    assert list(frame.columns) == ["point", "repetition", "protocol", "load", "name", "labels", "unit", "time_s", "window_s", "value"]
    assert set(frame["point"]) == {0, 1}
    assert np.isfinite(frame["value"]).all()
    folder = stored_results.write(tmp_path / "bare", stored_results.document())
    empty = perfkit.load_result(folder).telemetry()
    assert empty.empty
    assert list(empty.columns) == list(frame.columns)


@pytest.mark.parametrize("kind", ["percentiles", "load", "timeline"])
def test_plots_are_drawn_into_axes_of_the_caller_or_new_ones(result, kind):
    own = result.plot(kind)
    figure, given = pyplot.subplots()
    assert result.plot(kind, ax=given) is given
    assert len(own.lines) == len(given.lines) > 1
    assert "response time (ms)" in given.get_ylabel()
    pyplot.close(figure)
    pyplot.close(own.figure)


def test_the_percentile_plot_has_the_percentiles_of_the_document_in_milliseconds(result):
    axes = result.plot()
    for line, point in zip(axes.lines, result.summary, strict=True):
        places = dict(zip(line.get_xdata(), line.get_ydata(), strict=True))
        assert (places[2], places[10]) == (point.response_time_ns.p50 / 1e6, point.response_time_ns.p90 / 1e6)
    with pytest.raises(UsageError, match="expected one of percentiles, load, timeline, found 'pie'"):
        result.plot("pie", ax=axes)
    pyplot.close(axes.figure)


def test_a_result_as_text_is_what_the_command_prints(result, capsys):
    print_summary(result)
    summary = capsys.readouterr().out.strip()
    print_warnings(result)
    attention = capsys.readouterr().err.split()
    assert str(result) == repr(result)
    assert str(result).startswith(summary)
    assert str(result).removeprefix(summary).split()[: len(attention)] == attention


def test_a_notebook_shows_the_table_and_the_status_without_executing_foreign_text(tmp_path):
    document = stored_results.document(throughput_per_s=500.0)
    document["scenario"]["name"] = "<script>alert(1)</script>"
    for point in (*document["points"], *document["summary"]):
        point.update(valid=False, warnings=[{"code": "x", "message": "<b>late</b>"}])
    document.update(status="invalid", status_reason="some load points are not valid")
    text = perfkit.load_result(stored_results.write(tmp_path / "r", document))._repr_html_()
    assert "<script" not in text
    assert "<b>" not in text
    assert "do not rely on its figures" in text
    assert "500/s" in re.findall("<td>(.*?)</td>", text)
    assert 'title="not valid"' in text


def test_the_report_is_shown_in_a_frame_without_access_to_the_notebook(measured, result):
    text = result.report(height_px=300)._repr_html_()
    (page,) = re.findall(r'srcdoc="([^"]*)"', text)
    assert html.unescape(page) == (measured / "report.html").read_text()
    assert 'sandbox="allow-scripts allow-downloads"' in text
    assert "height:300px" in text


def test_a_result_without_its_folder_says_what_to_do(result):
    with pytest.raises(ResultError, match=r"perfkit\.load_result"):
        perfkit.Result.model_validate(result.document()).intervals()
