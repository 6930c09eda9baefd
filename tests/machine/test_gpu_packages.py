"""Which CUDA a package was built for, and what is installed, in site folders that the tests write."""

import pytest

from perfkit.machine.gpu_packages import (
    CupyBuild,
    GpuPackages,
    OnnxRuntimeBuild,
    library_finder,
    package_cuda_major,
    read_gpu_packages,
)


@pytest.mark.parametrize(
    ("name", "version", "major"),
    [
        ("cupy-cuda12x", "14.2.0", 12),
        ("cupy-cuda13x", "14.2.0", 13),
        ("nvidia-cublas-cu12", "12.9.2.10", 12),
        ("nvidia-cudnn-cu13", "9.28.1.4", 13),
        ("nvidia-cublas", "13.10.0.20", 13),
        ("nvidia-cuda-nvrtc", "13.5.37", 13),
        ("nvidia-cufft", "12.5.0.14", 13),
        ("nvidia-curand", "10.4.5.25", 13),
        ("nvidia-nvjitlink", "14.0.1", 14),
        ("cuda-toolkit", "12.9.2.0", 12),
        ("tensorrt-cu13", "10.14.1", 13),
        ("nvidia-ml-py", "13.615.71", None),
        ("cuda-pathfinder", "1.9.0", None),
        ("numpy", "2.5.5", None),
        # ONNX Runtime's page on the CUDA provider, and from 1.21 on the packages that its extra `cuda` names
        ("onnxruntime-gpu", "1.18.1", 11),
        ("onnxruntime-gpu", "1.19.0", 12),
        ("onnxruntime-gpu", "1.26.0", 12),
        ("onnxruntime-gpu", "1.27.0", 13),
        ("onnxruntime-gpu", "1.31.1", 13),
    ],
)
def test_a_package_belongs_to_the_cuda_that_its_name_or_version_says(name, version, major):
    assert package_cuda_major(name, version) == major


