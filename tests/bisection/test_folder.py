import json

import pytest

from perfkit.bisection.folder import BisectionFolder, BisectionInputs, Progress, RevisionGate
from perfkit.errors import ResultError
from tests.simulated_revisions import revisions

INPUTS = BisectionInputs(scenario={"name": "s"}, repository="/r", good="1", bad="2", build=None, serve="serve", perfkit="1")


def progress(**inputs):
    return Progress(inputs=INPUTS.model_copy(update=inputs), seed=7, started_at="2026-01-02T03:04:05.678+00:00")


def gate(position):
    return RevisionGate(position=position, revision=revisions(8)[position], outcome="slower", reason="It is.", pairs=10)


def test_a_bisection_continues_with_the_same_inputs_only(tmp_path):
    folder = BisectionFolder(tmp_path / "out", progress())
    folder.add(gate(4))
    again = BisectionFolder(tmp_path / "out", progress().model_copy(update={"seed": 9}))
    assert again.progress == folder.progress
    assert (again.progress.seed, again.progress.gates) == (7, (gate(4),))
    with pytest.raises(ResultError, match=r"it holds an unfinished bisection with different inputs \(bad, build\): give the same"):
        BisectionFolder(tmp_path / "out", progress(bad="3", build="make"))


def test_a_folder_of_something_else_is_refused(tmp_path):
    (tmp_path / "mine.txt").touch()
    with pytest.raises(ResultError, match="is not that of an unfinished bisection; give another one"):
        BisectionFolder(tmp_path, progress())


@pytest.mark.parametrize("damage", ["{", '{"schema": 1}', "[]"])
def test_a_damaged_progress_is_refused(tmp_path, damage):
    folder = BisectionFolder(tmp_path / "out", progress())
    (folder.folder / "progress.json").write_text(damage)
    with pytest.raises(ResultError, match=r"progress\.json: .*to start over"):
        BisectionFolder(tmp_path / "out", progress())


def test_a_revision_that_was_measured_twice_is_refused(tmp_path):
    folder = BisectionFolder(tmp_path / "out", progress())
    folder.add(gate(4))
    document = json.loads((tmp_path / "out" / "progress.json").read_text())
    document["gates"] *= 2
    (tmp_path / "out" / "progress.json").write_text(json.dumps(document))
    with pytest.raises(ResultError, match="each revision after the good one is measured once"):
        BisectionFolder(tmp_path / "out", progress())
