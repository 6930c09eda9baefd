"""The plots of a run show what the histograms hold, checked against the hdrh library."""

import re
import xml.etree.ElementTree as ET

import matplotlib as mpl
import numpy as np
import pytest
from hdrh.histogram import HdrHistogram

from perfkit.report.run_plots import load_figure, percentile_curve, percentile_figure, render_plots, timeline_figure
from perfkit.report.timeline import read_timeline
from perfkit.stats.buckets import DIGITS, EMPTY, HIGHEST_NS, LOWEST_NS, BucketCounts

SVG = "{http://www.w3.org/2000/svg}"


def written(synthetic, **options):
    """A written result, what its log holds, and the maker, which knows the values that went in."""
    maker = synthetic(**options)
    result = maker.write()
    return result, read_timeline(maker.folder, result), maker


def by_library(values_ns):
    histogram = HdrHistogram(LOWEST_NS, HIGHEST_NS, DIGITS)
    for value_ns in values_ns:
        histogram.record_value(int(value_ns))
    return histogram


def texts(svg):
    return [element.text for element in ET.fromstring(svg).iter(f"{SVG}text")]  # noqa: S314 - we drew it ourselves


def lines(figure, prefix):
    return {line.get_gid(): line for axes in figure.axes for line in axes.lines if (line.get_gid() or "").startswith(prefix)}


def test_the_percentile_curve_gives_the_librarys_own_values(synthetic):
    result, timeline, maker = written(synthetic)
    for index, histogram in enumerate(timeline.histograms):
        theirs = by_library(maker.values[index])
        steps, values_ns = percentile_curve(histogram)
        expected = [theirs.get_value_at_percentile(100 * (1 - 1 / step)) for step in steps]
        assert values_ns == [min(value, theirs.get_max_value()) for value in expected]
    assert len(result.summary) == len(timeline.histograms) == 8


def test_the_lines_of_the_percentile_figure_are_the_curves(synthetic):
    result, timeline, _ = written(synthetic)
    found = lines(percentile_figure(result.summary, timeline.histograms), "percentiles-")
    assert list(found) == [f"percentiles-{protocol}-{concurrency}" for protocol in ("http", "grpc") for concurrency in (1, 2, 4, 8)]
    for line, histogram in zip(found.values(), timeline.histograms, strict=True):
        steps, values_ns = percentile_curve(histogram)
        np.testing.assert_array_equal(line.get_xdata(), steps)
        np.testing.assert_allclose(line.get_ydata(), np.array(values_ns) / 1e6)


@pytest.mark.parametrize("count", [1, 2, 3, 9, 10, 99, 100, 12_345])
def test_a_curve_ends_at_the_number_of_samples_and_includes_the_usual_percentiles(count):
    histogram = BucketCounts.of(np.arange(1, count + 1) * 1_000_000)
    steps, values_ns = percentile_curve(histogram)
    assert steps[0] == 1
    assert steps[-1] == count
    assert {step for step in (2, 10, 100, 1_000, 10_000) if step <= count} <= set(steps.tolist())
    assert values_ns == sorted(values_ns)
    assert values_ns[-1] <= histogram.max_ns


def test_no_samples_give_an_empty_curve():
    steps, values_ns = percentile_curve(EMPTY)
    assert (steps.size, values_ns) == (0, [])


def test_the_load_figure_shows_the_summarys_figures(synthetic):
    result, _, _ = written(synthetic)
    figure = load_figure(result.summary)
    for protocol in ("http", "grpc"):
        some = [point for point in result.summary if point.protocol == protocol]
        throughput = lines(figure, "throughput-")[f"throughput-{protocol}"]
        assert list(throughput.get_xdata()) == [1, 2, 4, 8]
        assert list(throughput.get_ydata()) == [point.throughput_per_s for point in some]
        p99 = lines(figure, "p99-")[f"p99-{protocol}"]
        np.testing.assert_allclose(p99.get_ydata(), [(point.service_time_ns.p99 or 0) / 1e6 for point in some])


def test_a_withheld_percentile_leaves_a_gap_in_the_load_figure(synthetic):
    result, _, _ = written(synthetic, samples=4)
    figure = load_figure(result.summary)
    assert np.isnan(lines(figure, "p99-")["p99-http"].get_ydata()).all()
    assert not np.isnan(lines(figure, "p50-")["p50-http"].get_ydata()).any()


