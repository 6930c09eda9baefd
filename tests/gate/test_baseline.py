import json
import re

import pytest

from perfkit.cli.main import main
from perfkit.errors import IncomparableError, ResultError, UsageError
from perfkit.gate.baseline import SCHEMA, baseline_from_result, merge_baselines, read_baseline, write_baseline
from perfkit.recorder.histogram import decode
from perfkit.result.model import Result
from tests.stored_results import changed, document, result, write, write_log


def test_a_baseline_survives_writing_and_reading(tmp_path):
    parts = [(at, baseline_from_result(result(started_at=f"2026-01-0{at}T00:00:00.000+00:00"))) for at in "21"]
    made = merge_baselines(parts)
    path = tmp_path / "baselines" / "smoke.json"
    write_baseline(path, made)
    assert read_baseline(path) == made
    document_ = json.loads(path.read_text())
    assert document_["schema"] == SCHEMA
    assert [run["started_at"][:10] for run in document_["runs"]] == ["2026-01-01", "2026-01-02"]
    run = document_["runs"][0]
    assert (run["commit"], run["seed"], len(run["repetitions"])) == ("c0ffee" * 6, 0, 3)


def test_a_result_is_a_baseline_of_one_run(tmp_path):
    folder = write(tmp_path / "r", document())
    assert read_baseline(folder) == read_baseline(folder / "result.json") == baseline_from_result(result())


def test_a_scan_is_no_baseline_and_has_no_history(tmp_path, capsys):
    scan = changed(document(), "summary.0.load", {"kind": "ramp", "start": 1, "concurrency": 8, "over_s": 10.0})
    folder = write(tmp_path / "r", {**scan, "points": [changed(one, "load", scan["summary"][0]["load"]) for one in scan["points"]]})
    with pytest.raises(UsageError, match="a scan is no load point"):
        read_baseline(folder)
    assert main(["history", "add", "--file", str(tmp_path / "h.db"), str(folder)]) == 2
    assert "a scan is no load point" in capsys.readouterr().err


def test_merging_keeps_each_run_once():
    one = baseline_from_result(result())
    assert len(merge_baselines([("a", one), ("b", one)]).runs) == 1


def test_runs_with_different_fingerprints_cannot_be_merged():
    other = Result.model_validate(changed(document(), "environment.generator.kernel", "7.0"))
    with pytest.raises(IncomparableError, match=r"b and a cannot be in one baseline: the kernel differs: 6.1.0 against 7.0"):
        merge_baselines([("a", baseline_from_result(result())), ("b", baseline_from_result(other))])


def test_the_stored_histograms_are_those_of_the_log(tmp_path):
    folder = write(tmp_path / "r", document())
    write_log(folder, document())
    made = read_baseline(folder, with_histograms=True)
    for one in made.runs[0].repetitions:
        histogram = decode(one.hdr)
        assert histogram.count == 5000
        assert histogram.max_ns == pytest.approx(2_000_000, rel=2e-3)


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ('{"schema": "perfkit.baseline/2"}', "this perfkit reads perfkit.baseline/1, found 'perfkit.baseline/2': a newer perfkit may"),
        ('{"schema": "perfkit.result/2"}', "this perfkit reads perfkit.result/1, found 'perfkit.result/2': a newer perfkit may read it"),
        (json.dumps({"schema": SCHEMA}), "name: Field required"),
        ("{", "cannot be read"),
        ("[]", "found None"),
    ],
)
def test_an_unreadable_file_is_refused_with_a_sentence(tmp_path, text, sentence):
    path = tmp_path / "b.json"
    path.write_text(text)
    with pytest.raises(ResultError, match=f"{re.escape(str(path))}: .*{re.escape(sentence)}"):
        read_baseline(path)
