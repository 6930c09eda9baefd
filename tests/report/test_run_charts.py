"""The plots of a run show what the histograms hold, checked against the hdrh library."""

import re
import xml.etree.ElementTree as ET

import numpy as np
import pytest
from hdrh.histogram import HdrHistogram

from perfkit.report.chart import RED
from perfkit.report.chart_svg import render_plots as render
from perfkit.report.run_charts import load_group, percentile_curve, percentile_group, run_charts, trade_group
from perfkit.report.time_charts import time_group
from perfkit.report.timeline import read_timeline
from perfkit.result.counts import Retries
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


def render_plots(result, timeline):
    return render(run_charts(result, timeline))


def lines(group):
    """The lines of each panel by name, in the order of both."""
    return {chart.title: {line.name: line for line in chart.lines} for chart in group.charts}


def test_the_percentile_curve_gives_the_librarys_own_values(synthetic):
    result, timeline, maker = written(synthetic)
    for index, histogram in enumerate(timeline.histograms):
        theirs = by_library(maker.values[index])
        steps, values_ns = percentile_curve(histogram)
        expected = [theirs.get_value_at_percentile(100 * (1 - 1 / step)) for step in steps]
        assert values_ns == [min(value, theirs.get_max_value()) for value in expected]
    assert len(result.summary) == len(timeline.histograms) == 8


def test_the_lines_of_the_percentile_charts_are_the_curves(synthetic):
    result, timeline, _ = written(synthetic)
    found = lines(percentile_group(result.summary, timeline.histograms))
    names = [f"concurrency {concurrency}" for concurrency in (1, 2, 4, 8)]
    assert {title: list(own) for title, own in found.items()} == {"http": names, "grpc": names}
    drawn = [line for own in found.values() for line in own.values()]
    for line, histogram in zip(drawn, timeline.histograms, strict=True):
        steps, values_ns = percentile_curve(histogram)
        np.testing.assert_array_equal(line.xs, steps)
        np.testing.assert_allclose(line.ys, np.array(values_ns) / 1e6)


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


def test_the_load_charts_show_the_summarys_figures(synthetic):
    result, _, _ = written(synthetic)
    (trade,) = lines(trade_group(result.summary)).values()
    throughput, times = lines(load_group(result.summary)).values()
    for protocol in ("http", "grpc"):
        some = [point for point in result.summary if point.protocol == protocol]
        rates = tuple(point.throughput_per_s for point in some)
        p99_ms = [(point.service_time_ns.p99 or 0) / 1e6 for point in some]
        assert (throughput[protocol].xs, throughput[protocol].ys) == ((1, 2, 4, 8), rates)
        np.testing.assert_allclose(times[f"{protocol} p99"].ys, p99_ms)
        assert trade[f"{protocol} p99"].xs == rates
        np.testing.assert_allclose(trade[f"{protocol} p99"].ys, p99_ms)


def test_a_withheld_percentile_leaves_a_gap_in_the_load_charts(synthetic):
    result, _, _ = written(synthetic, samples=4)
    times = lines(load_group(result.summary))["service time against the load"]
    assert times["http p99"].ys == (None,) * 4
    assert None not in times["http p50"].ys


def test_the_charts_over_time_show_each_second_of_each_window_in_the_order_of_measurement(synthetic):
    result, timeline, maker = written(synthetic, protocols=("http",), concurrencies=(1, 2), samples=200)
    group = time_group(result, timeline)
    assert [window.label for window in group.windows] == [
        "http, concurrency 1, 1",
        "http, concurrency 2, 1",
        "http, concurrency 1, 2",
        "http, concurrency 2, 2",
    ]
    times, rates = lines(group).values()
    pairs = list(zip(times["p99"].xs, times["p99"].ys, strict=True))
    assert [pair for pair in pairs if pair[1] is None] == [(5.0, None), (10.0, None), (15.0, None), (20.0, None)]  # a gap after each window
    last = [pair for pair in pairs if 15 < pair[0] < 20]
    assert [x for x, _ in last] == [15.5, 16.5, 17.5, 18.5, 19.5]
    for number, (_, value_ms) in enumerate(last):
        values_ns = maker.values[1][1000 + 200 * number :][:200]
        assert round(value_ms * 1e6) == by_library(values_ns).get_value_at_percentile(99)
    (point,) = [point for point in result.points if (point.repetition, point.load.concurrency) == (1, 2)]
    drawn = zip(rates["ok answers"].xs, rates["ok answers"].ys, strict=True)
    assert tuple(y for x, y in drawn if 15 < x < 20) == point.throughput_series_per_s


