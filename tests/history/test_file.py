"""The history file: series, start points of branches, and several writers at once."""

import json
import multiprocessing
import sqlite3

import pytest

from perfkit.cli.main import main
from perfkit.history.file import Choice, open_history, write_transaction
from perfkit.history.series import record_of_result
from perfkit.history.trend import find_steps, with_starts
from perfkit.result.model import Result
from tests.stored_results import changed, document, result, write


@pytest.fixture
def path(tmp_path):
    return tmp_path / "history.sqlite"


def at(index):
    return f"2026-01-{1 + index:02}T00:00:00.000+00:00"


def record(index, factor=1.0, *, branch="main", machine="", facts=(), **options):
    """A result of a day whose times are `factor` times as long; the noise is 1 %, of no random kind."""
    noise = 1 + 0.01 * (index * 7 % 5 - 2) / 2
    made = document(started_at=at(index), p50_ms=2.0 * factor * noise, commit=f"{index:040d}", **options)
    for place, value in facts:
        made = changed(made, place, value)
    return record_of_result(Result.model_validate(made), f"r{index}", branch=branch, machine=machine)


def test_results_of_another_branch_machine_model_or_payload_are_another_series(path):
    payload = "environment.target.protocols.http.payload_sha256"
    with open_history(path, create=True) as history:
        history.add(
            [
                record(0),
                record(1),
                record(2, branch="feature"),
                record(3, host="host-b"),
                record(4, host="host-c", machine="runners"),
                record(5, host="host-d", machine="runners"),
                record(6, facts=[("scenario.target.version", "2")]),
                record(7, facts=[(payload, "f" * 64)]),
            ]
        )
        trends = history.trends(Choice(metrics=("p50",)))
        digest = trends[0].series.payload
        assert sorted((one.series.branch, one.series.machine, one.series.model, len(one.values)) for one in trends) == [
            ("feature", "host-a", "m 1", 1),
            ("main", "host-a", "m 1", 1),
            ("main", "host-a", "m 1", 2),
            ("main", "host-a", "m 2", 1),
            ("main", "host-b", "m 1", 1),
            ("main", "runners", "m 1", 2),
        ]
        for choice, results in (
            (Choice(branch="feature"), 1), (Choice(machine="runners"), 2), (Choice(model="m 2"), 1), (Choice(payload=digest), 7),
            (Choice(branch="main", machine="host-a", payload=digest, model="m 1"), 2),
        ):  # fmt: skip
            assert len(history.entries(choice)) == results
            assert sum(len(trend.values) for trend in history.trends(choice) if trend.metric == "p50") == results


def trend_of(path, branch):
    with open_history(path) as history:
        every = [trend for trend in history.trends() if trend.metric == "p50"]
        (trend,) = with_starts([trend for trend in every if trend.series.branch == branch], every, history.starts())
    return trend


def test_a_new_branch_starts_from_the_newest_level_of_its_branch(path):
    with open_history(path, create=True) as history:
        history.add([record(index, 1.0 if index < 8 else 1.5) for index in range(20)])
        history.add([record(20 + index, 1.8, branch="feature") for index in range(3)], "main")
        history.add([record(23 + index, 3.0) for index in range(3)])  # main goes on
    trend = trend_of(path, "feature")
    assert trend.start == 12  # not the level before main's own step, and nothing after the branch began
    assert [entry.commit for entry in trend.entries] == [f"{index:040d}" for index in range(8, 23)]
    (step,) = find_steps(trend)
    assert (step.index, step.commit, step.previous_commit) == (12, f"{20:040d}", f"{19:040d}")
    assert step.ratio == pytest.approx(1.8 / 1.5, rel=0.01)
    assert trend_of(path, "main").start == 0


def test_a_branch_of_a_branch_starts_where_results_are_and_a_circle_ends(path):
    with open_history(path, create=True) as history:
        history.add([record(index) for index in range(6)])
        history.add([record(6, branch="late")], "empty")
        history.add([record(7, branch="b")], "late")
        connection = sqlite3.connect(path)
    assert trend_of(path, "b").start == 1
    assert trend_of(path, "late").start == 0  # nothing says where "empty" comes from
    with connection:
        connection.execute("INSERT INTO branch VALUES ('empty', 'main')")
    assert trend_of(path, "late").start == 6
    with connection:
        connection.execute("UPDATE branch SET start_from = 'late' WHERE name = 'empty'")
    connection.close()
    assert trend_of(path, "late").start == 0


