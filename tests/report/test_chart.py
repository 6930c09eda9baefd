"""The ends of a chart's axes, and the SVG of a chart: where values, intervals and labels lie in it."""

import itertools
import math
import re
import xml.etree.ElementTree as ET

import pytest

from perfkit.report.chart import BLUE, GREEN, PURPLE, RED, VERMILLION, Axis, Chart, ChartGroup, Heat, HeatColumn, Level, Line, Span
from perfkit.report.chart_panel import Box, HeatCell, Panel, heat_cells
from perfkit.report.chart_svg import dark_colours, page_panels, render_group

SVG = "{http://www.w3.org/2000/svg}"
INTERVALS = ((1.0, 3.5, 8.0, 15.0), (4.0, 6.0, 9.0, 30.0))


def chart(scale="from zero", **changes):
    line = Line("p99", (2.0, 5.0), (10.0, 20.0), intervals=INTERVALS)
    return Chart("p99", Axis("rate", scale=scale), Axis("p99", "ms", scale), (line,), **changes)


def drawn(*charts, **settings):
    return ET.fromstring(render_group(ChartGroup(charts, **settings)))  # noqa: S314 - drawn here


def paths(svg, colour, **wanted):
    """The points of each path of that colour, counted from the upper left corner of its panel's axes."""
    found = [one for panel in panels(svg) for one in panel.iter(f"{SVG}path") if colour in (one.get("stroke"), one.get("fill"))]
    found = [one for one in found if all(one.get(name.replace("_", "-")) == value for name, value in wanted.items())]
    return [[tuple(map(float, pair)) for pair in re.findall(r"[ML]([-\d.]+) ([-\d.]+)", one.get("d"))] for one in found]


def panels(svg):
    return [one for one in svg.iter(f"{SVG}svg") if one.get("class") == "values"]


def frame(svg):
    """The left, top, right and bottom of each panel's axes; the pictures of the values reach 6 beyond them."""
    for panel in panels(svg):
        x, y, width, height = (float(panel.get(name)) for name in ("x", "y", "width", "height"))
        yield x + 6, y + 6, x + width - 6, y + height - 6


@pytest.mark.parametrize("scale", ["from zero", "log", "linear"])
def test_intervals_are_within_the_axes(scale):
    one = chart(scale)
    assert one.ends_of_x() == (1.0, 6.0)
    assert one.ends_of_y() == (8.0, 30.0)
    svg = drawn(one)
    ((left, top, right, bottom),) = frame(svg)
    (crosses,) = paths(svg, BLUE[0], stroke_opacity="0.8")
    assert len(crosses) == 8
    assert all(0 <= x <= right - left and 0 <= y <= bottom - top for x, y in crosses)


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
    assert "rate" in [text.text for text in drawn(empty).iter(f"{SVG}text")]


def test_a_value_is_drawn_where_its_axes_say_and_a_gap_interrupts_the_line():
    line = Line("p99", (0.0, 2.5, 5.0, 7.5, 10.0), (0.0, 50.0, None, 100.0, 25.0))
    svg = drawn(Chart("t", Axis("s", high=10.0), Axis("ms", low=0.0, high=200.0), (line,)))
    ((left, top, right, bottom),) = frame(svg)
    width, height = right - left, bottom - top
    places = [(0, 0), (0.25, 0.25), (0.75, 0.5), (1, 0.125)]
    expected = [(x * width, height - y * height) for x, y in places]
    points = paths(svg, BLUE[0])[0]
    assert [value for point in points for value in point] == pytest.approx([value for point in expected for value in point], abs=0.11)
    (data,) = [one.get("d") for one in panels(svg)[0].iter(f"{SVG}path") if one.get("stroke") == BLUE[0]]
    assert re.sub(r"[-\d. ]", "", data) == "MLML"


def test_each_style_has_its_own_shape():
    lines = (
        Line("dots", (1.0, 2.0), (1.0, 2.0), BLUE, "dots"),
        Line("hollow", (1.0,), (1.0,), VERMILLION, "hollow"),
        Line("large", (1.0,), (2.0,), GREEN, "large"),
        Line("steps", (1.0, 2.0), (1.0, 2.0), PURPLE, "steps"),
        Line("dashed", (1.0, 2.0), (1.0, 2.0), RED, "dashed"),
    )
    svg = drawn(Chart("t", Axis("x"), Axis("y"), lines))
    (values,) = panels(svg)
    by_colour: dict[str | None, list[str]] = {}
    for one in values.iter(f"{SVG}path"):
        by_colour.setdefault(one.get("stroke") or one.get("fill"), []).append(one.get("d") or "")
    assert re.sub(r"[-\d. ]", "", by_colour[BLUE[0]][0]) == "MhMh"
    assert by_colour["#ffffff"][0] == by_colour[VERMILLION[0]][0]  # white within the colour
    assert re.sub(r"[-\d. ]", "", by_colour[GREEN[0]][0]) == "Mh"
    assert {one.get("stroke-linecap") for one in values.iter(f"{SVG}path") if one.get("stroke") == GREEN[0]} == {"square"}
    assert re.sub(r"[-\d. ]", "", by_colour[PURPLE[0]][0]) == "MHV"
    assert {one.get("stroke") for one in values.iter(f"{SVG}path") if one.get("stroke-dasharray")} == {RED[0]}