def test_the_heat_map_counts_every_request(synthetic):
    result, timeline, _ = written(synthetic, protocols=("http",), concurrencies=(1, 2), samples=200)
    heat = time_group(result, timeline).charts[0].heat
    assert np.sum([sum(column.counts) for column in heat.columns]) == np.sum([point.times.count for point in result.points])
    lowest, highest = (
        10 ** (edge / heat.bins_per_decade) for edge in (heat.columns[0].first_bin, heat.columns[0].first_bin + len(heat.columns[0].counts))
    )
    first = timeline.slices[0, 0][0].times_ns
    assert lowest < first["p50"] / 1e6 < first["max"] / 1e6 < highest * 1.01


def test_a_window_that_is_not_valid_is_marked_and_failures_are_drawn(synthetic):
    result, timeline, _ = written(synthetic, cpu_share=0.95, failed=50, concurrencies=(1,), repetitions=1)
    chart = time_group(result, timeline).charts[1]
    assert [(span.low, span.high, span.is_bad) for span in chart.spans] == [(0, 5, True), (5, 10, True)]
    assert chart.lines[1].ys == (*[10.0] * 5, None) * 2


def test_failures_are_drawn_in_their_second(synthetic):
    result, timeline, _ = written(synthetic, protocols=("http",), failed=50, failed_in_s=3, concurrencies=(1,), repetitions=1)
    rates, failures = time_group(result, timeline).charts[1].lines
    assert dict(zip(failures.xs, failures.ys, strict=True)) == {0.5: 0, 1.5: 0, 2.5: 0, 3.5: 50, 4.5: 0, 5.0: None}
    assert failures.colour == RED
    assert rates.name == "ok answers"


def test_attempts_are_drawn_beside_requests_where_failed_requests_are_sent_again(synthetic):
    result, timeline, _ = written(synthetic, protocols=("http",), concurrencies=(1,), repetitions=1)
    assert "attempts and requests" not in {chart.title for chart in time_group(result, timeline).charts}
    retries = Retries(attempts=15, retries=5, attempts_series_per_s=(1, 2, 3, 4, 5), retries_series_per_s=(0, 0, 1, 2, 2))
    retried = result.model_copy(update={"points": tuple(one.model_copy(update={"retries": retries}) for one in result.points)})
    (chart,) = (chart for chart in time_group(retried, timeline).charts if chart.title == "attempts and requests")
    assert [(line.name, line.ys) for line in chart.lines] == [("attempts", (1, 2, 3, 4, 5, None)), ("requests", (1, 2, 2, 2, 3, None))]
    assert chart.lines[0].colour != chart.lines[1].colour


def test_rates_that_differ_widely_are_on_a_logarithmic_axis_without_zeros(synthetic):
    result, timeline, _ = written(
        synthetic, protocols=("http",), failed=100_000, failed_in_s=3, concurrencies=(1,), repetitions=1, samples=25
    )
    chart = time_group(result, timeline).charts[1]
    assert (chart.y.scale, chart.lines[1].ys) == ("log", (None, None, None, 100_000, None, None))


def test_stalls_and_error_bursts_are_marked_and_can_be_chosen(synthetic):
    result, timeline, _ = written(
        synthetic, protocols=("http",), failed=50, failed_in_s=0, concurrencies=(1, 2), stalled=(2,), repetitions=1
    )
    group = time_group(result, timeline)
    spans = [(span.low, span.high, span.label) for span in group.charts[0].spans]
    assert spans == [(0, 1, "failures"), (5, 6, "failures"), (7, 9, "stall")]
    assert [(span.low, span.high, span.label) for span in group.windows[2:]] == [
        (0, 2, "http, concurrency 1: failures at 0 s"),
        (5, 7, "http, concurrency 2: failures at 0 s"),
        (5, 10, "http, concurrency 2: stall at 2 s"),
    ]


