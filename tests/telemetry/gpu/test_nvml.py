"""A driver that is absent, refuses access, or loses a GPU: each is one note, and the rest is still sampled."""

import json
import os
import subprocess
import sys

import pytest

from perfkit.telemetry.gpu.nvml import DriverFacts, NoDriverError, read_driver_facts
from tests.telemetry.fake_nvml.library import EPOCH, SEARCH_PATH, play

HEALTHY = "gpu\nname Fake A100\nuuid GPU-a\npower_mw 100000\nutilization 50\n"


def test_a_missing_driver_is_noted_and_nothing_is_sampled(tmp_path):
    (tmp_path / "libnvidia-ml.so.1").touch()  # not a library, and it hides the machine's own, if any
    environment = {name: value for name, value in os.environ.items() if name != "PERFKIT_FAKE_NVML_SCRIPT"}
    order = {"windows": [[1.0, 2.0]], "rate_per_s": 20, "idle_s": 1, "server_pids": [], "count_calls": []}
    played = play(order, {**environment, "LD_LIBRARY_PATH": str(tmp_path), "PYTHONPATH": SEARCH_PATH}, tmp_path)
    assert not played["started"]
    assert played["notes"] == ["There is no NVIDIA driver on this machine (libnvidia-ml.so.1 was not found): no GPU is sampled."]
    assert played["windows"] == [{"figures": [], "warnings": [], "series": {}}]


@pytest.mark.parametrize(
    ("script", "note"),
    [
        ("fail nvmlInitWithFlags 9", "The NVIDIA driver is installed but not loaded"),
        ("fail nvmlInitWithFlags 4", "The NVIDIA driver denies access to this user"),
        ("fail nvmlInitWithFlags 18", "The NVIDIA driver and its library have different versions, as after an update without reboot"),
        ("fail nvmlInitWithFlags 999", "NVML cannot be opened (Unknown Error)"),
        ("fail nvmlDeviceGetCount_v2 999", "NVML cannot list the GPUs (Unknown Error)"),
        ("fail nvmlDeviceGetHandleByIndex_v2 4", "The NVIDIA driver reports no GPU"),
    ],
)
def test_an_unusable_driver_is_noted_and_nothing_is_sampled(fake_nvml, script, note):
    played = fake_nvml.play(f"{script}\n{HEALTHY}")
    assert not played["started"]
    refused = " GPU 0 cannot be opened (Insufficient Permissions), and is not sampled." if "Handle" in script else ""
    assert played["notes"] == [f"{note}: no GPU is sampled.{refused}"]
    assert played["windows"][0]["figures"] == []


def test_a_driver_without_a_gpu_is_noted(fake_nvml):
    assert fake_nvml.play("driver 550\n")["notes"] == ["The NVIDIA driver reports no GPU: no GPU is sampled."]


def test_a_gpu_that_cannot_be_opened_is_noted_and_left_out(fake_nvml):
    played = fake_nvml.play("fail nvmlDeviceGetHandleByIndex_v2:0 4\n" + HEALTHY + HEALTHY.replace("GPU-a", "GPU-b"))
    assert played["notes"] == ["GPU 0 cannot be opened (Insufficient Permissions), and is not sampled."]
    assert [entry["uuid"] for entry in played["windows"][0]["figures"]] == ["GPU-b"]


def test_a_gpu_without_name_and_uuid_is_identified_by_its_index(fake_nvml):
    refused = "fail nvmlDeviceGetName 999\nfail nvmlDeviceGetUUID 3\n"
    played = fake_nvml.play("fail nvmlSystemGetDriverVersion 4\ngpu\npower_mw 100000\n" + refused)
    assert [(entry["uuid"], entry["name"], entry["driver_version"]) for entry in played["windows"][0]["figures"]] == [
        ("index 0", "unnamed", None)
    ]
    assert played["notes"] == [
        "GPU 0 (unnamed): reading its name failed (Unknown Error).",
        "GPU 0 (unnamed): the driver does not report its UUID; everything else is sampled.",
        "GPU 0 (unnamed): this user has no permission to read its driver version; everything else is sampled.",
    ]