def test_the_timeline_shows_each_second_of_each_repetition(synthetic):
    result, timeline, maker = written(synthetic, protocols=("http",), concurrencies=(1, 2), samples=200)
    figure = timeline_figure(result, timeline)
    assert len(lines(figure, "p50-")) == len(lines(figure, "p99-")) == len(lines(figure, "throughput-")) == 4
    second = lines(figure, "p99-")["p99-http-2-r1"]
    assert list(second.get_xdata()) == [5.5, 6.5, 7.5, 8.5, 9.5]  # after the five seconds of the first
    for number, value_ms in enumerate(second.get_ydata()):
        values_ns = maker.values[1][1000 + 200 * number :][:200]
        assert round(value_ms * 1e6) == by_library(values_ns).get_value_at_percentile(99)
    rates = lines(figure, "throughput-")["throughput-http-2-r1"]
    (point,) = [point for point in result.points if (point.repetition, point.load.concurrency) == (1, 2)]
    assert tuple(rates.get_ydata()) == point.throughput_series_per_s


@pytest.mark.parametrize(("samples", "upper"), [(200, "p99"), (40, "p90"), (5, "max")])
def test_the_timeline_shows_the_highest_percentile_with_enough_samples_in_a_second(synthetic, samples, upper):
    result, timeline, _ = written(synthetic, concurrencies=(1,), samples=samples)
    assert f"{upper}-http-1-r0" in lines(timeline_figure(result, timeline), upper)


def test_a_long_run_is_drawn_in_steps_of_several_seconds(synthetic):
    result, timeline, maker = written(synthetic, protocols=("http",), concurrencies=(1,), repetitions=1, seconds=500, samples=10)
    assert timeline.slice_s == 3
    slices = timeline.slices[0, 0]
    assert [one.start_s for one in slices] == list(range(0, 500, 3))
    assert slices[0].times_ns["p90"] == by_library(maker.values[0][:30]).get_value_at_percentile(90)
    rates = lines(timeline_figure(result, timeline), "throughput-")["throughput-http-1-r0"]
    series = result.points[0].throughput_series_per_s or ()
    assert rates.get_ydata()[0] == sum(series[:3]) / 3
    assert rates.get_xdata()[-1] == 499  # the last step has two seconds


def test_labels_name_quantity_and_unit(synthetic):
    result, timeline, _ = written(synthetic, concurrencies=(1, 8), repetitions=1)
    plots = render_plots(result, timeline)
    assert list(plots) == ["load", "percentiles", "timeline"]
    assert {"concurrency (requests in flight)", "service time (ms)", "ok answers per second", "http", "grpc", "p50", "p99"} <= set(
        texts(plots["load"])
    )
    assert {"50%", "90%", "99%", "percentile", "service time (ms)", "concurrency", "8"} <= set(texts(plots["percentiles"]))
    assert {"http, concurrency 1", "grpc, concurrency 8", "throughput", "p50 of the service time"} <= set(texts(plots["timeline"]))


def test_the_percentile_axis_goes_as_far_as_the_samples(synthetic):
    result, timeline, _ = written(synthetic, protocols=("http",), concurrencies=(1,), samples=1000)
    found = texts(render_plots(result, timeline)["percentiles"])
    assert "99.99%" in found
    assert "99.999%" not in found


def test_the_same_result_gives_the_same_bytes_whatever_the_users_matplotlib_settings(synthetic):
    result, timeline, _ = written(synthetic, protocols=("http",), concurrencies=(1, 2), repetitions=1)
    first = render_plots(result, timeline)
    with mpl.rc_context({"font.size": 20, "svg.fonttype": "path", "lines.linewidth": 9}):
        assert render_plots(result, timeline) == first
        assert mpl.rcParams["font.size"] == 20
    assert not any("<dc:date>" in svg or "<metadata" in svg for svg in first.values())


def test_plots_stay_small_and_share_no_ids(synthetic):
    result, timeline, _ = written(synthetic, protocols=("http",), repetitions=1, seconds=60)
    plots = render_plots(result, timeline)
    assert sum(map(len, plots.values())) < 125_000
    ids = [name for svg in plots.values() for name in re.findall(r'\bid="([^"]+)"', svg)]
    assert len(ids) == len(set(ids))


def test_an_invalid_point_is_drawn_hollow_and_explained(synthetic):
    result, timeline, _ = written(synthetic, cpu_share=0.95, concurrencies=(1, 2), repetitions=1)
    assert "not valid" in texts(render_plots(result, timeline)["load"])


@pytest.mark.parametrize(
    ("options", "names"),
    [
        ({"samples": 0}, []),
        ({"protocols": ()}, []),
        ({"concurrencies": (4,)}, ["percentiles", "timeline"]),
        ({"concurrencies": (4,), "repetitions": 1, "seconds": 1, "samples": 1}, ["percentiles", "timeline"]),
        ({"protocols": ("http",), "concurrencies": tuple(range(1, 13)), "repetitions": 1}, ["load", "percentiles", "timeline"]),
        ({"concurrencies": (1, 1000)}, ["load", "percentiles", "timeline"]),
    ],
)
def test_plots_without_values_are_left_out(synthetic, options, names):
    result, timeline, _ = written(synthetic, **options)
    assert list(render_plots(result, timeline)) == names
