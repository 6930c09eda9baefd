"""Configurations of a model of a real Triton, if it is installed: applied, refused, put back, and written as config.pbtxt."""

import asyncio
import contextlib
import json
import shutil

import pytest

from benchmarks.peers.install import peers_folder
from benchmarks.peers.triton import ODD_MODELS, running_triton
from benchmarks.tune_live import models_folder
from perfkit.clock import MonotonicClock
from perfkit.gate.tune.model_control import ModelControl
from perfkit.gate.tune.pbtxt import config_text
from perfkit.gate.tune.space import candidates_of_config, is_same_config
from perfkit.scenario.file import read_document

MODEL = "batch_cost"
pytestmark = pytest.mark.skipif(
    not (peers_folder() / "bin" / "tritonserver").exists(), reason="Triton is not installed; benchmarks/peers/install.py installs it"
)


@contextlib.contextmanager
def control_of(models, model=MODEL):
    """The control of a model of a Triton that serves it out of a folder."""
    with running_triton(peers_folder(), models=models, options=["--model-control-mode=explicit", f"--load-model={model}"]) as triton:
        document = {"name": "x", "target": {"url": triton.url(), "model": model}, "load": {"closed": {"concurrency": 1}}}
        yield ModelControl(read_document(document, environ={}), triton.url(), MonotonicClock())


def test_a_configuration_is_applied_and_put_back_and_its_text_is_the_same_configuration(tmp_path):
    space = {"instance_group.count": ("2",), "dynamic_batching.max_queue_delay_microseconds": ("500",), "parameters.item_ms": ("0.5",)}
    with models_folder() as models:
        shutil.copytree(models, tmp_path / "models")
        with control_of(models) as control:
            present = asyncio.run(control.read())
            _, changed = candidates_of_config(present, space)
            assert asyncio.run(control.load(changed.configs)) == ""
            applied = asyncio.run(control.read())[MODEL]
            assert asyncio.run(control.load({MODEL: '{"max_batch_size": "many"}'})) != ""
            assert asyncio.run(control.restore(present)) == ""
            assert is_same_config(asyncio.run(control.read())[MODEL], present[MODEL])
    found = json.loads(applied)
    assert found["instance_group"][0]["count"] == 2
    assert found["dynamic_batching"]["max_queue_delay_microseconds"] == 500
    assert found["parameters"]["item_ms"] == {"string_value": "0.5"}
    (tmp_path / "models" / MODEL / "config.pbtxt").write_text(config_text(found))
    with control_of(tmp_path / "models") as control:
        assert is_same_config(asyncio.run(control.read())[MODEL], applied)


def test_the_members_of_an_ensemble_are_changed_and_put_back():
    space = {"resize.instance_group.count": ("2",), "classify.dynamic_batching": ("on",), "classify.max_batch_size": ("4",)}
    with control_of(ODD_MODELS, "pipeline") as control:
        before = asyncio.run(control.read())
        assert list(before) == ["pipeline", "resize", "classify"]
        _, changed = candidates_of_config(before, space)
        present = {model: before[model] for model in changed.configs}
        assert asyncio.run(control.load(changed.configs)).startswith("pipeline: "), "its batches are larger than those of its member"
        _, changed = candidates_of_config(before, {**space, "classify.max_batch_size": ("16",)})
        assert asyncio.run(control.load(changed.configs)) == ""
        applied = {model: json.loads(text) for model, text in asyncio.run(control.read()).items()}
        assert asyncio.run(control.restore(present)) == ""
        after = asyncio.run(control.read())
    assert applied["resize"]["instance_group"][0]["count"] == 2
    assert "dynamic_batching" in applied["classify"]
    assert applied["pipeline"] == json.loads(before["pipeline"])
    assert all(is_same_config(after[model], text) for model, text in before.items())
