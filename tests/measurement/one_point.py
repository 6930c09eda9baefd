"""A run with a single load point on the bundled server's `synthetic`, over real connections."""

import asyncio

import yaml

from perfkit.measurement.control import Interruption, RunObserver
from perfkit.measurement.lifecycle import measure_scenario
from perfkit.scenario.file import read_scenario
from tests.undisturbed import undisturbed


def read(tmp_path, *, protocol="http", synthetic, load, **sections):
    """The scenario; a section that is None is left out."""
    document = {
        "target": {"model": "synthetic", "protocols": [protocol]},
        "server": {"synthetic": synthetic},
        "workload": {"inputs": {"INPUT0": {"shape": [4]}}},
        "load": load,
        "measure": {"warmup": "0s", "requests": 60, "repetitions": 1},
        "telemetry": True,
        **sections,
    }
    path = tmp_path / "scenario.yaml"
    path.write_text(yaml.safe_dump({key: section for key, section in document.items() if section is not None}))
    return read_scenario(path, environ={})


def run_all(loaded, tmp_path):
    """The pooled load points of its result."""
    with undisturbed():
        return asyncio.run(measure_scenario(loaded, tmp_path / "out", RunObserver(), Interruption())).result.summary


def run(loaded, tmp_path):
    """The only one."""
    (point,) = run_all(loaded, tmp_path)
    return point
