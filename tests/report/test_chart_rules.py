"""The charts of every page follow the same rules of colours and line styles."""

import itertools
import re

import pytest
from matplotlib import pyplot
from matplotlib.colors import to_rgb

from perfkit.api.result import load_result
from perfkit.report.chart import BLUE, RED, VERMILLION
from perfkit.report.chart_rules import OTHER_COLOURS, PROTOCOL_COLOURS, load_shades
from perfkit.report.plan import plan_charts
from perfkit.report.run_charts import run_charts
from perfkit.report.timeline import read_timeline
from tests.report.subject_pages import capacity_plan

MARKS = {"dots", "hollow"}
SOLID, DASHED, DOTTED = {"line", "path", *MARKS}, {"dashed", "dashed path", *MARKS}, {"dotted", *MARKS}
STYLES = {"p50": SOLID, "p90": DOTTED, "p95": DOTTED, "p99": DASHED, "max": DASHED}


def luminance(colour):
    """The relative luminance of WCAG 2."""
    parts = [part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4 for part in to_rgb(colour)]
    return sum(share * part for share, part in zip((0.2126, 0.7152, 0.0722), parts, strict=True))


def contrast(one, other):
    low, high = sorted(map(luminance, (one, other)))
    return (high + 0.05) / (low + 0.05)


@pytest.fixture
def run_groups(synthetic):
    maker = synthetic(concurrencies=(1, 2, 4, 8, 16, 32), repetitions=1, samples=200)
    result = maker.write()
    return run_charts(result, read_timeline(maker.folder, result))


def lines_of(groups):
    return [line for group in groups.values() for chart in group.charts for line in chart.lines]


def percentile_of(name):
    found = re.search(r"\b(p50|p90|p95|p99|max)\b", name)
    return found[1] if found else ""


def test_a_percentile_has_its_line_style_in_every_chart(run_groups, tmp_path):
    lines = [line for line in (*lines_of(run_groups), *lines_of(plan_charts(capacity_plan(tmp_path)))) if percentile_of(line.name)]
    assert {percentile_of(line.name) for line in lines} >= {"p50", "p95", "p99"}
    assert [(line.name, line.style) for line in lines if line.style not in STYLES[percentile_of(line.name)]] == []


def test_a_protocol_has_its_hue_in_every_chart_and_nothing_else_has_it(run_groups):
    for protocol, colour in (("http", BLUE), ("grpc", VERMILLION)):
        own = [line for line in lines_of(run_groups) if line.name.startswith(protocol)]
        assert {line.colour for line in own} == {colour}
    (percentiles,) = [group for name, group in run_groups.items() if name == "percentiles"]
    shades = {chart.title: [line.colour for line in chart.lines] for chart in percentiles.charts}
    assert {title: list(load_shades(range(6), PROTOCOL_COLOURS[title]).values()) for title in ("http", "grpc")} == shades
    assert {line.colour for line in lines_of({"timeline": run_groups["timeline"]})} <= {*OTHER_COLOURS, RED}


@pytest.mark.parametrize("hue", PROTOCOL_COLOURS.values())
@pytest.mark.parametrize("loads", [2, 5, 10])
def test_shades_of_a_hue_are_told_from_the_background_and_from_each_other(hue, loads):
    shades = list(load_shades(range(loads), hue).values())
    assert load_shades(["one"], hue) == {"one": hue}
    for scheme, background in enumerate(("#ffffff", "#15191e")):
        assert min(contrast(shade[scheme], background) for shade in shades) >= 3
        assert all(contrast(one[scheme], other[scheme]) > 1.05 for one, other in itertools.pairwise(shades))


def test_matplotlib_draws_by_the_same_rules(synthetic):
    maker = synthetic(concurrencies=(1, 4), repetitions=1)
    maker.write()
    axes = load_result(maker.folder).plot("load")
    drawn = {line.get_label(): (line.get_color(), line.get_linestyle()) for line in axes.lines}
    assert drawn == {
        "http p50": (BLUE[0], "-"), "http p99": (BLUE[0], "--"), "grpc p50": (VERMILLION[0], "-"), "grpc p99": (VERMILLION[0], "--"),
    }  # fmt: skip
    pyplot.close("all")
    axes = load_result(maker.folder).plot("percentiles")
    assert [line.get_linestyle() for line in axes.lines] == ["-"] * 4
    assert len({line.get_color() for line in axes.lines}) == 4
    pyplot.close("all")
