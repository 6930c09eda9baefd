"""Every table that a command prints fits a terminal of 80 columns: columns give way, text wraps, figures stay whole."""

import re
import sys
from typing import cast

import pytest
from rich.text import Text

from perfkit.calibration.model import parse_calibration
from perfkit.comparison.result_comparison import compare_results
from perfkit.history.series import HistoryEntry, Series
from perfkit.report.comparison import comparison_table, comparison_text
from perfkit.report.environment import calibration_table, print_calibration
from perfkit.report.history import history_table
from perfkit.report.render import console
from perfkit.report.search import probes_table
from perfkit.report.sweep import print_sweep
from perfkit.report.table import Column, Table
from perfkit.report.terminal import fitted_text
from perfkit.report.terminal_summary import print_summary
from perfkit.report.verdict import metrics_table, print_verdict
from perfkit.result.search import LimitCount, Search, SearchProbe
from perfkit.result.sweep import SweepFolder, read_sweep
from tests.report.conftest import Synthetic
from tests.report.test_calibration import CALIBRATION
from tests.report.test_verdict import comparison, verdict
from tests.stored_results import point, result

OPEN = {"kind": "open", "rate_per_s": 123_456.7, "arrivals": "poisson"}


@pytest.fixture(autouse=True)
def terminal(monkeypatch):
    """A terminal of 80 columns."""
    monkeypatch.setenv("COLUMNS", "80")
    monkeypatch.setattr("perfkit.report.terminal._is_terminal", lambda: True)


def fitting(text):
    """The text without styles; no line is wider than the terminal."""
    plain = Text.from_ansi(text).plain
    assert [line for line in plain.splitlines() if len(line) > 80] == []
    return plain


def assert_figures_are_whole(table, plain):
    """Each figure of the columns that are shown stands on one line, and columns that are not shown are named."""
    left_out = " ".join(plain.partition("left out at 80 columns: ")[2].split())
    words = re.sub(r"\s+", " ", plain)
    for column, texts in zip(table.shown_columns, zip(*table.texts, strict=True), strict=True):
        if column.is_figure and column.heading not in left_out:
            assert [text for text in texts if text not in words] == []


def test_a_sweep_of_long_keys_values_and_reasons_fits(tmp_path, capsys):
    values: list[tuple[dict[str, object], dict[str, object]]] = [
        ({"workload.batch_size": size, "server.synthetic": "service=constant:5ms,servers=1", "target.engine": "reference"}, {})
        for size in (1, 64)
    ]
    sweep = SweepFolder(tmp_path / "sweep", "s", values)
    Synthetic(
        sweep.folder / sweep.document.cases[0].folder,
        protocols=("http",),
        concurrencies=(1, 512),
        service_ms=12_345.0,
        samples=2400,
        repetitions=1,
    ).write()
    sweep.record(0, "complete")
    sweep.record(1, "failed", "the model takes at most 8, and this sentence is as long as those of servers are")
    print_sweep(sweep.folder, read_sweep(sweep.folder))
    plain = fitting(capsys.readouterr().out)
    assert "left out at 80 columns: " in plain
    assert "sweep.csv and the report have them" in " ".join(plain.split())
    assert "concurrency" in plain


def test_the_ranking_of_a_sweep_fits(tmp_path, capsys):
    sweep = SweepFolder(tmp_path / "sweep", "s", [({"server.threads": threads}, {}) for threads in (1, 2)])
    for case, service_ms in zip(sweep.document.cases, (50.0, 40.0), strict=True):
        Synthetic(sweep.folder / case.folder, protocols=("http",), concurrencies=(1, 2), service_ms=service_ms).write()
    for index in range(2):
        sweep.record(index, "complete")
    print_sweep(sweep.folder, read_sweep(sweep.folder))
    plain = fitting(capsys.readouterr().out)
    assert plain.index("has the highest throughput") < plain.index("throughput  "), "the answer comes first"
    assert re.search(r"\(\d+(\.\d+)?/s to \d+(\.\d+)?/s\)", plain), "the figure that ranks stays"


