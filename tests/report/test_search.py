"""A capacity search: the table of its probes, and its figure."""

import math

import numpy as np
import pytest

from perfkit.report.render import render_html
from perfkit.report.run import print_summary, run_page
from perfkit.report.search import probes_table, search_figure
from perfkit.result.model import FittedLine, Search, SearchProbe

LIMIT_NS = 50_000_000


def probe(rate_per_s, margin, *, stage="refine", valid=True, overloaded=False):
    return SearchProbe(
        rate_per_s=rate_per_s, stage=stage, margins={"p99": margin}, met=margin <= 0, overloaded=overloaded, valid=valid, took_s=1.0
    )


@pytest.fixture
def result(synthetic):
    """A result of four load points and a search of as many probes."""
    probes = (probe(10, -0.5), probe(20, 0.1), probe(40, 9.0, overloaded=True), probe(15, -0.1, stage="confirm", valid=False))
    line = FittedLine(limit="p99", centre_per_s=20.0, intercept=0.1, slope=1.0, power=0.5, points=3)
    search = Search(
        slo={"p99": "50ms", "error_rate": "1%"}, capacity_per_s=18.0, low_per_s=17.0, high_per_s=19.0, confidence=0.9, precision=0.05,
        stopped_because="precision", reason="The capacity is 18.0/s.", line=line, probes=probes,
    )  # fmt: skip
    return synthetic(protocols=("http",), repetitions=1).write().model_copy(update={"search": search})


def test_the_table_has_a_row_per_probe_with_multiples_of_the_limit(result):
    table = probes_table(result)
    assert table.headings == ["probe", "stage", "rate", "throughput", "p99", "error rate", "samples", "SLO"]
    assert [row[-1] for row in table.texts] == ["met", "missed", "overloaded", "not valid"]
    assert table.texts[0][4].endswith(f" ({math.exp(-0.5):.2f}×)")
    assert table.marks == ("", "", "", "invalid")


def test_the_figure_shows_each_probe_the_interval_and_the_fitted_line(result):
    (panel,) = search_figure(result.search).axes
    marks = [(*np.asarray(line.get_data()).ravel().tolist(), line.get_marker(), line.get_markerfacecolor()) for line in panel.lines[:4]]
    assert [round(rate) for rate, *_ in marks] == [10, 20, 40, 15]
    assert [ratio for _, ratio, *_ in marks] == pytest.approx([math.exp(-0.5), math.exp(0.1), 8.0, math.exp(-0.1)])
    assert [marker for *_, marker, _ in marks] == ["o", "o", "^", "x"]
    assert marks[3][3] == "white"
    assert panel.get_ylabel() == "p99 ÷ its limit"
    assert panel.lines[-1].get_label() == "fitted line"
    assert {"90% interval", "the SLO's limit"} <= {text.get_label() for text in (*panel.lines, *panel.patches)}


def test_the_page_and_the_terminal_show_the_outcome_and_the_probes(result, capsys):
    assert "<strong>The capacity is 18.0/s.</strong>" in render_html(run_page(result, {}))
    print_summary(result)
    printed = capsys.readouterr().out
    assert "overloaded" in printed
    assert printed.endswith("The capacity is 18.0/s.\n")
