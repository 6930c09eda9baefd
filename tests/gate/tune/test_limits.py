"""The limits of a tune on what the server uses: what is over them, and where they cannot be judged."""

import os
import types

import pytest

from perfkit.errors import UsageError
from perfkit.figures.resources import GpuFigures, ServerCpuFigures
from perfkit.gate.tune.limits import check_limits, excess, server_process, unknown, used_cpus, used_gpu_memory_bytes
from perfkit.scenario.measure import TuneConstraints
from perfkit.scenario.model import Scenario
from perfkit.target.address import Address
from tests.json_server import JsonHandler, serving

LIMITS = TuneConstraints.model_validate({"cpu": 2, "gpu_memory": "8GiB"})


def point(**figures):
    """A load point with these figures alone."""
    return types.SimpleNamespace(**figures)


def scenario(constraints, **more):
    document = {"name": "x", "target": {"url": "http://127.0.0.1:1", "model": "m"}, "load": {"closed": {"concurrency": [1]}}}
    return Scenario.model_validate({**document, "tune": {"constraints": constraints}, **more})


@pytest.mark.parametrize(
    ("cpus", "memory_bytes", "sentence"),
    [
        (2.0, 8 << 30, ""),
        (2.345, 0, "the server used 2.35 CPUs, and 2 are the limit"),
        (1.0, 9 << 30, "9.00 GiB of GPU memory were used, and 8GiB are the limit"),
    ],
)
def test_what_is_over_a_limit_is_said_with_both_figures(cpus, memory_bytes, sentence):
    assert excess(LIMITS, cpus, memory_bytes) == sentence
    assert excess(TuneConstraints(), cpus, memory_bytes) == ""


def test_a_limited_figure_that_a_window_lacks_is_said():
    assert "CPUs" in unknown(LIMITS, None, 1)
    assert "GPU memory" in unknown(LIMITS, 1.0, None)
    assert unknown(LIMITS, 1.0, 1) == unknown(TuneConstraints(), None, None) == ""


def test_the_memory_of_gpus_that_the_server_may_use_is_added():
    gpus = [
        GpuFigures("a", "A", "nvml", memory_used_max_bytes=3, used_by_server=True),
        GpuFigures("b", "B", "nvml", memory_used_max_bytes=4),
        GpuFigures("c", "C", "nvml", memory_used_max_bytes=100, used_by_server=False),
        GpuFigures("d", "D", "nvml", memory_used_max_bytes=100, mig=True),
        GpuFigures("e", "E", "metrics", memory_used_max_bytes=100),
    ]
    assert used_gpu_memory_bytes(point(gpus=gpus)) == 7
    assert used_gpu_memory_bytes(point(gpus=gpus[2:])) == 0
    assert used_gpu_memory_bytes(point(gpus=gpus[3:])) is None
    assert used_gpu_memory_bytes(point(gpus=[GpuFigures("a", "A", "nvml")])) is None
    assert used_cpus(point(server_cpu=ServerCpuFigures(1.5, None))) == 1.5
    assert used_cpus(point(server_cpu=None)) is None


def test_the_process_of_a_server_on_this_machine_is_found():
    with serving(JsonHandler) as port:
        assert server_process(Address.parse(f"http://127.0.0.1:{port}")) == os.getpid()
    assert server_process(Address.parse(f"http://127.0.0.1:{port}")) is None


@pytest.mark.parametrize(
    ("constraints", "more", "url", "sentence"),
    [
        ({"cpu": 1}, {"telemetry": False}, None, "a limit on CPUs needs telemetry"),
        ({"cpu": 1, "gpu_memory": "1GiB"}, {}, "http://192.0.2.1:8000", "a limit on CPUs and GPU memory needs a server on this machine"),
        ({"cpu": 1}, {}, "http://127.0.0.1:1", "leave out --max-cpu"),
    ],
)
def test_a_limit_on_a_figure_that_cannot_be_known_is_refused(constraints, more, url, sentence):
    with pytest.raises(UsageError) as error:
        check_limits(scenario(constraints, **more), url and Address.parse(url))
    assert sentence in str(error.value)


def test_without_limits_nothing_is_refused():
    check_limits(scenario(None, telemetry=False), Address.parse("http://192.0.2.1:8000"))
    check_limits(scenario({"cpu": 1}), None)