def test_only_a_percentile_axis_shows_percentiles(synthetic):
    result, timeline, _ = written(synthetic, concurrencies=(1, 2), repetitions=1)
    charts = {name: group.charts for name, group in run_charts(result, timeline).items()}
    assert {name for name, some in charts.items() for chart in some if chart.x.is_percentile} == {"percentiles"}


@pytest.mark.parametrize(("samples", "upper"), [(200, "p99"), (40, "p90 (p99 needs"), (5, "maximum (p90 needs")])
def test_the_highest_percentile_with_enough_samples_in_a_second_is_drawn(synthetic, samples, upper):
    result, timeline, _ = written(synthetic, concurrencies=(1,), samples=samples)
    assert time_group(result, timeline).charts[0].lines[1].name.startswith(upper)


def test_a_long_run_is_drawn_in_steps_of_several_seconds(synthetic):
    result, timeline, maker = written(synthetic, protocols=("http",), concurrencies=(1,), repetitions=1, seconds=1450, samples=10)
    assert timeline.slice_s == 3
    slices = timeline.slices[0, 0]
    assert [one.start_s for one in slices] == list(range(0, 1450, 3))
    assert slices[0].times_ns["p90"] == by_library(maker.values[0][:30]).get_value_at_percentile(90)
    rates = time_group(result, timeline).charts[1].lines[0]
    series = result.points[0].throughput_series_per_s or ()
    assert rates.ys[0] == sum(series[:3]) / 3
    assert rates.xs[-2] == 1447.5  # the second that is left is too short for a rate


def test_labels_name_quantity_and_unit(synthetic):
    result, timeline, _ = written(synthetic, concurrencies=(1, 8), repetitions=1)
    plots = render_plots(result, timeline)
    assert list(plots) == ["load", "trade", "percentiles", "timeline"]
    names = {"http", "grpc", "http p50", "grpc p99"}
    assert {"concurrency (requests in flight), log scale", "service time (ms)", "throughput (answers/s)", *names} <= set(
        texts(plots["load"])
    )
    assert {"50%", "90%", "99%", "percentile", "service time (ms)", "concurrency 8"} <= set(texts(plots["percentiles"]))
    assert {"seconds measured", "service time, log scale (ms)", "requests (/s)", "ok answers", "p50"} <= set(texts(plots["timeline"]))


def test_the_percentile_axis_goes_as_far_as_the_samples(synthetic):
    result, timeline, _ = written(synthetic, protocols=("http",), concurrencies=(1,), samples=1000)
    found = texts(render_plots(result, timeline)["percentiles"])
    assert "99.99%" in found
    assert "99.999%" not in found


def test_the_same_result_gives_the_same_bytes(synthetic):
    result, timeline, _ = written(synthetic, protocols=("http",), concurrencies=(1, 2), repetitions=1)
    assert render_plots(result, timeline) == render_plots(result, timeline)


def test_plots_stay_small_and_share_no_ids(synthetic):
    result, timeline, _ = written(synthetic, protocols=("http",), repetitions=1, seconds=60)
    plots = render_plots(result, timeline)
    assert sum(map(len, plots.values())) < 125_000
    ids = [name for svg in plots.values() for name in re.findall(r'\bid="([^"]+)"', svg)]
    assert len(ids) == len(set(ids))


def test_an_invalid_point_is_drawn_hollow_and_explained(synthetic):
    result, timeline, _ = written(synthetic, cpu_share=0.95, concurrencies=(1, 2), repetitions=1)
    assert "http, not valid" in texts(render_plots(result, timeline)["load"])


@pytest.mark.parametrize(
    ("options", "names"),
    [
        ({"samples": 0}, []),
        ({"protocols": ()}, []),
        ({"concurrencies": (4,)}, ["percentiles", "timeline"]),
        ({"concurrencies": (4,), "repetitions": 1, "seconds": 1, "samples": 1}, ["percentiles", "timeline"]),
        ({"protocols": ("http",), "concurrencies": tuple(range(1, 13)), "repetitions": 1}, ["load", "trade", "percentiles", "timeline"]),
        ({"concurrencies": (1, 1000)}, ["load", "trade", "percentiles", "timeline"]),
    ],
)
def test_plots_without_values_are_left_out(synthetic, options, names):
    result, timeline, _ = written(synthetic, **options)
    assert list(render_plots(result, timeline)) == names
