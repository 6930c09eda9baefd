"""`perfkit compare`, `baseline` and `history`: output and exit codes."""

import json

import pytest

from perfkit.cli.main import main
from tests.stored_results import changed, document, point, write, write_log


@pytest.fixture
def results(tmp_path, monkeypatch):
    """Two results of one scenario in the working folder."""
    monkeypatch.chdir(tmp_path)
    for name, started_at, p50_ms in (("one", "2026-01-01", 2.0), ("two", "2026-01-02", 2.2)):
        made = document(started_at=f"{started_at}T00:00:00.000+00:00", p50_ms=p50_ms)
        write_log(write(tmp_path / name, made), made)
    return tmp_path


@pytest.mark.usefixtures("results")
def test_results_are_compared_by_folder_or_file(capsys):
    assert main(["compare", "one", "two/result.json"]) == 0
    said = capsys.readouterr().out
    assert "[1] one: started 2026-01-01" in said
    assert "+10.0 %" in said


@pytest.mark.parametrize(
    ("form", "beginning"), [("text", "[1] one"), ("markdown", "# Results"), ("json", "{"), ("html", "<!DOCTYPE html>")]
)
def test_every_form_can_go_to_a_file(results, capsys, form, beginning):
    assert main(["compare", "one", "two", "--format", form, "--out", "compared"]) == 0
    assert (results / "compared").read_text().startswith(beginning)
    assert capsys.readouterr().out == ""


def torn(folder):
    whole = (folder / "result.json").read_text()
    (folder / "result.json").write_text(whole[: len(whole) // 2])


@pytest.mark.parametrize(
    ("harm", "code", "sentence"),
    [
        (torn, 2, "two/result.json: cannot be read"),
        (
            lambda folder: write(folder, changed(document(), "schema", "perfkit.result/2")),
            2,
            "found 'perfkit.result/2': a newer perfkit may read it",
        ),
        (
            lambda folder: write(folder, changed(document(), "summary.0.throughput_per_s", ...)),
            2,
            "summary.0.throughput_per_s: Field required",
        ),
        (lambda folder: (folder / "result.json").unlink(), 2, "there is no result.json"),
        (lambda folder: write(folder, document(points=[point(protocol="grpc")])), 4, "no load point in common"),
    ],
)
def test_results_that_cannot_be_compared_are_refused_with_a_sentence(results, capsys, harm, code, sentence):
    harm(results / "two")
    assert main(["compare", "one", "two"]) == code
    said = capsys.readouterr()
    assert sentence in said.err
    assert (said.out, said.err.count("\n"), "Traceback" in said.err) == ("", 1, False)


@pytest.mark.usefixtures("results")
def test_a_comparison_ends_with_its_status_on_stderr_also_if_the_reader_of_stdout_has_left(capsys, monkeypatch):
    assert main(["compare", "one", "two"]) == 0
    assert capsys.readouterr().err.splitlines()[-1] == "status: complete (2 results, 6 figures; exit code 0)"

    def leave(*_):
        raise BrokenPipeError

    monkeypatch.setattr("perfkit.cli.compare.write_styled", leave)
    monkeypatch.setattr("perfkit.cli.output.discard_stdout", lambda: None)
    assert main(["compare", "one", "two"]) == 0
    assert capsys.readouterr().err.splitlines()[-1] == "status: complete (2 results, 6 figures; exit code 0)"


@pytest.mark.usefixtures("results")
def test_a_single_result_cannot_be_compared(capsys):
    assert main(["compare", "one"]) == 2
    assert "at least two results" in capsys.readouterr().err


def test_a_baseline_has_its_scenarios_name_and_can_grow(results, capsys):
    assert main(["baseline", "one"]) == 0
    assert main(["baseline", "baselines/smoke.json", "two"]) == 0
    assert capsys.readouterr().out == "baselines/smoke.json: 1 run on 1 host\nbaselines/smoke.json: 2 runs on 1 host\n"
    assert len(json.loads((results / "baselines" / "smoke.json").read_text())["runs"]) == 2


@pytest.mark.parametrize(
    ("path", "value", "code", "sentence"),
    [
        ("environment.generator.kernel", "7.0", 4, "two and one cannot be in one baseline: the kernel differs"),
        ("status", "interrupted", 5, "a baseline needs complete, valid and steady runs: two: the run is interrupted"),
        ("summary.0.valid", False, 5, "two: http, concurrency 4 is not valid"),
    ],
)
def test_a_baseline_refuses_unreliable_or_different_runs(results, capsys, path, value, code, sentence):
    write(results / "two", changed(document(), path, value))
    assert main(["baseline", "one", "two", "--out", "b.json"]) == code
    assert sentence in capsys.readouterr().err
    assert not (results / "b.json").exists()


def test_a_history_can_be_filled_listed_searched_and_plotted(results, capsys):
    assert main(["history", "add", "one", "two"]) == 0
    assert main(["history", "add", "one"]) == 0
    assert capsys.readouterr().out == "perfkit-history.sqlite: 2 added\nperfkit-history.sqlite: 0 added, 1 already present\n"
    assert main(["history", "list"]) == 0
    assert [line.split()[-1] for line in capsys.readouterr().out.splitlines()[2:]] == ["one", "two"]
    assert main(["history", "steps", "--format", "json"]) == 0
    listed = json.loads(capsys.readouterr().out)
    assert {(trend["metric"], trend["results"], len(trend["steps"])) for trend in listed["trends"]} == {
        (metric, 2, 0) for metric in ("throughput", "p50", "p90", "p95", "p99")
    }
    assert main(["history", "plot", "--metric", "p50", "--out", "p50.svg"]) == 0
    assert "<svg" in (results / "p50.svg").read_text()
    assert main(["history", "plot", "--metric", "p50", "--out", "p50.html"]) == 0
    assert "<svg" in (results / "p50.html").read_text()


def test_a_history_takes_all_results_or_none(results):
    torn(results / "two")
    assert main(["history", "add", "one", "two"]) == 2
    assert not (results / "perfkit-history.sqlite").exists()


@pytest.mark.usefixtures("results")
def test_a_filter_that_matches_nothing_lists_what_there_is(capsys):
    main(["history", "add", "one"])
    assert main(["history", "steps", "--scenario", "other"]) == 2
    assert "no figures match; the history has smoke: http, concurrency 4" in capsys.readouterr().err
    assert main(["history", "steps", "--file", "none.sqlite"]) == 2


def test_a_comparison_with_an_invalid_result_says_so_in_its_answer_and_its_status(results, capsys):
    made = changed(document(started_at="2026-01-02T00:00:00.000+00:00", p50_ms=2.2), "status", "invalid")
    write(results / "two", made)
    (results / "two" / "checksums.sha256").unlink(missing_ok=True)
    assert main(["compare", "one", "two"]) == 0
    said = capsys.readouterr()
    answer = said.out.partition("\nDifferences")[0]
    assert (
        "\n[2] is NOT VALID: the figures of the load points in the notes may be those of the load generator or of a cold target.\n"
        in answer
    )
    assert said.err.splitlines()[-1] == "status: complete (2 results, 1 of them NOT VALID, 6 figures, 1 note; exit code 0)"
