"""The findings about a GPU, its driver and its packages, each from tables of what is installed and what the driver answers."""

import dataclasses

import pytest

from perfkit.doctor import Severity, find_gpu_problems
from perfkit.machine.gpu_packages import CupyBuild, GpuPackages, OnnxRuntimeBuild
from perfkit.telemetry.gpu.nvml import DriverFacts
from perfkit.telemetry.gpu.queries import GpuSettings

GPU = GpuSettings(
    "GPU 0 (Fake H100)",
    persistence=True,
    compute_mode="default",
    power_limit_w=700,
    default_power_limit_w=700,
    sm_clock_limit_mhz=1980,
    default_sm_clock_limit_mhz=1980,
    utilization=0.0,
    processes=(),
)
DRIVER = DriverFacts("580.95.05", (13, 0), (GPU,))
ONNXRUNTIME = OnnxRuntimeBuild("onnxruntime-gpu", "1.31.1", 13, has_cuda_provider=True, packages_in_folder=("onnxruntime-gpu",))
CUPY = CupyBuild(("cupy-cuda13x",), "14.2.0", 13)
PACKAGES = GpuPackages(ONNXRUNTIME, CUPY)
FOR_CPUS = OnnxRuntimeBuild("onnxruntime", "1.31.1", packages_in_folder=("onnxruntime",))


def changed(onnxruntime=None, cupy=None):
    return GpuPackages(dataclasses.replace(ONNXRUNTIME, **onnxruntime or {}), dataclasses.replace(CUPY, **cupy or {}))


def test_a_gpu_with_a_driver_and_packages_that_fit_has_no_findings():
    assert find_gpu_problems(DRIVER, PACKAGES) == []


def test_what_the_driver_does_not_say_is_no_finding():
    silent = DriverFacts("580.95.05", None, (GpuSettings("GPU 0 (unnamed)"),))
    assert find_gpu_problems(silent, PACKAGES) == []


def test_a_machine_without_a_gpu_has_no_findings_about_the_build_for_cpus():
    assert find_gpu_problems(DriverFacts(), GpuPackages(FOR_CPUS)) == []


@pytest.mark.parametrize(
    ("packages", "severity", "sentence", "remedy"),
    [
        (GpuPackages(FOR_CPUS), Severity.DISTURBS, "onnxruntime 1.31.1 is built for CPUs and lists no CUDA provider", "'.[cuda]'"),
        (
            changed({"packages_in_folder": ("onnxruntime", "onnxruntime-gpu"), "package": "onnxruntime"}),
            Severity.SPOILS,
            "onnxruntime and onnxruntime-gpu are installed in one folder and overwrite each other's files; those of onnxruntime 1.31.1",
            "pip uninstall -y onnxruntime onnxruntime-gpu, then pip install '.[cuda]' in perfkit's repository",
        ),
        (changed({"has_cuda_provider": False}), Severity.SPOILS, "lists no CUDA provider: its library is not installed", "'.[cuda]'"),
        (changed({"missing_libraries": ("libcudnn.so.9",)}), Severity.SPOILS, "cuDNN is missing (libcudnn.so.9)", "'.[cuda]'"),
        (
            changed({"missing_libraries": ("libcublas.so.13", "libcurand.so.10")}),
            Severity.SPOILS,
            "libraries of CUDA 13 are missing (libcublas.so.13, libcurand.so.10)",
            "'.[cuda]'",
        ),
        (changed(cupy={"missing_libraries": ("libnvrtc.so.13",)}), Severity.SPOILS, "its compiler is missing", "'cupy-cuda13x[ctk]'"),
        (
            changed(cupy={"packages": ("cupy-cuda13x", "cupy-cuda12x")}),
            Severity.SPOILS,
            "cupy-cuda12x and cupy-cuda13x are installed beside each other",
            "pip uninstall -y cupy-cuda12x cupy-cuda13x",
        ),
        (
            changed(cupy={"packages": ("cupy-cuda12x",), "cuda": 12}),
            Severity.DISTURBS,
            "CuPy is built for CUDA 12 and ONNX Runtime is built for CUDA 13",
            "'.[cuda]'",
        ),
        (
            changed({"cuda": 12}),
            Severity.DISTURBS,
            "CuPy is built for CUDA 13 and ONNX Runtime is built for CUDA 12",
            "'.[cuda12]'",
        ),
    ],
)
def test_packages_that_do_not_fit_are_a_finding_with_a_remedy(packages, severity, sentence, remedy):
    (finding,) = find_gpu_problems(DRIVER, packages)
    assert finding.severity is severity
    assert sentence in finding.sentence
    assert remedy in finding.remedy


