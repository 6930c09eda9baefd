"""The driver's facts: from NVML, otherwise from the kernel module and the CUDA library."""

import json
import subprocess
import sys

import pytest

from perfkit.telemetry.gpu.driver_facts import DriverFacts, read_driver_facts
from perfkit.telemetry.gpu.nvml import NoDriverError
from tests.telemetry.fake_nvml.library import EPOCH

SCRIPT = f"""{EPOCH}driver 550.54.15
cuda 12040
gpu
name Fake H100
persistence 0
compute_mode 3
power_limits_mw 400000 700000
sm_clock_limits 1200 1980
throttle_reasons 132
utilization 25
process 4242 1073741824
gpu
name Fake A100
mig
"""


class FakeCudaLibrary:
    def __init__(self, version, result=0):
        self.version, self.result = version, result

    def cuDriverGetVersion(self, address):
        address._obj.value = self.version
        return self.result


def no_driver():
    raise NoDriverError("The NVIDIA driver and its library have different versions")


def no_library(_):
    raise OSError("libcuda.so.1: cannot open shared object file")


def write_module_version(root, line):
    (root / "proc/driver/nvidia").mkdir(parents=True)
    (root / "proc/driver/nvidia/version").write_text(f"{line}\nGCC version:  gcc version 12.3.0 (Ubuntu 12.3.0-1ubuntu1~22.04)\n")
    return root


def test_a_machine_without_a_driver_has_no_facts(tmp_path):
    assert read_driver_facts(tmp_path, no_driver, no_library) == DriverFacts()


@pytest.mark.parametrize(
    "line",
    [
        "NVRM version: NVIDIA UNIX x86_64 Kernel Module  580.95.05  Tue Sep 23 10:11:16 UTC 2025",
        "NVRM version: NVIDIA UNIX Open Kernel Module for x86_64  580.95.05  Release Build  (dvs-builder@U22)  Tue Sep 23 09:55:41 UTC 2025",
    ],
)
def test_where_nvml_cannot_be_opened_the_kernel_module_and_the_cuda_library_say_the_versions(tmp_path, line):
    facts = read_driver_facts(write_module_version(tmp_path, line), no_driver, lambda _: FakeCudaLibrary(13000))
    assert facts == DriverFacts("580.95.05", (13, 0), unusable="The NVIDIA driver and its library have different versions")


def test_a_cuda_library_that_fails_says_nothing(tmp_path):
    assert read_driver_facts(tmp_path, no_driver, lambda _: FakeCudaLibrary(13000, result=100)) == DriverFacts()


def test_doctor_reads_driver_settings_and_packages_and_says_what_does_not_fit(fake_nvml, tmp_path):
    script, site = tmp_path / "script.txt", tmp_path / "site"
    script.write_text(SCRIPT)
    capi, info = site / "onnxruntime" / "capi", site / "onnxruntime_gpu-1.31.1.dist-info"
    capi.mkdir(parents=True)
    (capi / "build_and_package_info.py").write_text("package_name = 'onnxruntime-gpu'\n__version__ = '1.31.1'\ncuda_version = '13.0'\n")
    (capi / "libonnxruntime_providers_cuda.so").touch()
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: onnxruntime-gpu\nVersion: 1.31.1\n")
    environment = fake_nvml.environment(script)
    environment["PYTHONPATH"] += f":{site}"
    found = {}
    for name, options in {"local": [], "remote": ["--target", "http://192.0.2.1:8000"]}.items():
        command = [sys.executable, "-m", "perfkit", "doctor", "--seconds", "0.05", "--format", "json", *options]
        ended = subprocess.run(command, env=environment, cwd=tmp_path, capture_output=True, text=True, check=False)
        document = json.loads(ended.stdout)
        severities = {finding["severity"] for finding in document["findings"]}
        assert ended.returncode == (5 if "spoils" in severities else 0), ended.stderr
        found[name] = [finding for finding in document["findings"] if "GPU" in finding["subject"] or finding["subject"] == "ONNX Runtime"]
    driver = document["gpu"]["driver"]
    assert (driver["version"], driver["cuda"]) == ("550.54.15", [12, 4])
    assert driver["gpus"][0] == {
        "title": "GPU 0 (Fake H100)",
        "is_divided": False,
        "persistence": False,
        "compute_mode": "exclusive process",
        "power_limit_w": 400.0,
        "default_power_limit_w": 700.0,
        "sm_clock_limit_mhz": 1200,
        "default_sm_clock_limit_mhz": 1980,
        "throttle_reasons": ["power cap", "power brake"],
        "utilization": 0.25,
        "processes": 1,
    }
    assert [gpu["is_divided"] for gpu in driver["gpus"]] == [False, True]
    assert "ONNX Runtime is built for CUDA 13, and the driver (550.54.15) supports CUDA 12.4 at most" in [
        one["sentence"] for one in found["local"]
    ]
    assert {finding["severity"] for finding in found["local"]} == {"spoils", "disturbs"}
    assert {finding["severity"] for finding in found["remote"]} == {"note"}
    assert len(found["remote"]) == len(found["local"])
