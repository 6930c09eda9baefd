"""The stored resolution of the extras for GPUs: it is of this pyproject.toml, and each extra is of one CUDA."""

import datetime
import json
import pathlib
import re
import tomllib

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from benchmarks.gpu.resolve import REPORT, SETS, ResolutionError, cuda_majors, parse_lock, report_lines, requirements_of, resolve

ROOT = pathlib.Path(__file__).parents[2]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
STORED = json.loads(REPORT.read_text(encoding="utf-8"))
# libraries with version numbers of their own, and their first number in each CUDA: NVIDIA's release notes of the toolkits
OWN_NUMBERS = {
    12: {"cufft": 11, "cusolver": 11, "cusparse": 12, "curand": 10},
    13: {"cufft": 12, "cusolver": 12, "cusparse": 12, "curand": 10},
}
LOCK = """
lock-version = "1.0"
[[packages]]
name = "yarl"
version = "1.25.1"
wheels = [
  { url = "https://index.example/ab/yarl-1.25.1-cp312-cp312-musllinux_1_2_x86_64.whl", size = 7, hashes = { sha256 = "aa" } },
  { url = "https://index.example/cd/yarl-1.25.1-cp312-cp312-manylinux_2_28_x86_64.whl", size = 9, hashes = { sha256 = "bb" } },
]
[[packages]]
name = "NAME"
version = "12.4"
wheels = [{ name = "named.whl", url = "https://index.example/x", size = 5, hashes = { sha256 = "cc" } }]
"""


@pytest.mark.parametrize("name", SETS)
def test_the_stored_resolution_is_of_these_requirements(name):
    stored = STORED["sets"][name]
    assert stored["requirements"] == requirements_of(SETS[name], PROJECT), "resolve anew: python -m benchmarks.gpu.resolve"
    versions = {wheel["name"]: wheel["version"] for wheel in stored["wheels"]}
    for requirement in map(Requirement, stored["requirements"]):
        assert requirement.specifier.contains(versions[canonicalize_name(requirement.name)])


@pytest.mark.parametrize(("name", "major"), [("cuda", 13), ("cuda12", 12), ("cuda,dev", 13)])
def test_every_nvidia_package_of_a_set_is_of_one_cuda(name, major):
    nvidia = {
        wheel["name"]: wheel["version"] for wheel in STORED["sets"][name]["wheels"] if re.match("nvidia-|cupy|cuda-toolkit", wheel["name"])
    }
    del nvidia["nvidia-ml-py"]  # NVML comes with the driver
    assert len(nvidia) > 10
    for package, version in nvidia.items():
        suffix, library = re.search(r"-cu(?:da)?(\d+)", package), package.removeprefix("nvidia-").partition("-cu1")[0]
        if suffix:
            assert int(suffix[1]) == major, package
        else:
            assert int(version.split(".")[0]) == OWN_NUMBERS[major].get(library, major), package
    assert STORED["sets"][name]["cuda"] == [major]


@pytest.mark.parametrize("name", SETS)
def test_a_set_holds_one_build_of_onnx_runtime_and_one_of_cupy(name):
    names = [wheel["name"] for wheel in STORED["sets"][name]["wheels"]]
    assert len(names) == len(set(names))
    assert [one for one in names if one.startswith("onnxruntime")] == ["onnxruntime-gpu"]
    assert len([one for one in names if one.startswith("cupy")]) == 1


def test_the_stored_resolution_names_wheels_with_their_sums_and_no_index():
    assert "://" not in REPORT.read_text(encoding="utf-8")
    for one in STORED["sets"].values():
        assert one["size_bytes"] == sum(wheel["size_bytes"] for wheel in one["wheels"])
        assert all(re.fullmatch("[0-9a-f]{64}", wheel["sha256"]) and wheel["file"].endswith(".whl") for wheel in one["wheels"])
    assert REPORT.with_suffix(".md").read_text(encoding="utf-8") == "\n".join(report_lines(STORED)) + "\n"


def test_of_several_wheels_the_one_for_glibc_is_taken():
    yarl, other = parse_lock(LOCK)
    assert (yarl.file, yarl.size_bytes, yarl.sha256) == ("yarl-1.25.1-cp312-cp312-manylinux_2_28_x86_64.whl", 9, "bb")
    assert other.file == "named.whl"


def test_a_package_without_a_wheel_for_the_machine_is_an_error():
    with pytest.raises(ResolutionError, match=r"yarl 1.25.1 has no wheel"):
        parse_lock(LOCK.replace("manylinux_2_28", "musllinux_1_3"))


def test_cupy_for_cuda_12_beside_libraries_for_cuda_13_is_a_mixture():
    mixed = LOCK.replace("yarl", "nvidia-cudnn-cu13").replace("NAME", "cupy-cuda12x")
    assert cuda_majors(parse_lock(mixed)) == {12: ["cupy-cuda12x"], 13: ["nvidia-cudnn-cu13"]}
    document = resolve(PROJECT, lambda _: mixed, datetime.date(2026, 1, 2))
    assert document["sets"]["cuda"]["cuda"] == [12, 13]
    assert "| cuda | 2 | 0.00 | 12, 13 |" in report_lines(document)
