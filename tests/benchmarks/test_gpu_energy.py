import dataclasses
import os
import subprocess
import sys

import pytest

from benchmarks.gpu_energy import NotMeasuredError, Work, checks, measure
from perfkit.figures.resources import GpuFigures
from tests.telemetry.fake_nvml.library import ROOT

WORK = Work(0, 10 * 10**9, 10**15, "torch")
REST = GpuFigures("GPU-a", "A100", "nvml", utilization_mean=0.0, power_mean_w=60.0)
LOADED = dataclasses.replace(
    REST, utilization_mean=0.99, power_mean_w=300.0, energy_j=3060.0, energy_source="counter", power_source="instant"
)


@pytest.mark.parametrize(
    ("rest", "loaded", "expected"),
    [
        ({}, {}, [True, True, True]),
        ({"utilization_mean": 0.2}, {}, [False, True, True]),
        ({}, {"utilization_mean": 0.9}, [True, False, True]),
        ({}, {"energy_j": 3200.0}, [True, True, False]),
        ({}, {"energy_source": "power"}, [True, True, False]),
        ({}, {"utilization_mean": None, "power_mean_w": None}, [True, False, False]),
    ],
)
def test_each_figure_is_compared_with_the_required_one(rest, loaded, expected):
    results = checks(dataclasses.replace(REST, **rest), dataclasses.replace(LOADED, **loaded), WORK)
    assert [check.is_met for check in results] == expected


@pytest.mark.parametrize(("energy_j", "is_met"), [(3050.0, True), (3070.0, False), (2930.0, False)])
def test_a_narrower_tolerance_of_the_energy_can_be_asked_for(energy_j, is_met):
    *_, energy = checks(REST, dataclasses.replace(LOADED, energy_j=energy_j), WORK, 0.02)
    assert (energy.required, energy.is_met) == ("within 2%", is_met)


def test_without_a_gpu_the_report_says_that_nothing_was_measured(tmp_path):
    (tmp_path / "libnvidia-ml.so.1").touch()  # no library, and it hides the machine's own, if there is one
    command, environment = [sys.executable, "-m", "benchmarks.gpu_energy"], {**os.environ, "LD_LIBRARY_PATH": str(tmp_path)}
    ended = subprocess.run(command, env=environment, cwd=ROOT, capture_output=True, text=True, check=False)
    assert ended.returncode == 0, ended.stderr
    assert "**Not measured**: There is no NVIDIA driver on this machine" in ended.stdout


@pytest.mark.gpu
def test_readings_of_a_real_gpu_meet_the_requirements():
    try:
        _, results, _, _ = measure(5.0, 8192)
    except NotMeasuredError as error:
        pytest.skip(str(error))
    assert [check for check in results if not check.is_met] == []