def test_a_mig_instance_that_cannot_be_opened_is_noted_and_left_out(fake_nvml):
    script = "gpu\nname H100\nuuid GPU-a\nmig\nuuid MIG-0\nmig\nuuid MIG-1\n"
    played = fake_nvml.play(script.replace("H100", "H100\nfail nvmlDeviceGetMigDeviceHandleByIndex:0 4"))
    assert [entry["uuid"] for entry in played["windows"][0]["figures"]] == ["GPU-a", "MIG-1"]
    assert played["notes"][0] == "GPU 0 (H100): MIG instance 0 cannot be opened (Insufficient Permissions), and is not sampled."
    assert played["notes"][1].startswith("GPU 0 (H100) is divided (MIG) into 1 instance: ")


def test_unsupported_and_forbidden_quantities_are_noted_once_and_not_read_again(fake_nvml):
    refused = ["nvmlDeviceGetTotalEccErrors", "nvmlDeviceGetPcieThroughput", "nvmlDeviceGetTemperature"]
    script = HEALTHY + "".join(f"fail {call} 3\n" for call in refused)
    script += (
        "fail nvmlDeviceGetClockInfo:1 4\nfail nvmlDeviceGetComputeRunningProcesses_v3 13\nfail nvmlDeviceGetComputeRunningProcesses_v2 4\n"
    )
    played = fake_nvml.play(script, [(1, 5), (5, 10)], count_calls=refused)
    assert sorted(played["notes"]) == [
        "GPU 0 (Fake A100): the driver does not report PCIe bytes sent, PCIe bytes received; everything else is sampled.",
        "GPU 0 (Fake A100): the driver does not report temperature, corrected ECC errors, uncorrected ECC errors; everything else is sampled.",
        "GPU 0 (Fake A100): this user has no permission to read the SM clock, its processes; everything else is sampled.",
    ]
    assert played["calls"] == {"nvmlDeviceGetTotalEccErrors": 2, "nvmlDeviceGetPcieThroughput": 2, "nvmlDeviceGetTemperature": 1}
    figures = played["windows"][1]["figures"][0]
    absent = ("ecc_errors", "ecc_uncorrected_errors", "temperature_max_celsius", "sm_clock_mean_mhz", "pcie_sent_mean_bytes_per_s")
    assert [figures[name] for name in absent] == [None] * len(absent)
    assert figures["energy_j"] == pytest.approx(500)
    assert figures["utilization_mean"] == pytest.approx(0.5)


def test_an_old_driver_is_read_with_older_calls(fake_nvml):
    newer = ["nvmlDeviceGetMemoryInfo_v2", "nvmlDeviceGetCurrentClocksEventReasons", "nvmlDeviceGetFieldValues", "nvmlDeviceGetMigMode"]
    newer += ["nvmlDeviceGetComputeRunningProcesses_v3", "nvmlDeviceGetSamples"]
    script = HEALTHY + "memory_used 5\nmemory_reserved 600\nthrottle_reasons 0x40\nprocess 7 1\nprocess 8\n"
    played = fake_nvml.play(script + "".join(f"fail {call} 13\n" for call in newer))
    (window,) = played["windows"]
    (figures,) = window["figures"]
    assert played["notes"] == []
    assert (figures["memory_used_max_bytes"], figures["throttled_share"], figures["power_source"]) == (605, 1.0, "average")
    assert figures["utilization_mean"] == pytest.approx(0.5)
    assert [entry["code"] for entry in window["warnings"]] == ["gpu_throttled", "gpu_shared"]


def test_a_gpu_lost_during_the_run_is_noted_and_the_other_is_still_sampled(fake_nvml):
    script = HEALTHY + "lost_at 4.02\n" + HEALTHY.replace("GPU-a", "GPU-b")
    played = fake_nvml.play(script, [(1, 3), (3, 6), (6, 8)])
    assert played["notes"] == ["GPU 0 (Fake A100): the driver lost it (GPU is lost); it is no longer sampled."]
    before, within, after = (window["figures"][0] for window in played["windows"])
    assert before["energy_j"] == pytest.approx(200)
    assert (within["energy_j"], within["power_mean_w"], within["utilization_mean"]) == (None, 100, 0.5)
    unknown = ("power_mean_w", "utilization_mean", "throttled_share", "memory_used_max_bytes")
    assert [after[name] for name in ("uuid", *unknown)] == ["GPU-a", *[None] * len(unknown)]
    assert [[entry["message"] for entry in window["warnings"]] for window in played["windows"]] == [
        [], ["GPU 0 (Fake A100) was lost 1.1 s into the window: its means cover only the time before that."], [],
    ]  # fmt: skip
    assert [window["figures"][1]["energy_j"] for window in played["windows"]] == pytest.approx([200, 300, 200])


