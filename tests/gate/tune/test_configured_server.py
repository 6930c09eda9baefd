"""A running server is put back whenever anything was loaded, and its marks go then, whoever puts it back."""

import asyncio
import json
from typing import Any

import pytest

from perfkit.clock import MonotonicClock
from perfkit.errors import TargetError, UsageError
from perfkit.gate.arm import RunningTarget
from perfkit.gate.tune.configured_server import ReloadedServer
from perfkit.gate.tune.model_control import ModelControl
from perfkit.gate.tune.space import Candidate
from perfkit.scenario.file import read_document
from perfkit.target.changed_model import find_changed
from tests.cli.tune_target import CONFIG, Triton
from tests.json_server import serving

UNUSED: Any = None
"""An argument that is not used for a server that runs already."""
MEMBERS = ("resize", "classify")
STEPS = [{"model_name": model, "model_version": -1} for model in MEMBERS]
MODELS = {
    "pipeline": {"name": "pipeline", "platform": "ensemble", "max_batch_size": 0, "ensemble_scheduling": {"step": STEPS}},
    **{model: {**CONFIG, "name": model} for model in MEMBERS},
}


@pytest.fixture
def triton(tmp_path, monkeypatch):
    monkeypatch.setenv("PERFKIT_STATE_DIR", str(tmp_path / "state"))
    server = Triton(MODELS, slow="classify")
    with serving(server.handler) as port:
        server.url = f"http://127.0.0.1:{port}"
        yield server


class Tuned:
    """The server of a tune of an ensemble, with what it needs."""

    def __init__(self, triton, folder):
        target = {"url": triton.url, "model": "pipeline"}
        loaded = read_document({"name": "m", "target": target, "load": {"closed": {"concurrency": 1}}}, environ={})
        self.control = ModelControl(loaded, triton.url, MonotonicClock())
        self.present = {model: triton.configs[model] for model in MEMBERS}
        self.server = ReloadedServer(self.control, self.present, folder, RunningTarget(triton.url, ()))

    def candidate(self, number, count):
        configs = {model: json.dumps({**MODELS[model], "instance_group": [{"kind": "KIND_CPU", "count": count}]}) for model in MEMBERS}
        return Candidate(number, {}, configs=configs if number else self.present)

    async def apply(self, candidate):
        async with self.server as server, server.applied(candidate, UNUSED, UNUSED):
            pass

    @property
    def has_mark(self):
        return any(find_changed(self.control.address, model) is not None for model in MODELS)


def test_the_server_is_put_back_where_one_member_was_loaded_before_another_was_refused(triton, tmp_path):
    before, tuned = dict(triton.configs), Tuned(triton, tmp_path)

    def refuse_from_the_second_on(_):
        triton.refused_counts = {2, 8} if len(triton.loads) > 1 else set()

    triton.on_load = refuse_from_the_second_on
    with pytest.raises(UsageError, match="does not load model 'pipeline' again: classify: HTTP 400: failed to load"):
        asyncio.run(tuned.apply(tuned.candidate(1, 8)))
    assert len(triton.loads) > 3, "one was loaded, one refused, the present one refused; then all were put back"
    assert triton.configs == before
    assert not tuned.has_mark


def test_nothing_is_put_back_where_nothing_was_loaded(triton, tmp_path):
    tuned = Tuned(triton, tmp_path)
    triton.refused_counts = {2}
    with pytest.raises(UsageError, match="does not load model 'pipeline' again"):
        asyncio.run(tuned.apply(tuned.candidate(0, 2)))
    assert len(triton.loads) == 1
    assert not tuned.has_mark


def test_marks_that_a_failed_attempt_left_go_once_the_server_is_put_back_after_all(triton, tmp_path):
    before, tuned = dict(triton.configs), Tuned(triton, tmp_path)

    async def lose_the_server():
        async with tuned.server as server, server.applied(tuned.candidate(1, 8), UNUSED, UNUSED):
            triton.is_explicit = False

    with pytest.raises(TargetError, match="--restore"):
        asyncio.run(lose_the_server())
    assert tuned.has_mark
    triton.is_explicit = True
    assert tuned.server.end_now() == ""
    assert triton.configs == before
    assert not tuned.has_mark