def test_names_of_levels_take_rows_where_they_would_overlap():
    levels = tuple(Level(at, f"load point at {at}", is_vertical=True) for at in (2.0, 2.1, 5.9))
    svg = drawn(chart(levels=levels))
    places = {text.text: text for text in svg.iter(f"{SVG}text") if (text.text or "").startswith("load point")}
    heights = [float(places[level.label].get("y")) for level in levels]
    assert heights[0] == heights[2] < heights[1]
    assert [places[level.label].get("text-anchor") for level in levels] == [None, None, "end"]  # the last has no room on its right


def test_panels_that_share_their_axis_begin_and_end_at_the_same_places():
    narrow = Chart("a", Axis("s", low=0.0, high=10.0), Axis("y"), (Line("a", (1.0, 2.0), (1.0, 2.0)),))
    wide = Chart("b", Axis("s", low=0.0, high=10.0), Axis("y"), (Line("a long name", (1.0, 2.0), (1e6, 2e6)),))
    svg = drawn(narrow, wide, is_synchronised=True)
    frames = list(frame(svg))
    assert frames[0][0] == frames[1][0]
    assert frames[0][2] == frames[1][2]
    assert frames[0][3] < frames[1][1]
    assert [text.text for text in svg.iter(f"{SVG}text")].count("s") == 1


def test_the_heat_map_has_a_cell_for_each_run_of_bins_of_one_shade():
    """With one bin a decade: half of the requests from 10 to 100 ms, the others in the two decades above."""
    heat = Heat(1, (HeatColumn(0.0, 1.0, 1, (4, 2, 2)), HeatColumn(1.0, 2.0, 1, (0, 8))))
    cells = heat_cells(heat, ())
    assert cells == [
        HeatCell(5, 0.0, 1.0, 10.0, 100.0),
        HeatCell(3, 0.0, 1.0, 100.0, 10_000.0),
        HeatCell(6, 1.0, 2.0, 100.0, 1000.0),
    ]
    line = Line("p50", (0.5, 1.5), (50.0, 500.0))
    svg = drawn(Chart("times", Axis("s", high=2.0), Axis("times", "ms", "log", low=1.0, high=1000.0), (line,), heat=heat))
    ((left, _, right, _),) = frame(svg)
    shades = [one for one in svg.iter(f"{SVG}path") if one.get("fill") == "#005a96"]
    assert len(shades) == 3
    numbers = [float(one) for shade in shades for one in re.findall(r"[-\d.]+", shade.get("d"))]
    assert min(numbers) == 0
    (whole,) = [one for one in shades if one.get("fill-opacity") == "0.75"]
    corners = [float(one) for one in re.findall(r"[-\d.]+", whole.get("d"))]
    assert corners[0] == pytest.approx((right - left) / 2, abs=0.11)
    assert corners[3] == 0  # cut off at the end of the axis


def test_columns_of_a_long_heat_map_are_drawn_together_but_not_across_a_start():
    columns = tuple(HeatColumn(float(at), at + 1.0, 0, (1,)) for at in range(1200))
    assert len(heat_cells(Heat(1, columns), ())) == 120
    assert {cell.left for cell in heat_cells(Heat(1, columns), (605.0,))} >= {600.0, 605.0}


def test_foreign_text_is_harmless_and_long_names_are_shortened():
    name = "</text><script>\x1b[31m" + "x" * 400
    svg = drawn(Chart("$&\u202e<b>", Axis("x"), Axis(name), (Line(name, (1.0, 2.0), (1.0, 2.0)),), (Span(1.0, 1.5, name),)))
    texts = [text.text for text in svg.iter(f"{SVG}text")]
    assert "$&\\u202e<b>" in texts
    assert not list(svg.iter(f"{SVG}script"))
    assert all("\x1b" not in text for text in texts)
    assert sum(text.startswith("</text>") and text.endswith("…") for text in texts) == 2