def test_a_temporary_failure_is_noted_once_and_reading_continues(fake_nvml):
    script = HEALTHY + "sm_clock steps 0:1000 5:1400\nfail nvmlDeviceGetClockInfo:1 999 2 4\n"
    played = fake_nvml.play(script, [(1, 8)])
    assert played["notes"] == ["GPU 0 (Fake A100): reading the SM clock failed (Unknown Error)."]
    assert played["windows"][0]["figures"][0]["sm_clock_mean_mhz"] == pytest.approx((4 * 1000 + 3 * 1400) / 7, rel=0.01)


def test_a_sample_buffer_that_stops_filling_is_replaced_by_rates(fake_nvml):
    script = "gpu\nuuid GPU-a\nutilization steps 0:20 10:80\nfail nvmlDeviceGetSamples:1 6 3\n"
    played = fake_nvml.play(script, [(1, 3), (8, 12)])
    assert played["notes"] == []
    assert played["windows"][1]["figures"][0]["utilization_mean"] == pytest.approx(0.5, abs=0.6 * 0.3 / 4)


def test_other_processes_on_the_servers_gpu_are_a_warning(fake_nvml):
    shared = HEALTHY + "process 4242 1073741824\nprocess 77 3145728\nprocess 78\n"
    script = shared + HEALTHY.replace("GPU-a", "GPU-b") + "process 77 5\nprocess 79 5\n" + HEALTHY.replace("GPU-a", "GPU-c")
    played = fake_nvml.play(script, server_pids=[4242, 4243])
    (window,) = played["windows"]
    assert [entry["used_by_server"] for entry in window["figures"]] == [True, False, False]
    message = "GPU 0 (Fake A100) was shared: besides the server, 2 processes (PID 77, 78) held 3 MiB of its memory."
    assert window["warnings"] == [{"code": "gpu_shared", "message": message}]


def test_the_servers_processes_may_be_unknown(fake_nvml):
    played = fake_nvml.play(HEALTHY + "process 7 1048576\nprocess 8\n" + HEALTHY.replace("GPU-a", "GPU-b") + "process 7\n")
    (window,) = played["windows"]
    assert [entry["used_by_server"] for entry in window["figures"]] == [None, None]
    (warning,) = window["warnings"]
    assert warning["message"] == (
        "GPU 0 (Fake A100) was used by 2 processes (PID 7, 8), which held 1 MiB of its memory; "
        "whether one of them is the server is not known."
    )


def test_uncorrectable_memory_errors_are_a_warning(fake_nvml):
    script = HEALTHY + "ecc_corrected steps 0:100 3:107\necc_uncorrected steps 0:4 4:5\n"
    window = fake_nvml.play(script, [(1, 6)])["windows"][0]
    assert (window["figures"][0]["ecc_errors"], window["figures"][0]["ecc_uncorrected_errors"]) == (8, 1)
    assert [entry["code"] for entry in window["warnings"]] == ["gpu_ecc"]


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
process 4194305 1073741824
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
        "processes": ["pid 4194305"],  # above any number that Linux gives
    }
    assert [gpu["is_divided"] for gpu in driver["gpus"]] == [False, True]
    assert "ONNX Runtime is built for CUDA 13, and the driver (550.54.15) supports CUDA 12.4 at most" in [
        one["sentence"] for one in found["local"]
    ]
    assert {finding["severity"] for finding in found["local"]} == {"spoils", "disturbs"}
    assert {finding["severity"] for finding in found["remote"]} == {"note"}
    assert len(found["remote"]) == len(found["local"])