def test_the_probes_of_a_search_fit(capsys):
    search = Search(
        slo={"p99": "50ms", "p99_9": "100ms", "error_rate": "0.1%"}, capacity_per_s=123_456.0, low_per_s=122_000.0, high_per_s=124_000.0,
        confidence=0.95, precision=0.05, stopped_because="precision", reason="The capacity is 123,456/s.",
        probes=tuple(
            SearchProbe(
                rate_per_s=123_456.7 + number, stage="confirm", met=True, valid=True, overloaded=False, took_s=1.0,
                limits={name: LimitCount(count=123_456, beyond=1234, allowed_share=0.01, dispersion=1.0) for name in ("p99", "p99_9")},
            )
            for number in range(3)
        ),
    )  # fmt: skip
    searched = result(
        points=[point(49.9, 99.9, 123_456.7, load={**OPEN, "rate_per_s": 123_456.7 + number}, error_rate=0.00012) for number in range(3)]
    )
    searched = searched.model_copy(update={"search": search, "points": searched.points[:3]})
    print_summary(searched)
    plain = fitting(capsys.readouterr().out)
    assert_figures_are_whole(probes_table(searched), plain)
    assert "123,457/s" in plain


@pytest.mark.parametrize("results", [2, 3, 5])
def test_a_comparison_fits_and_keeps_each_result(results):
    sides = [result(points=[point(123.4 * n, 999.0 * n, 123_456.7 / n, load=OPEN)]) for n in range(1, results + 1)]
    compared = compare_results([(f"result-with-a-long-name-{number}", one) for number, one in enumerate(sides)])
    plain = fitting(comparison_text(compared))
    assert "left out" not in plain
    assert_figures_are_whole(comparison_table(compared), plain)


def test_a_verdict_fits_and_keeps_the_change_and_the_outcome(capsys):
    wide = [
        comparison(
            name,
            load_point="http, poisson 123,456.7/s",
            baseline=123_456.7,
            candidate=223_456.7,
            unit="per_s",
            estimate=1.8100,
            interval=(1.7123, 1.9123),
        )
        for name in ("throughput", "p99_9")
    ]
    shown = verdict(
        "regressed", *wide, control=tuple(wide), control_pairs=3, reasons=("A sentence that is longer than the terminal is wide. " * 3,)
    )
    print_verdict(shown)
    plain = fitting(capsys.readouterr().out)
    assert plain.startswith("note: Restarted for every run.\nREGRESSED: throughput +81.0 % [+71.2, +91.2], p99.9 +81.0 %")
    assert_figures_are_whole(metrics_table(wide), plain)
    assert sum("+81.0 % [+71.2, +91.2]" in line for line in plain.splitlines()) >= 4


def test_a_calibration_fits(capsys):
    cost = {**cast(list[dict[str, object]], CALIBRATION["costs"])[0], "tensor_bytes": 154_140_672, "cpu_ns_per_request": 123_456_789.0, "ceiling_per_s": 123_456.7,
            "overhead_p50_ns": -123_456_789}  # fmt: skip
    calibration = parse_calibration({**CALIBRATION, "costs": [cost]})
    assert calibration is not None
    print_calibration(calibration)
    assert_figures_are_whole(calibration_table(calibration), fitting(capsys.readouterr().out))


def test_the_list_of_a_history_fits():
    series = Series("a-scenario-with-a-long-name", "result", "a-branch", "host-a", "model 1", "0123456789ab")
    entry = HistoryEntry(
        "2026-01-02T03:04:05.000+00:00", "c0ffee" * 6, "host-with-a-long-name.example.net", {}, "/a/folder/of/results/with/a/long/name"
    )
    plain = fitting(fitted_text(history_table([(series, "interrupted", entry)]), 80, ()))
    assert "".join(plain.split()).count("c0ffee") == 1


def test_through_a_pipe_no_cell_is_wrapped(monkeypatch):
    monkeypatch.setattr("perfkit.report.terminal._is_terminal", lambda: False)
    table = Table("t", "T", (Column("a", "a"), Column("b", "b", "figure")), (("x " * 60, "1"),))
    assert len(fitted_text(table, 80, ()).splitlines()) == 3


def test_headings_and_long_texts_wrap_before_columns_give_way_and_only_as_far_as_needed():
    columns = (Column("a", "a"), Column("b", "minimum detectable effect", "figure"), Column("c", "c", "figure"))
    table = Table("t", "T", columns, (("word " * 20, "1", "x" * 30),))
    lines = fitting(fitted_text(table, 80, ("b",))).splitlines()
    assert [line.split() for line in lines[:3]] == [["minimum"], ["detectable"], ["a", "effect", "c"]]
    assert lines[4].split()[-2:] == ["1", "x" * 30]
    assert len(lines) == 4 + 3, "100 characters in a column of 34"
    assert "left out at 60 columns: minimum detectable effect; " in " ".join(fitted_text(table, 60, ("b",)).split())


@pytest.mark.parametrize("name", ["COLUMNS", "LINES"])
def test_a_size_of_any_length_in_the_environment_is_passed_over(monkeypatch, name):
    monkeypatch.setenv(name, "9" * 5000)
    assert console(sys.stderr).width > 0