def test_a_panel_of_a_page_says_where_its_values_lie_and_what_they_are():
    line = Line("p99", (2.0, 5.0, 7.0), (10.0, 20.123456, None), intervals=(*INTERVALS, None), labels=("a", "b", "\x1b[31m"))
    (panel,) = page_panels(ChartGroup((Chart("p99", Axis("rate", "/s"), Axis("p99", "ms", "log"), (line,)),)))
    svg = ET.fromstring(panel.svg)  # noqa: S314 - drawn here
    left, top, width, height = panel.data["box"]
    assert [*frame(svg)] == [pytest.approx((left, top, left + width, top + height), abs=0.2)]
    axis = panel.data["y"]
    shares = [math.log(value / axis["low"]) / math.log(axis["high"] / axis["low"]) for value in (10, 20.123456)]
    points = next(points for points in paths(svg, BLUE[0]) if len(points) == 2)
    assert [y for _, y in points] == pytest.approx([height * (1 - share) for share in shares], abs=0.11)
    assert panel.data["lines"][0] | {"style": "", "colour": ""} == {
        "name": "p99", "xs": [2, 5, 7], "ys": [10, 20.123, None], "ends": [[8, 15], [9, 30], None], "labels": ["a", "b", "\\u001b[31m"],
        "style": "", "colour": "",
    }  # fmt: skip
    assert svg.get("aria-label") == "p99. p99 against rate. p99: 10 to 20.12 ms."
    assert [name for name, _ in panel.legend] == ["p99"]


def test_the_panels_of_a_shared_axis_begin_at_one_place_and_name_it_once():
    wide = Line("p99", (2.0, 5.0), (1e6, 2e6))
    first, last = page_panels(ChartGroup((chart(), Chart("b", Axis("rate"), Axis("y"), (wide,))), is_synchronised=True))
    assert first.data["box"][0] == last.data["box"][0]
    assert (">rate</text>" in first.svg, ">rate</text>" in last.svg) == (False, True)


def test_every_colour_has_one_for_the_dark():
    rules = dark_colours([ChartGroup((chart(levels=(Level(1.0, "SLO", colour=("#010203", "#fefdfc")),)),))])
    assert '[stroke="#010203"] { stroke: #fefdfc; }' in rules
    assert f'[fill="{BLUE[0]}"] {{ fill: {BLUE[1]}; }}' in rules


def test_a_label_longer_than_its_axis_is_the_unit_alone():
    line = Line("late", (1.0, 2.0), (1.0, 2.0))
    for height_px, label in ((150, "ms"), (300, "the generator's loop, late (ms)")):
        svg = drawn(Chart("t", Axis("s"), Axis("the generator's loop, late", "ms"), (line,), height_px=height_px))
        (found,) = [one.text for one in svg.iter(f"{SVG}text") if "rotate" in one.get("transform", "")]
        assert found == label


def x_texts(axis, width=880.0):
    line = Line("p99", tuple(float(n) for n in range(9)), (1.0,) * 9, style="dots")
    panel = Panel(Chart("t", axis, Axis("ms"), (line,)), width, 1)
    drawn = panel.drawn(Box(panel.left, 0.0, width, 100.0), has_ticks=True, has_label=True)
    group = next(ET.fromstring(one) for one in drawn if 'class="ticks"' in one)  # noqa: S314 - drawn here
    return panel.rows(width), [(one.text, float(one.get("x", "")), float(one.get("y", ""))) for one in group]


def test_names_of_the_x_axis_stand_in_rows_so_that_each_is_shown():
    ticks = tuple((float(n), f"http, concurrency {n}") for n in range(9))
    rows, texts = x_texts(Axis("load point", scale="linear", low=-0.6, high=8.6, ticks=ticks))
    assert (rows, [text for text, _, _ in texts]) == (2, [name for _, name in ticks])
    assert len({y for _, _, y in texts}) == 2
    rows, texts = x_texts(Axis("load point", scale="linear", low=-0.6, high=8.6, ticks=ticks), width=200.0)
    assert [text for text, _, _ in texts] == [name for _, name in ticks][:: len(ticks) // len(texts) + 1]


def test_numbers_of_a_narrow_x_axis_are_thinned_evenly():
    _, texts = x_texts(Axis("worse by (%)", scale="linear", low=-2.0, high=18.0), width=100.0)
    values = [float(text) for text, _, _ in texts]
    assert len(values) > 2
    assert 0.0 in values
    assert len({after - before for before, after in itertools.pairwise(values)}) == 1


def test_a_cross_is_upright_lines_that_a_page_cannot_stretch():
    svg = drawn(Chart("t", Axis("s"), Axis("ms"), (Line("p99", (1.0, 2.0), (10.0, 20.0), style="cross"),)))
    bars = [one.get("d") for one in panels(svg)[0].iter(f"{SVG}path") if one.get("stroke") == BLUE[0]]
    assert len(bars) == 2
    assert all(re.fullmatch(r"(M[-\d.]+ [-\d.]+v[\d.]+){2}", one) for one in bars)
