import json
import pathlib

import numpy as np
import pytest

from perfkit.errors import IncomparableError, ResultError
from perfkit.gate.baseline import SCHEMA, baseline_from_result, merge_baselines, read_baseline, write_baseline
from perfkit.recorder.histogram import decode
from perfkit.recorder.recording import Interval
from perfkit.result.file import ResultWriter
from perfkit.result.interval_log import interval_lines
from perfkit.result.model import Result
from perfkit.stats.buckets import BucketCounts
from tests.stored_results import changed, document, result, write


def test_a_baseline_survives_writing_and_reading(tmp_path):
    parts = [(at, baseline_from_result(result(started_at=f"2026-01-0{at}T00:00:00.000+00:00"))) for at in "21"]
    made = merge_baselines(parts)
    write_baseline(tmp_path / "baselines" / "smoke.json", made)
    assert read_baseline(tmp_path / "baselines" / "smoke.json") == made
    document_ = json.loads((tmp_path / "baselines" / "smoke.json").read_text())
    assert document_["schema"] == SCHEMA
    assert [run["started_at"][:10] for run in document_["runs"]] == ["2026-01-01", "2026-01-02"]
    assert document_["runs"][0]["commit"] == "c0ffee" * 6
    assert document_["runs"][0]["seed"] == 0
    assert len(document_["runs"][0]["repetitions"]) == 3


def test_a_result_is_a_baseline_of_one_run(tmp_path):
    folder = write(tmp_path / "r", document())
    assert read_baseline(folder) == read_baseline(folder / "result.json") == baseline_from_result(result())


def test_merging_keeps_each_run_once():
    one = baseline_from_result(result())
    assert len(merge_baselines([("a", one), ("b", one)]).runs) == 1


def test_runs_with_different_fingerprints_cannot_be_merged():
    other = Result.model_validate(changed(document(), "environment.generator.kernel", "7.0"))
    with pytest.raises(IncomparableError, match=r"b and a cannot be in one baseline: the kernel differs: 6.1.0 against 7.0"):
        merge_baselines([("a", baseline_from_result(result())), ("b", baseline_from_result(other))])


def test_the_stored_histograms_are_those_of_the_log(tmp_path):
    writer, values = ResultWriter(tmp_path / "r", 0.0), np.arange(1, 2001) * 10_000
    for second, some in enumerate(np.split(values, 2)):
        writer.log(interval_lines("p0.r1", 0.0, Interval(second, BucketCounts.of(some))))
    writer.save(result())
    made = read_baseline(writer.commit(), with_histograms=True)
    assert [bool(one.hdr) for one in made.runs[0].repetitions] == [False, True, False]
    histogram = decode(made.runs[0].repetitions[1].hdr)
    assert histogram.count == len(values)
    assert histogram.max_ns == pytest.approx(values.max(), rel=2e-3)


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        (
            json.dumps({"schema": "perfkit.baseline/2"}),
            "this perfkit reads perfkit.baseline/1, found 'perfkit.baseline/2': a newer perfkit may read it",
        ),
        (
            json.dumps({"schema": "perfkit.result/2"}),
            "this perfkit reads perfkit.result/1, found 'perfkit.result/2': a newer perfkit may read it",
        ),
        (json.dumps({"schema": SCHEMA}), "name: Field required"),
        ("{", "cannot be read"),
        ("[]", "found None"),
    ],
)
def test_an_unreadable_file_is_refused_with_a_sentence(tmp_path, text, sentence):
    path = pathlib.Path(tmp_path / "b.json")
    path.write_text(text)
    with pytest.raises(ResultError) as caught:
        read_baseline(path)
    assert sentence in str(caught.value)
    assert str(path) in str(caught.value)


def test_a_torn_file_is_refused(tmp_path):
    made = tmp_path / "b.json"
    write_baseline(made, baseline_from_result(result()))
    whole = made.read_text()
    for cut in (1, len(whole) // 2, len(whole) - 3):
        made.write_text(whole[:cut])
        with pytest.raises(ResultError, match="cannot be read"):
            read_baseline(made)
