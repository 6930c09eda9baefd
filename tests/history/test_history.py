"""The history file, its trends, and their steps with their commits."""

import dataclasses
import sqlite3
from xml.etree import ElementTree

import numpy as np
import pytest

from perfkit.cli.main import main
from perfkit.errors import ResultError
from perfkit.history.file import Choice, open_history
from perfkit.history.series import Figure, HistoryEntry, Series, record_of_result
from perfkit.history.trend import Trend, find_steps
from perfkit.report.chart_panel import legend_keys
from perfkit.report.history import environment_table, render_steps, render_trends, render_trends_html, steps_table, trends_group
from perfkit.result.model import Result
from tests.stored_results import changed, document, point, result

STEP_AT = 14


@pytest.fixture
def path(tmp_path):
    return tmp_path / "history.sqlite"


def at(index):
    return f"2026-01-{1 + index:02}T00:00:00.000+00:00"


@pytest.fixture
def filled(path):
    """Twenty-four results, added in random order; from the fifteenth on they are 20 % slower."""
    random = np.random.default_rng(1)
    noise = np.exp(random.normal(0, 0.02, 24))
    with open_history(path, create=True) as history:
        for index in random.permutation(24):
            factor = noise[index] * (1.2 if index >= STEP_AT else 1.0)
            figures = {"p50_ms": 2 * factor, "p99_ms": 6.0, "throughput_per_s": 500 / factor}
            history.add([stored(f"r{index}", started_at=at(index), commit=f"{index:040d}", **figures)])
    return path


def trends(path, **options):
    with open_history(path) as history:
        return history.trends(Choice(**options))


def stored(source="r", **options):
    """A result as the history stores it."""
    return record_of_result(result(**options), source)


def test_results_are_stored_once_and_listed_by_time(path):
    with open_history(path, create=True) as history:
        assert [history.add([stored(f"r{index}", started_at=at(index))]) for index in (1, 0, 1)] == [[True], [True], [False]]
    with open_history(path) as history:  # results are still there after reopening
        listed = [(series.scenario, status, entry.source) for series, status, entry in history.entries()]
        assert listed == [("smoke", "complete", "r0"), ("smoke", "complete", "r1")]
        assert history.entries(Choice(scenario="other")) == []


def test_a_step_has_the_commit_of_the_first_result_after_it(filled):
    (trend,) = trends(filled, metrics=("p50",))
    (step,) = find_steps(trend)
    assert (step.index, step.commit, step.previous_commit) == (STEP_AT, f"{STEP_AT:040d}", f"{STEP_AT - 1:040d}")
    assert step.started_at == at(STEP_AT)
    assert step.ratio == pytest.approx(1.2, rel=0.03)
    assert step.is_worse
    assert step.environment == ()


def test_a_drop_of_throughput_is_worse_and_a_steady_metric_has_no_step(filled):
    found = {trend.metric: find_steps(trend) for trend in trends(filled)}
    assert [step.is_worse for step in found["throughput"]] == [True]
    assert found["throughput"][0].ratio == pytest.approx(1 / 1.2, rel=0.03)
    assert found["p99"] == []


def test_a_step_names_the_changes_of_the_environment(path):
    with open_history(path, create=True) as history:
        for index in range(16):
            level, host, kernel = (2.0, "host-a", "6") if index < 8 else (3.0, "host-b", "7")
            moved = document(started_at=at(index), p50_ms=level + index / 1000, host=host)
            moved_result = Result.model_validate(changed(moved, "environment.generator.kernel", kernel))
            history.add([record_of_result(moved_result, "r", machine="runners")])
    (step,) = find_steps(trends(path, metrics=("p50",))[0])
    assert step.environment == ("the kernel differs: 6 against 7", "it was measured on another host")
    text = render_steps([(trends(path, metrics=("p50",))[0], [step])])
    assert "the same commit c0ffeec0ff as before" in text
    assert "at the same time: the kernel differs" in text


def test_invalid_points_are_left_out_of_trends(path):
    with open_history(path, create=True) as history:
        history.add([stored(points=[point(valid=False), point(load={"kind": "closed", "concurrency": 8})])])
    assert {trend.load_point for trend in trends(path)} == {"http, concurrency 8"}


def test_the_servers_cpu_time_is_a_figure_where_it_is_known():
    known = Result.model_validate(changed(document(), "summary.0.server_cpu", {"cpus": 0.4, "time_per_request_ns": 8e5}))
    assert Figure("http, concurrency 4", "cpu_time", "ns", 8e5) in record_of_result(known, "r").figures
    for unknown in (None, {"cpus": 0.0, "time_per_request_ns": None}):
        lacking = Result.model_validate(changed(document(), "summary.0.server_cpu", unknown))
        assert "cpu_time" not in {one.metric for one in record_of_result(lacking, "r").figures}