def test_a_writer_holds_the_lock_before_it_reads_anything(path):
    first, second = (sqlite3.connect(path, timeout=0, isolation_level=None) for _ in range(2))
    with write_transaction(first), pytest.raises(sqlite3.OperationalError, match="locked"), write_transaction(second):
        pass
    with write_transaction(second):
        second.execute("CREATE TABLE a (b)")
    for connection in (first, second):
        connection.close()


def test_a_file_whose_tables_are_not_made_yet_reads_as_an_empty_history_and_stays_as_it_is(path):
    path.touch()  # as sqlite3.connect does, long before the first COMMIT
    with open_history(path) as history:
        assert (history.entries(), history.starts(), history.trends()) == ([], {}, [])
    assert path.read_bytes() == b""
    with open_history(path, create=True) as history:
        assert history.add([record(0)]) == [True]


def add_some(path, number, barrier):
    barrier.wait()
    for index in range(5):
        with open_history(path, create=True) as history:
            made = result(started_at=f"2026-01-01T00:{number:02}:{index:02}.000+00:00", host=f"host-{number}")
            assert history.add([record_of_result(made, f"{number}-{index}")]) == [True]


def test_processes_that_add_to_one_new_file_at_once_lose_nothing(path):
    context, count = multiprocessing.get_context("spawn"), 2
    barrier = context.Barrier(count)
    processes = [context.Process(target=add_some, args=(path, number, barrier)) for number in range(count)]
    for process in processes:
        process.start()
    for process in processes:
        process.join()
    assert [process.exitcode for process in processes] == [0] * count
    with open_history(path) as history:
        assert {entry.source for _, _, entry in history.entries()} == {f"{number}-{index}" for number in range(count) for index in range(5)}
        assert sum(len(trend.values) for trend in history.trends(Choice(metrics=("p50",)))) == 5 * count


def test_a_branch_is_that_of_the_option_the_result_or_the_job(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    for name in ("PERFKIT_BRANCH", "GITHUB_REF_NAME", "CI_COMMIT_REF_NAME", "GITHUB_BASE_REF", "CI_MERGE_REQUEST_TARGET_BRANCH_NAME"):
        monkeypatch.delenv(name, raising=False)
    for index in range(5):
        write(tmp_path / f"r{index}", document(started_at=at(index)))
    write(tmp_path / "detached", changed(document(started_at=at(9)), "environment.source.branch", "HEAD"))
    assert main(["history", "add", "r0"]) == 0
    assert main(["history", "add", "r1", "--branch", "feature", "--start-from", "main"]) == 0
    monkeypatch.setenv("CI_COMMIT_REF_NAME", "of-the-job")
    monkeypatch.setenv("CI_MERGE_REQUEST_TARGET_BRANCH_NAME", "main")
    assert main(["history", "add", "r2", "detached", "--machine", "runners"]) == 0
    with open_history(tmp_path / "perfkit-history.sqlite") as history:
        assert [(series.branch, series.machine) for series, _, _ in history.entries()] == [
            ("main", "host-a"), ("feature", "host-a"), ("main", "runners"), ("of-the-job", "runners"),
        ]  # fmt: skip
        assert history.starts() == {"feature": "main"}  # `main` cannot start from itself
    assert main(["history", "add", "detached", "--branch", "x", "--machine", "y"]) == 0
    capsys.readouterr()
    assert main(["history", "add", "r3", "--branch", "b", "--start-from", "maim"]) == 2
    assert (
        "--start-from maim: perfkit-history.sqlite has no results of this branch; it has those of feature, main" in capsys.readouterr().err
    )
    assert main(["history", "add", "r3", "--branch", "b", "--start-from", "b"]) == 2
    assert main(["history", "steps", "--branch", "feature", "--format", "json"]) == 0
    shown = json.loads(capsys.readouterr().out)["trends"]
    assert {(one["branch"], one["machine"], one["start"], one["results"]) for one in shown} == {("feature", "host-a", 1, 2)}
    assert main(["history", "list", "--branch", "feature"]) == 0
    assert [line.split()[-1] for line in capsys.readouterr().out.splitlines()[2:]] == ["r1"]
