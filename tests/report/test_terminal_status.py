"""The warnings and the status line of a run and of a sweep."""

import pytest

from perfkit.report.terminal import print_status_line, print_sweep_status, print_sweep_warnings
from perfkit.result.sweep import SweepFolder
from tests.report.conftest import Synthetic

VALUES: list[tuple[dict[str, int], dict[str, int]]] = [({"server.threads": threads}, {}) for threads in (1, 2, 4)]


@pytest.fixture
def sweep(tmp_path):
    """A sweep of three cases: one complete, one not valid, one not yet measured; and the results."""
    sweep = SweepFolder(tmp_path / "sweep", "threads", VALUES)
    folders = [sweep.folder / case.folder for case in sweep.document.cases]
    sound = Synthetic(folders[0], protocols=("http",), concurrencies=(1,), repetitions=1, samples=2000).write()
    busy = Synthetic(folders[1], protocols=("http",), concurrencies=(1, 2), repetitions=1, cpu_share=0.95).write()
    sweep.record(0, "complete")
    sweep.record(1, "invalid", "some points are not valid")
    return sweep, {"threads=1": sound, "threads=2": busy}


def test_the_status_of_a_sweep_counts_cases_and_load_points(sweep, capsys):
    folder, results = sweep
    print_sweep_status(folder.document, list(results.values()), 5)
    assert capsys.readouterr().err == (
        "status: incomplete (1 of 3 cases complete, 1 invalid, 1 pending; 3 load points, 2 of them NOT VALID; exit code 5)\n"
    )
    for index in range(3):
        folder.record(index, "complete")
    print_sweep_status(folder.document, [results["threads=1"]], 0)
    assert capsys.readouterr().err == "status: complete (3 of 3 cases complete; 1 load point; exit code 0)\n"


def test_the_warnings_of_a_sweep_are_one_line_of_each_kind_with_its_cases(sweep, capsys):
    _, results = sweep
    print_sweep_warnings(list(results.items()))
    printed = " ".join(capsys.readouterr().err.split())
    assert printed.count("warning generator_bound (threads=2: all load points) ") == 1
    print_sweep_warnings([(f"threads={number}", results["threads=2"]) for number in range(5)])
    assert "warning generator_bound (all cases) " in " ".join(capsys.readouterr().err.split())
    print_sweep_warnings([*((f"threads={number}", results["threads=2"]) for number in range(5)), ("threads=9", results["threads=1"])])
    assert "threads=2: all load points; and 2 more cases) " in " ".join(capsys.readouterr().err.split())


def test_through_a_pipe_a_warning_and_the_status_stay_on_one_line_each_however_long(sweep, capsys):
    _, results = sweep
    print_sweep_warnings([("threads=2", results["threads=2"])])
    warned = capsys.readouterr().err.splitlines()
    assert max(map(len, warned)) > 140
    assert [line.startswith(("warning ", "1 note (few_samples; ")) for line in warned] == [True] * 2
    print_status_line("invalid", "words, " * 40 + "end", 5)
    assert capsys.readouterr().err == f"status: invalid ({'words, ' * 40}end; exit code 5)\n"


def test_a_terminal_wraps_the_status_at_words(capsys, monkeypatch):
    monkeypatch.setattr("sys.stderr.isatty", lambda: True, raising=False)
    monkeypatch.setenv("COLUMNS", "80")
    monkeypatch.setenv("NO_COLOR", "1")
    print_status_line("invalid", "words, " * 40 + "end", 5)
    printed = capsys.readouterr().err.splitlines()
    assert max(map(len, printed)) <= 80
    assert " ".join(" ".join(printed).split()) == f"status: invalid ({'words, ' * 40}end; exit code 5)"
