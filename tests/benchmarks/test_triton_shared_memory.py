"""Shared memory on a real Triton: answers read from the region, and another client's region, which stays."""

import asyncio
import os

import numpy as np
import pytest
import tritonclient.http
import yaml
from tritonclient.utils import shared_memory

from perfkit.machine.shared_memory import FOLDER
from perfkit.measurement.control import Interruption, RunObserver
from perfkit.measurement.lifecycle import measure_scenario
from perfkit.scenario.file import read_scenario


@pytest.fixture
def measure(triton, tmp_path):
    """Measures a scenario over both protocols, checking every answer; keyword arguments replace sections."""
    triton.load("simple", "identity_bytes")
    first, second = np.random.default_rng(1).integers(-1000, 1000, (2, 16)).astype(np.int32)
    for name, values in {"INPUT0": first, "INPUT1": second, "OUTPUT0": first + second, "OUTPUT1": first - second}.items():
        np.save(tmp_path / f"{name}.npy", values)

    def run(**sections):
        document = {
            "target": {"model": "simple", "urls": {"http": triton.url("http"), "grpc": triton.url("grpc")}},
            "workload": {"inputs": {name: {"file": f"{name}.npy"} for name in ("INPUT0", "INPUT1")}},
            "check": {
                "share": "100%",
                "at_most": "100000/s",
                "outputs": {name: {"file": f"{name}.npy"} for name in ("OUTPUT0", "OUTPUT1")},
            },
            "load": {"closed": {"concurrency": [1, 3]}},
            "measure": {"warmup": "0s", "requests": 100, "repetitions": 1},
            "telemetry": False,
            **sections,
        }
        path = tmp_path / "scenario.yaml"
        path.write_text(yaml.safe_dump(document))
        return asyncio.run(measure_scenario(read_scenario(path, environ={}), tmp_path / "out", RunObserver(), Interruption())).result

    return run


@pytest.mark.parametrize("way", [{}, {"outputs": False}, {"inputs": False}], ids=["both", "inputs", "outputs"])
def test_answers_of_triton_are_right(measure, way):
    result = measure(shared_memory={"kind": "system", **way})
    assert {point.protocol for point in result.points} == {"http", "grpc"}
    for point in result.points:
        assert (point.requests.ok, point.requests.invalid_output) == (100, 0)
        assert point.checked > 0


def test_strings_of_any_length_are_read_from_the_region(measure, triton):
    texts = ["a", "", "a longer text"]
    result = measure(
        target={"model": "identity_bytes", "urls": {"http": triton.url("http"), "grpc": triton.url("grpc")}},
        workload={"inputs": {"INPUT0": {"strings": texts, "shape": [3]}}},
        check={"share": "100%", "outputs": {"OUTPUT0": {"value": texts}}},
        shared_memory="system",
    )
    assert [point.requests.ok for point in result.points] == [100] * 4
    assert all(point.checked > 0 for point in result.points)


def test_regions_of_another_client_stay_registered(measure, triton):
    name = f"perfkit-of-another-client-{os.getpid()}"
    with tritonclient.http.InferenceServerClient(triton.url().removeprefix("http://")) as client:
        handle = shared_memory.create_shared_memory_region("other", f"/{name}", 64)
        try:
            client.register_system_shared_memory("other", f"/{name}", 64)
            measure(shared_memory="system")
            assert [one["name"] for one in client.get_system_shared_memory_status()] == ["other"]
        finally:
            client.unregister_system_shared_memory("other")
            shared_memory.destroy_shared_memory_region(handle)
    assert not list(FOLDER.glob(f"perfkit-{os.getpid()}-*"))
