import dataclasses
import os
import subprocess
import sys

import pytest

from benchmarks.gpu_energy import NotTriedError, Work, checks, measure
from perfkit.telemetry.figures import GpuFigures
from tests.telemetry.fake_nvml.library import ROOT

WORK = Work(0, 10 * 10**9, 10**15, "torch")
REST = GpuFigures("GPU-a", "A100", "nvml", utilization_mean=0.0, power_mean_w=60.0)
LOADED = dataclasses.replace(
    REST, utilization_mean=0.99, power_mean_w=300.0, energy_j=3060.0, energy_source="counter", power_source="instant"
)


@pytest.mark.parametrize(
    ("rest", "loaded", "right"),
    [
        ({}, {}, [True, True, True]),
        ({"utilization_mean": 0.2}, {}, [False, True, True]),
        ({}, {"utilization_mean": 0.9}, [True, False, True]),
        ({}, {"energy_j": 3200.0}, [True, True, False]),
        ({}, {"energy_source": "power"}, [True, True, False]),
        ({}, {"utilization_mean": None, "power_mean_w": None}, [True, False, False]),
    ],
)
def test_each_figure_is_held_against_what_the_load_makes_it(rest, loaded, right):
    found = checks(dataclasses.replace(REST, **rest), dataclasses.replace(LOADED, **loaded), WORK)
    assert [one.is_right for one in found] == right


def test_without_a_gpu_it_says_that_it_was_not_tried(tmp_path):
    (tmp_path / "libnvidia-ml.so.1").touch()  # no library, and it hides the machine's own, if there is one
    command, environment = [sys.executable, "-m", "benchmarks.gpu_energy"], {**os.environ, "LD_LIBRARY_PATH": str(tmp_path)}
    ended = subprocess.run(command, env=environment, cwd=ROOT, capture_output=True, text=True, check=False)
    assert ended.returncode == 0, ended.stderr
    assert "**Not tried**: There is no NVIDIA driver on this machine" in ended.stdout


@pytest.mark.gpu
def test_a_gpu_is_read_as_a_known_load_and_rest_make_it():
    try:
        _, found, _, _ = measure(5.0, 8192)
    except NotTriedError as error:
        pytest.skip(str(error))
    assert [one for one in found if not one.is_right] == []
