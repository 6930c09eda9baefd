"""Configurations of a model of a real Triton, if it is installed: applied, refused, put back, and written as config.pbtxt."""

import asyncio
import contextlib
import json
import shutil

import pytest

from benchmarks.peers.install import peers_folder
from benchmarks.peers.triton import running_triton
from benchmarks.tune_live import models_folder
from perfkit.clock import MonotonicClock
from perfkit.gate.tune.configured_server import ModelControl
from perfkit.gate.tune.pbtxt import config_text
from perfkit.gate.tune.space import candidates_of_config, is_same_config
from perfkit.scenario.file import read_document

MODEL = "batch_cost"
pytestmark = pytest.mark.skipif(
    not (peers_folder() / "bin" / "tritonserver").exists(), reason="Triton is not installed; benchmarks/peers/install.py installs it"
)


@contextlib.contextmanager
def control_of(models):
    """The control of the model of a Triton that serves it out of a folder."""
    with running_triton(peers_folder(), models=models, options=["--model-control-mode=explicit", f"--load-model={MODEL}"]) as triton:
        document = {"name": "x", "target": {"url": triton.url(), "model": MODEL}, "load": {"closed": {"concurrency": 1}}}
        yield ModelControl(read_document(document, environ={}), triton.url(), MonotonicClock())


def test_a_configuration_is_applied_and_put_back_and_its_text_is_the_same_configuration(tmp_path):
    space = {"instance_group.count": ("2",), "dynamic_batching.max_queue_delay_microseconds": ("500",), "parameters.item_ms": ("0.5",)}
    with models_folder() as models:
        shutil.copytree(models, tmp_path / "models")
        with control_of(models) as control:
            present = asyncio.run(control.read())
            _, changed = candidates_of_config(present, space)
            assert asyncio.run(control.load(changed.applied)) == ""
            applied = asyncio.run(control.read())
            assert asyncio.run(control.load('{"max_batch_size": "many"}')) != ""
            assert asyncio.run(control.restore(present)) == ""
            assert is_same_config(asyncio.run(control.read()), present)
    found = json.loads(applied)
    assert found["instance_group"][0]["count"] == 2
    assert found["dynamic_batching"]["max_queue_delay_microseconds"] == 500
    assert found["parameters"]["item_ms"] == {"string_value": "0.5"}
    (tmp_path / "models" / MODEL / "config.pbtxt").write_text(config_text(found))
    with control_of(tmp_path / "models") as control:
        assert is_same_config(asyncio.run(control.read()), applied)