@pytest.mark.parametrize(
    ("version", "cuda", "sentence"),
    [
        ("550.54.15", (12, 4), "ONNX Runtime is built for CUDA 13, and the driver (550.54.15) supports CUDA 12.4 at most"),
        ("575.57.08", None, "the driver (575.57.08) is older than 580"),
        (None, (12, 9), "the driver supports CUDA 12.9 at most"),
        ("580.95.05", None, None),
        ("550.54.15", (13, 0), None),  # a compatibility package brings a newer CUDA library
        ("590.10", (14, 0), None),
    ],
)
def test_a_driver_too_old_for_the_packages_cuda_spoils_a_measurement(version, cuda, sentence):
    found = find_gpu_problems(DriverFacts(version, cuda, (GPU,)), GpuPackages(ONNXRUNTIME))
    assert [(finding.severity, finding.subject) for finding in found] == ([(Severity.SPOILS, "GPU driver")] if sentence else [])
    if sentence:
        assert sentence in found[0].sentence
        assert "update the driver to 580 or newer" in found[0].remedy
        assert "'.[cuda12]'" in found[0].remedy


def test_under_an_old_driver_the_remedy_is_the_extra_for_it():
    found = find_gpu_problems(DriverFacts("550.54.15", (12, 4), (GPU,)), changed({"missing_libraries": ("libcudnn.so.9",)}))
    assert [finding.remedy for finding in found if "cuDNN" in finding.sentence] == ["pip install '.[cuda12]' in perfkit's repository"]
    (finding,) = find_gpu_problems(DriverFacts("550.54.15", (12, 4), (GPU,)), GpuPackages(FOR_CPUS))
    assert "pip uninstall -y onnxruntime, then pip install '.[cuda12]'" in finding.remedy


@pytest.mark.parametrize(("version", "spoils"), [("520.61.05", True), ("525.60.13", False), ("570.10", False)])
def test_packages_for_cuda_12_need_driver_525(version, spoils):
    packages = GpuPackages(dataclasses.replace(ONNXRUNTIME, version="1.26.0", cuda=12))
    assert bool(find_gpu_problems(DriverFacts(version, None, (GPU,)), packages)) is spoils


@pytest.mark.parametrize(
    ("setting", "severity", "sentence"),
    [
        ({"persistence": False}, Severity.DISTURBS, "persistence mode is off"),
        ({"compute_mode": "prohibited"}, Severity.SPOILS, "its compute mode forbids all computation"),
        ({"compute_mode": "exclusive process"}, Severity.DISTURBS, "its compute mode (exclusive process) lets one process use it"),
        ({"is_divided": True}, Severity.DISTURBS, "it is divided (MIG)"),
        ({"throttle_reasons": ("power cap", "power brake")}, Severity.DISTURBS, "its clocks are lowered now (power cap, power brake)"),
        ({"sm_clock_limit_mhz": 1200}, Severity.DISTURBS, "its application clock is set to 1,200 MHz, below the default of 1,980 MHz"),
        ({"power_limit_w": 400}, Severity.DISTURBS, "its power limit is 400 W, below the default of 700 W"),
        (
            {"utilization": 0.3, "processes": ("a (pid 1)", "b (pid 2)", "c (pid 3)", "pid 4")},
            Severity.DISTURBS,
            "other work uses it to 30%; its memory is held by a (pid 1), b (pid 2), c (pid 3), …",
        ),
        ({"utilization": 0.9, "processes": ("pid 77",)}, Severity.SPOILS, "other work uses it to 90%; its memory is held by pid 77"),
        ({"utilization": 0.9, "processes": None}, Severity.SPOILS, "other work uses it to 90%"),
    ],
)
def test_a_setting_of_the_gpu_that_affects_figures_is_a_finding_with_a_remedy(setting, severity, sentence):
    driver = dataclasses.replace(DRIVER, gpus=(dataclasses.replace(GPU, **setting),))
    (finding,) = find_gpu_problems(driver, PACKAGES)
    assert (finding.severity, finding.subject) == (severity, GPU.title)
    assert finding.sentence.startswith(sentence)
    assert finding.remedy


BROKEN = changed({"missing_libraries": ("libcudnn.so.9",)})


def test_for_a_server_elsewhere_the_findings_are_notes():
    assert [finding.severity for finding in find_gpu_problems(DRIVER, BROKEN)] == [Severity.SPOILS]
    assert [finding.severity for finding in find_gpu_problems(DRIVER, BROKEN, target_is_local=False)] == [Severity.NOTE]


def test_without_a_gpu_the_findings_about_packages_are_notes():
    assert [finding.severity for finding in find_gpu_problems(DriverFacts(), BROKEN)] == [Severity.NOTE]


def test_a_driver_that_lists_no_gpu_is_a_note_with_the_reason():
    reason = "The NVIDIA driver and its library have different versions"
    (finding,) = find_gpu_problems(DriverFacts("580.95.05", unusable=reason), GpuPackages())
    assert (finding.severity, finding.subject) == (Severity.NOTE, "GPU driver")
    assert finding.sentence == f"a driver is loaded (580.95.05), but NVML lists no GPU: {reason}"
