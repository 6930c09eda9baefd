"""A capacity search: the table of its probes, and its figure."""

import math

import numpy as np
import pytest

from perfkit.report.answer import answer
from perfkit.report.render import render_html
from perfkit.report.run import run_page
from perfkit.report.search import probes_table, search_group
from perfkit.report.terminal_summary import print_summary
from perfkit.result.search import FittedCurve, LimitCount, Search, SearchProbe

LIMIT_NS = 50_000_000


def probe(rate_per_s, beyond, *, stage="refine", valid=True, overloaded=False):
    limits = {"p99": LimitCount(beyond=beyond, count=1000, allowed_share=0.01, dispersion=1.0)}
    return SearchProbe(rate_per_s=rate_per_s, stage=stage, limits=limits, met=beyond <= 10, overloaded=overloaded, valid=valid, took_s=1.0)


@pytest.fixture
def result(synthetic):
    """A result of four load points and a search of as many probes."""
    probes = (probe(10, 0), probe(20, 25), probe(40, 900, overloaded=True), probe(15, 9, stage="confirm", valid=False))
    curve = FittedCurve(
        limit="p99", centre_per_s=20.0, floor=0.001, intercept=math.log(0.02), slope=9.0, points=3, effective_beyond=30.0, dispersion=2.0
    )
    search = Search(
        slo={"p99": "50ms", "error_rate": "1%"}, capacity_per_s=18.0, low_per_s=17.0, high_per_s=19.0, confidence=0.9, precision=0.05,
        stopped_because="precision", reason="The capacity is 18.0/s.", curve=curve, probes=probes,
    )  # fmt: skip
    return synthetic(protocols=("http",), repetitions=1).write().model_copy(update={"search": search})


def test_the_table_has_a_row_per_probe_with_the_share_beyond_the_limit(result):
    table = probes_table(result)
    assert table.headings == ["probe", "stage", "rate", "throughput", "p99", "error rate", "samples", "SLO"]
    assert [row[-1] for row in table.texts] == ["met", "missed", "overloaded", "not valid"]
    assert [row[4].split(" (")[1] for row in table.texts] == ["0.00%)", "2.50%)", "90.00%)", "0.90%)"]
    assert table.marks == ("", "", "", "invalid")


def test_the_chart_shows_each_probe_the_interval_and_the_fitted_curve(result):
    (chart,) = search_group(result.search).charts
    assert {line.name: round(line.xs[0]) for line in chart.lines[:-1]} == {
        "SLO met": 10, "SLO missed": 20, "overloaded": 40, "not valid, confirming": 15,
    }  # fmt: skip
    assert [line.ys[0] for line in chart.lines[:-1]] == pytest.approx([0.0005, 0.025, 0.9, 0.009])
    assert chart.y.label == "share of requests slower than 50 ms"
    curve = chart.lines[-1]
    assert curve.name == "fitted curve"
    assert np.interp(20.0, np.array(curve.xs), np.array(curve.ys, float)) == pytest.approx(0.021, rel=0.01)
    assert [span.label for span in chart.spans] == ["90 % interval of the capacity"]
    assert [level.label for level in chart.levels] == ["allowed by the SLO: 1 %", "capacity 18.0/s"]
    assert {line.style for line in chart.lines[:-1]} == {"dots", "cross", "large cross", "large hollow"}, "each state has a mark of its own"


def test_the_page_and_the_terminal_show_the_outcome_and_the_probes(result, capsys):
    whole = result.search.model_copy(update={"reason": "The capacity is 18.0/s. A probe at 17.0/s met the SLO."})
    assert answer(result.model_copy(update={"search": whole}), is_beside_figures=True) == ("A probe at 17.0/s met the SLO.",)
    assert "<p>The capacity is 18.0/s.</p>" in render_html(run_page(result, {}))
    print_summary(result)
    printed = capsys.readouterr().out
    assert "overloaded" in printed
    assert printed.splitlines()[1] == "The capacity is 18.0/s."