def test_trends_can_be_filtered_by_scenario_load_point_and_metric(filled):
    two = trends(filled, load_point="http, concurrency 4", metrics=("p50", "throughput"))
    assert [trend.metric for trend in two] == ["p50", "throughput"]
    assert trends(filled, scenario="other") == trends(filled, load_point="grpc, concurrency 4") == []
    assert all(value > 0 for value in trends(filled)[0].values)


def test_the_chart_marks_steps_with_their_commits_and_the_levels_between_them(filled):
    (trend,) = trends(filled, metrics=("p50",))
    steps = find_steps(trend)
    (chart,) = trends_group([(trend, steps)]).charts
    values, levels = chart.lines
    assert values.ys == tuple(value / 1e6 for value in trend.values)
    assert [(round(x - 0.5), y is None) for x, y in zip(levels.xs, levels.ys, strict=True)][::3] == [(0, False), (STEP_AT, False)]
    (mark,) = [level for level in chart.levels if level.label]
    assert mark.value == STEP_AT + 0.5
    assert mark.label.startswith(f"{STEP_AT:040d}"[:10])
    assert mark.label.split()[0] in render_trends([(trend, steps)])
    page = render_trends_html([(trend, steps)])
    assert page.index(f"commit {mark.label.split()[0]}") < page.index("<svg")


@pytest.mark.parametrize(
    ("statement", "message"),
    [
        ("UPDATE figure SET value = 'fast' WHERE metric = 'p50'", "figure.value: fast ns is no figure of a result"),
        ("UPDATE figure SET value = -5", "figure.value: -5.0 "),
        ("UPDATE figure SET value = 9e999", "figure.value: inf "),
        ("UPDATE figure SET value = 1e18", "figure.value: 1e+18 "),
        ("UPDATE result SET started_at = '99999-01-01' WHERE id = 1", "result.started_at: expected an instant in UTC"),
        ("UPDATE result SET started_at = x'00' WHERE id = 1", "expected text in a column of text"),
        ("UPDATE result SET fingerprint = '{'", "result.fingerprint: the result started at"),
        ("CREATE VIEW other AS SELECT 1", "this database is not a perfkit history"),
        ("CREATE TRIGGER t AFTER INSERT ON result BEGIN DELETE FROM figure; END", "this database is not a perfkit history"),
    ],
)
def test_rows_that_no_result_gave_are_refused(filled, statement, message):
    connection = sqlite3.connect(filled)
    with connection:
        connection.execute(statement)
    connection.close()
    with pytest.raises(ResultError) as caught:
        trends(filled)
    assert str(caught.value).startswith(f"{filled}: {message}")


def long_trend(count):
    entries = [HistoryEntry("2026-01-01T00:00:00.000+00:00", f"{n:040d}", "host-a", {"kernel": str(n)}, "r") for n in range(count)]
    return Trend(Series("smoke"), "http, concurrency 4", "p50", "ns", tuple(entries), tuple(2e6 + n % 7 for n in range(count)))


def test_a_plot_of_years_shows_the_latest_results():
    trend = long_trend(30_000)
    (chart,) = trends_group([(trend, [])]).charts
    assert (chart.lines[0].xs[0], chart.lines[0].xs[-1]) == (28_001, 30_000)
    assert len(render_trends([(trend, [])])) < 2_000_000
    assert len(render_trends_html([(trend, [])])) < 2_000_000


def test_a_name_is_no_formula_and_has_no_control_characters_in_a_plot(filled):
    (trend,) = trends(filled, metrics=("p50",))
    svg = render_trends([(dataclasses.replace(trend, series=Series("$\\frac{$ \x1b[31m<script>\u202e")), [])])
    ElementTree.fromstring(svg)  # noqa: S314 - drawn here
    assert r"$\frac{$ \u001b[31m&lt;script&gt;\u202e" in svg


def test_more_time_series_than_a_plot_can_show_are_refused_with_the_options_that_choose_some(path, capsys):
    with open_history(path, create=True) as history:
        points = [point(load={"kind": "closed", "concurrency": number}) for number in range(1, 102)]
        history.add([stored(points=points)])
    for part in ("plot", "steps"):
        assert main(["history", part, "--file", str(path)]) == 2
        said = capsys.readouterr().err
        assert (
            "505 time series match, and at most 500 are shown at a time: choose some with --scenario, --branch, --load-point or --metric"
            in said
        )


