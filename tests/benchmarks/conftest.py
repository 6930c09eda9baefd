"""A Triton for all tests of a test process, and runs on it without a process of their own."""

import asyncio
import dataclasses
import json
import shutil

import pytest

from benchmarks.peers.install import peers_folder
from benchmarks.peers.triton import MODELS, START_MODELS, TRAFFIC_MODELS, Triton, running_triton
from perfkit.measurement.control import Interruption, RunObserver
from perfkit.measurement.lifecycle import measure_scenario
from perfkit.scenario.file import read_scenario
from tests.undisturbed import undisturbed


@dataclasses.dataclass(frozen=True)
class SharedTriton(Triton):
    """One Triton for all tests, which loads each model when a test first needs it."""

    loaded: set[str] = dataclasses.field(default_factory=set)

    def load(self, *models):
        for model in models:
            if model not in self.loaded:
                self.request(f"v2/repository/models/{model}/load", {})
                self.loaded.add(model)


@pytest.fixture(scope="session")
def triton(tmp_path_factory):
    """One Triton, if it is installed, with the models of `benchmarks/peers`: it starts and ends in seconds."""
    if not (peers_folder() / "bin" / "tritonserver").exists():
        pytest.skip("Triton is not installed; benchmarks/peers/install.py installs it")
    models = tmp_path_factory.mktemp("triton") / "models"
    for folder in (MODELS, START_MODELS, TRAFFIC_MODELS):
        shutil.copytree(folder, models, dirs_exist_ok=True)
    with running_triton(peers_folder(), models=models, options=["--model-control-mode=explicit"]) as running:
        yield SharedTriton(**dataclasses.asdict(running))


@pytest.fixture
def measure(tmp_path):
    """Measures a scenario in this process, without telemetry; returns its load points as result.json has them."""

    def run(document):
        path = tmp_path / "scenario.yaml"
        path.write_text(json.dumps({"telemetry": False, **document}))
        with undisturbed():
            measured = asyncio.run(measure_scenario(read_scenario(path, environ={}), tmp_path / "out", RunObserver(), Interruption()))
        return measured.result.model_dump(mode="json")["points"]

    return run