def install(site, name, version):
    """Writes the metadata of a package into a site folder."""
    info = site / f"{name.replace('-', '_')}-{version}.dist-info"
    info.mkdir(parents=True)
    (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n")


def install_onnxruntime(site, name, version, cuda=None):
    install(site, name, version)
    capi = site / "onnxruntime" / "capi"
    capi.mkdir(parents=True, exist_ok=True)
    lines = [f"package_name = '{name}'", f"__version__ = '{version}'", *([f"cuda_version = '{cuda}'"] if cuda else [])]
    (capi / "build_and_package_info.py").write_text("\n".join(lines) + "\n")
    if cuda:
        (capi / "libonnxruntime_providers_cuda.so").touch()


def install_library(site, path):
    (site / path).parent.mkdir(parents=True, exist_ok=True)
    (site / path).touch()


def read(*sites, environment=None, cache=""):
    return read_gpu_packages([str(site) for site in sites], library_finder(environment or {}, cache))


def test_without_packages_for_gpus_nothing_is_found(tmp_path):
    install(tmp_path, "numpy", "2.5.5")
    assert read(tmp_path) == GpuPackages()


def test_a_build_for_cpus_has_no_provider_and_needs_no_library(tmp_path):
    install_onnxruntime(tmp_path, "onnxruntime", "1.31.1")
    assert read(tmp_path).onnxruntime == OnnxRuntimeBuild("onnxruntime", "1.31.1", packages_in_folder=("onnxruntime",))


@pytest.mark.parametrize(
    ("version", "cuda", "libraries"),
    [
        (
            "1.31.1",
            "13.0",
            ["cu13/lib/libcublas.so.13", "cu13/lib/libcublasLt.so.13", "cu13/lib/libcudart.so.13", "cu13/lib/libcurand.so.10"],
        ),
        (
            "1.26.0",
            "12.8",
            [
                "cublas/lib/libcublas.so.12",
                "cublas/lib/libcublasLt.so.12",
                "cuda_runtime/lib/libcudart.so.12",
                "curand/lib/libcurand.so.10",
            ],
        ),
    ],
)
def test_libraries_of_nvidias_packages_are_found_in_the_layout_of_each_cuda(tmp_path, version, cuda, libraries):
    install_onnxruntime(tmp_path, "onnxruntime-gpu", version, cuda)
    missing = read(tmp_path).onnxruntime.missing_libraries
    assert set(missing) == {path.rpartition("/")[2] for path in libraries} | {"libcudnn.so.9"}
    for library in libraries:
        install_library(tmp_path, f"nvidia/{library}")
    found = read(tmp_path).onnxruntime
    assert (found.cuda, found.has_cuda_provider, found.missing_libraries) == (int(cuda[:2]), True, ("libcudnn.so.9",))
    install_library(tmp_path, "nvidia/cudnn/lib/libcudnn.so.9")
    assert read(tmp_path).onnxruntime.missing_libraries == ()


def test_a_library_that_the_loader_finds_is_not_missing(tmp_path):
    site, folder, toolkit = tmp_path / "site", tmp_path / "folder", tmp_path / "cuda"
    install_onnxruntime(site, "onnxruntime-gpu", "1.31.1", "13.0")
    for path in (folder / "libcublas.so.13", toolkit / "lib64" / "libcurand.so.10"):
        install_library(path.parent, path.name)
    cache = "2 libs found in cache `/etc/ld.so.cache'\n\tlibcudnn.so.9 (libc6,x86-64) => /usr/lib/libcudnn.so.9\n"
    found = read(site, environment={"LD_LIBRARY_PATH": f":{folder}", "CUDA_PATH": str(toolkit)}, cache=cache)
    assert found.onnxruntime.missing_libraries == ("libcublasLt.so.13", "libcudart.so.13")


def test_two_builds_in_one_folder_are_told_and_the_files_say_which_is_in_effect(tmp_path):
    install_onnxruntime(tmp_path, "onnxruntime-gpu", "1.31.1", "13.0")
    install_onnxruntime(tmp_path, "onnxruntime", "1.32.0")
    found = read(tmp_path).onnxruntime
    assert (found.package, found.version, found.cuda) == ("onnxruntime", "1.32.0", None)
    assert found.packages_in_folder == ("onnxruntime", "onnxruntime-gpu")


def test_of_builds_in_two_folders_the_first_on_the_import_path_counts(tmp_path):
    first, second = tmp_path / "first", tmp_path / "second"
    install_onnxruntime(first, "onnxruntime-gpu", "1.31.1", "13.0")
    install_onnxruntime(second, "onnxruntime", "1.32.0")
    install_library(second, "nvidia/cudnn/lib/libcudnn.so.9")  # ONNX Runtime does not look there
    found = read(first, second).onnxruntime
    assert (found.package, found.packages_in_folder) == ("onnxruntime-gpu", ("onnxruntime-gpu",))
    assert "libcudnn.so.9" in found.missing_libraries


def test_a_build_for_cuda_without_the_providers_library_lists_no_provider(tmp_path):
    install_onnxruntime(tmp_path, "onnxruntime-gpu", "1.26.0", "12.8")
    (tmp_path / "onnxruntime" / "capi" / "libonnxruntime_providers_cuda.so").unlink()
    found = read(tmp_path).onnxruntime
    assert (found.cuda, found.has_cuda_provider, found.missing_libraries) == (12, False, ())


def test_cupy_finds_its_compiler_in_any_site_folder(tmp_path):
    first, second = tmp_path / "first", tmp_path / "second"
    install(first, "cupy-cuda13x", "14.2.0")
    install(second, "nvidia-cuda-nvrtc", "13.5.37")
    assert read(first, second).cupy == CupyBuild(("cupy-cuda13x",), "14.2.0", 13, ("libnvrtc.so.13",))
    install_library(second, "nvidia/cu13/lib/libnvrtc.so.13")
    found = read(first, second)
    assert found.cupy.missing_libraries == ()
    assert found.versions == {"cupy-cuda13x": "14.2.0", "nvidia-cuda-nvrtc": "13.5.37"}


def test_all_installed_packages_of_cupy_are_told(tmp_path):
    install(tmp_path, "cupy-cuda12x", "14.2.0")
    install(tmp_path, "cupy-cuda13x", "14.2.0")
    assert set(read(tmp_path).cupy.packages) == {"cupy-cuda12x", "cupy-cuda13x"}
