"""The ends of a chart's axes: what sets them, and that the SVG keeps to them."""

import re

import pytest
from matplotlib.figure import Figure

from perfkit.report.chart import Axis, Chart, ChartGroup, Heat, HeatColumn, Level, Line
from perfkit.report.chart_svg import draw_group
from perfkit.report.plots import render_svg

INTERVALS = ((1.0, 3.5, 8.0, 15.0), (4.0, 6.0, 9.0, 30.0))


def chart(scale="from zero", **changes):
    line = Line("p99", (2.0, 5.0), (10.0, 20.0), intervals=INTERVALS)
    return Chart("p99", Axis("rate", scale=scale), Axis("p99", "ms", scale), (line,), **changes)


@pytest.mark.parametrize("scale", ["from zero", "log", "linear"])
def test_intervals_are_within_the_axes(scale):
    one = chart(scale)
    assert one.ends_of_x() == (1.0, 6.0)
    assert one.ends_of_y() == (8.0, 30.0)
    (panel,) = draw_group(ChartGroup((one,))).axes
    for (low, high), (first, last) in ((panel.get_xlim(), (1.0, 6.0)), (panel.get_ylim(), (8.0, 30.0))):
        assert low <= first
        assert last <= high


def test_a_band_or_interval_far_from_the_values_is_cut_at_four_times_the_values():
    wide = Line("p99", (1.0, 2.0), (10.0, 20.0), band=((9.0, 11.0), (0.1, 500.0)))
    one = Chart("p99", Axis("rate"), Axis("p99", "ms", "log"), (wide,))
    assert one.ends_of_y() == (2.5, 80.0)


@pytest.mark.parametrize(("scale", "level", "ends"), [
    ("from zero", 60.0, (8.0, 60.0)), ("from zero", 90.0, (8.0, 30.0)), ("from zero", 1.0, (1.0, 30.0)),
    ("log", 1.0, (8.0, 30.0)), ("linear", -500.0, (-500.0, 30.0)),
])  # fmt: skip
def test_a_level_near_the_values_is_within_the_axis(scale, level, ends):
    assert chart(scale, levels=(Level(level, "SLO"),)).ends_of_y() == ends


def test_without_values_there_are_no_ends():
    assert chart().ends_of_y() is not None
    empty = Chart("p99", Axis("rate"), Axis("p99"), (Line("p99", (1.0,), (None,)),))
    assert empty.ends_of_y() is None
    draw_group(ChartGroup((empty,)))


def test_dates_and_whole_numbers_have_ticks_of_their_own():
    days = tuple(range(20_454, 20_554))
    line = Line("peaks", days, tuple(map(float, days)), band=tuple((day - 1.0, day + 1.0) for day in days))
    (panel,) = draw_group(ChartGroup((Chart("peaks", Axis("date", scale="date"), Axis("replicas", is_whole=True), (line,)),))).axes
    assert panel.get_xlim() == (20_454, 20_553)
    assert panel.xaxis.get_major_formatter().format_ticks([20_454.0, 20_485.0])[1] == "Feb"
    few = Line("replicas", (1.0, 2.0), (1.0, 2.0))
    (panel,) = draw_group(ChartGroup((Chart("replicas", Axis("x"), Axis("replicas", is_whole=True), (few,)),))).axes
    assert [tick for tick in panel.get_yticks() if tick % 1] == []


def test_the_heat_map_of_the_picture_has_a_cell_for_each_run_of_bins_of_one_shade():
    """With one bin a decade: half of the requests from 10 to 100 ms, the others in the two decades above."""
    columns = (HeatColumn(0.0, 1.0, 1, (4, 2, 2)), HeatColumn(1.0, 2.0, 1, (0, 8)))
    line = Line("p50", (0.5, 1.5), (50.0, 500.0))
    one = Chart("times", Axis("s", high=2.0), Axis("times", "ms", "log", low=1.0, high=1e5), (line,), heat=Heat(1, columns))
    (panel,) = draw_group(ChartGroup((one,))).axes
    boxes = sorted((tuple(patch.get_path().get_extents().extents), patch.get_alpha() or 0.0) for patch in panel.patches)
    assert [box for box, _ in boxes] == [(0.0, 10.0, 1.0, 100.0), (0.0, 100.0, 1.0, 10_000.0), (1.0, 100.0, 2.0, 1000.0)]
    half, quarter, whole = (alpha for _, alpha in boxes)
    assert quarter < half < whole


def test_an_svg_is_the_same_whatever_the_last_digits_of_the_layout_are():
    def drawn(left):
        figure = Figure()
        figure.add_axes((left, 0.1, 0.8, 0.8)).plot([1, 2, 3], [1, 4, 9], marker="o")
        return render_svg(figure, "two panels")

    assert drawn(0.1) == drawn(0.1 + 1e-12)
    ids = re.findall(r' id="([^"]+)"', drawn(0.1))
    assert len(ids) == len(set(ids))
    assert set(re.findall(r'(?:url\(|href=")#([^")]+)', drawn(0.1))) <= set(ids)