def test_all_time_series_of_several_scenarios_are_shown(path, capsys):
    with open_history(path, create=True) as history:
        points = [point(load={"kind": "closed", "concurrency": number}) for number in range(1, 41)]
        history.add([stored(points=points)])
    assert main(["history", "steps", "--file", str(path)]) == 0
    assert capsys.readouterr().out.startswith("0 of 200 time series have a step.")


def trend_with_a_step(commits, fingerprints=({},) * 20):
    values = [1.0 + index / 1000 + (index >= 10) for index in range(20)]
    entries = tuple(
        HistoryEntry(f"2026-01-{index + 1:02}T00:00:00.000+00:00", commits[index >= 10], "", fingerprints[index], "") for index in range(20)
    )
    return Trend(Series("smoke"), "http, concurrency 4", "p50", "ns", entries, tuple(values))


def test_the_page_has_the_steps_as_a_table_and_names_the_changes_that_dotted_lines_mark():
    trend = trend_with_a_step(("a" * 40, "b" * 40), [{"kernel": str(index // 6)} for index in range(20)])
    found = [(trend, find_steps(trend))]
    (row,) = steps_table(found).texts
    assert [row[0], row[1], row[4], row[5], row[6]] == ["2026-01-11 00:00:00 UTC", "p50, http, concurrency 4", "worse", "b" * 10, "a" * 10]
    changes = environment_table(found).texts
    assert [row[0] for row in changes] == [f"2026-01-{day} 00:00:00 UTC" for day in ("19", "13", "07")]
    assert all("kernel" in row[2] for row in changes)
    (chart,) = trends_group(found).charts
    assert [key.name for key in legend_keys(chart)] == ["result", "level", "step", "environment changed"]
    assert f"--good {'a' * 10} --bad {'b' * 10}" in render_trends_html(found)


@pytest.mark.parametrize(("kernels", "where"), [(1, "no change of the recorded environment"), (2, "are listed below")])
def test_a_step_within_a_commit_points_to_the_changes_of_the_environment_only_if_there_are_some(kernels, where):
    trend = trend_with_a_step(("a" * 40, "a" * 40), [{"kernel": str(index % kernels)} for index in range(20)])
    assert where in render_trends_html([(trend, find_steps(trend))])


def test_the_changes_of_the_environment_are_counted_although_not_all_are_listed():
    assert len(environment_table([(long_trend(130), [])]).rows) == 100
    assert "129 changes between two results, the newest 100 of them" in render_trends_html([(long_trend(130), [])])


@pytest.mark.parametrize(
    ("commits", "advice"),
    [(("", ""), "--good REV --bad REV"), (("a" * 40, "a" * 40), "The commit is the same before and after the step".lower())],
)
def test_a_step_without_two_commits_has_other_advice(commits, advice):
    trend = trend_with_a_step(commits)
    page = render_trends_html([(trend, find_steps(trend))]).replace("The commit", "the commit")
    assert advice in page
    assert "unknown" not in render_steps([(trend, find_steps(trend))]).replace("unknown branch, unknown machine", "")


def test_a_history_too_short_for_steps_says_so():
    def said(count):
        values = [1.0 + index / 1000 + (index >= count // 2) for index in range(count)]
        entries = tuple(HistoryEntry(f"2026-01-{index + 1:02}", "", "", {}, "") for index in range(count))
        trend = Trend(Series("smoke"), "http, concurrency 4", "p50", "ns", entries, tuple(values))
        return render_steps([(trend, find_steps(trend))])

    assert said(5).startswith("0 of 1 time series have a step. 1 have fewer than 6 results")
    assert said(12).splitlines()[-2] == "1 of 1 time series has a step."


def test_files_of_something_else_are_refused_and_unchanged(tmp_path, path):
    with pytest.raises(ResultError, match="this history does not exist"), open_history(path):
        pass
    assert not path.exists()
    torn = tmp_path / "torn.sqlite"
    torn.write_bytes(b"this is not a database, but long enough to look like one" * 10)
    with pytest.raises(ResultError, match="cannot be used as a history"), open_history(torn, create=True):
        pass
    for name, statement, sentence in (
        ("newer", "PRAGMA user_version = 3", "a newer perfkit may read it"),
        ("older", "PRAGMA user_version = 1", "this perfkit reads version 2, found 1: give another file"),
        ("other", "CREATE TABLE a (b)", "not a perfkit history"),
    ):
        connection = sqlite3.connect(tmp_path / name)
        connection.execute(statement)
        connection.close()
        with pytest.raises(ResultError, match=sentence), open_history(tmp_path / name, create=True):
            pass
