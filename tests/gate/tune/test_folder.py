"""The folder of a tune, from which an interrupted one goes on."""

import pytest

from perfkit.errors import ResultError
from perfkit.gate.tune.folder import Progress, TuneFolder, TuneInputs, Window

INPUTS = TuneInputs(
    scenario={"name": "m"}, target="cmd:serve", candidates=({"a": "1"}, {"a": "2"}), ladder=(1, 2), indifference=0.03, perfkit="0"
)
PROGRESS = Progress(inputs=INPUTS, seed=1, started_at="2026-01-02T03:04:05.678+00:00", first=(0, 1))


def test_those_that_joined_later_and_all_windows_are_there_again(tmp_path):
    folder = TuneFolder(tmp_path / "tune", PROGRESS, {}, resumes=False)
    windows = [Window(candidate=1, phase="race", round=number, throughput_per_s=100.0 + number) for number in (1, 2)]
    folder.add(windows[0])
    folder.open([70, 12])
    folder.add(windows[1])
    folder.open([12, 5])
    again = TuneFolder(tmp_path / "tune", PROGRESS, {}, resumes=True)
    assert again.progress.opened == (70, 12, 5)
    assert again.windows == windows


def test_a_tune_with_another_objective_does_not_go_on(tmp_path):
    TuneFolder(tmp_path / "tune", PROGRESS, {}, resumes=False)
    changed = PROGRESS.model_copy(update={"inputs": INPUTS.model_copy(update={"objective": "latency", "rate_per_s": 5.0})})
    with pytest.raises(ResultError, match="objective, rate_per_s"):
        TuneFolder(tmp_path / "tune", changed, {}, resumes=True)
