"""The report of a file that perf_analyzer wrote."""

import pathlib
import shutil

import pytest

from perfkit.cli.main import main

REAL = pathlib.Path(__file__).parents[1] / "result" / "perf_analyzer"


@pytest.fixture
def folder(tmp_path):
    for name in ("stream.json", "stream.csv"):
        shutil.copy(REAL / name, tmp_path / name)
    return tmp_path


def test_reports_are_written_beside_the_files_and_say_what_is_not_known(folder, capsys):
    assert main(["report", str(folder / "stream.json"), str(folder / "stream.csv")]) == 0
    written = [folder / f"stream.{kind}.report.{form}" for kind in ("json", "csv") for form in ("html", "md")]
    assert capsys.readouterr().out.split() == [str(one) for one in written]
    exported, reported = (one.read_text() for one in written[1::2])
    for text in (exported, reported):
        assert "no response time from the intended start, no failures: its format does not record them" in text
    row = next(line for line in reported.splitlines() if line.startswith("| concurrency 2 |"))
    assert row == "| concurrency 2 | 103/s | 18.1 ms | 17.9 ms | 19.9 ms | 21.1 ms | 23.2 ms | – |"
    row = next(line for line in exported.splitlines() if line.startswith("| concurrency 2 |"))
    assert row.startswith("| concurrency 2 | 112 | 1.09 s | 103/s | 18.1 ms | 17.9 ms | 19.9 ms | 21.1 ms |")
    assert row.endswith("| – |")
    assert "Server Compute Infer" in reported
    page = written[0].read_text()
    assert page.startswith("<!DOCTYPE html>")
    assert "Service time by percentile" in page


def test_an_old_file_can_be_compared_and_not_exported(folder, capsys):
    assert main(["compare", str(folder / "stream.json"), str(folder / "stream.csv")]) == 0
    assert "service time p50" in capsys.readouterr().out
    assert main(["report", str(folder / "stream.json"), "--csv", "-"]) == 2
    assert "stream.json: this is a profile export of perf_analyzer" in capsys.readouterr().err
