"""The Python packages for NVIDIA GPUs, and which CUDA each was built for; read from their files and metadata, none is imported."""

import contextlib
import dataclasses
import importlib.metadata
import pathlib
import re
import subprocess
from collections.abc import Callable, Mapping, Sequence

from perfkit.machine.cpus import read_system_file

_SUFFIX = re.compile(r"-cu(?:da)?(\d\d)x?(?:-|$)")
# numbered by themselves; without a suffix they exist from CUDA 13 on (CUDA Toolkit 13.0 release notes, table of components)
_OWN_NUMBERS = frozenset({"nvidia-cufft", "nvidia-cufile", "nvidia-curand", "nvidia-cusolver", "nvidia-cusparse"})
_FIRST_WITHOUT_SUFFIX = 13
# the first of ONNX Runtime's builds on PyPI for each CUDA: ONNX Runtime's page on the CUDA provider, and its extra `cuda`
_ONNXRUNTIME = ((1, 27, 13), (1, 19, 12), (0, 0, 11))
# besides those of the toolkit's major version; ONNX Runtime's builds for CUDA 12 and 13 need these
_PROVIDER_LIBRARIES = ("libcurand.so.10", "libcudnn.so.9")


def package_cuda_major(name: str, version: str) -> int | None:
    """The major version of CUDA that a package belongs to; None if it belongs to none in particular.

    CuPy's packages and NVIDIA's up to CUDA 12 name it (`cupy-cuda13x`, `nvidia-cublas-cu12`). NVIDIA's later packages have no
    suffix, except cuDNN and a few others, and most have the version of the toolkit (`nvidia-cublas 13.2`).
    """
    if match := _SUFFIX.search(name):
        return int(match[1])
    if name in _OWN_NUMBERS:
        return _FIRST_WITHOUT_SUFFIX
    numbers = [int(number) for number in re.findall(r"\d+", version)[:2]] + [0, 0]
    if name == "onnxruntime-gpu":
        return next(cuda for major, minor, cuda in _ONNXRUNTIME if (numbers[0], numbers[1]) >= (major, minor))
    follows_toolkit = name.startswith("nvidia-") and name != "nvidia-ml-py"  # which has the driver's version
    return numbers[0] if follows_toolkit or name in {"cuda-toolkit", "cuda-python", "cuda-bindings"} else None


@dataclasses.dataclass(frozen=True, slots=True)
class OnnxRuntimeBuild:
    """The ONNX Runtime that an import finds."""

    package: str
    """The package whose files are there, such as `onnxruntime-gpu`."""
    version: str
    cuda: int | None = None
    """The major version of CUDA that it was built for; None for a build for CPUs."""
    has_cuda_provider: bool = False
    """Whether it lists CUDAExecutionProvider: a build for CUDA, with the provider's library."""
    packages_in_folder: tuple[str, ...] = ()
    """The installed packages of ONNX Runtime that share this folder."""
    missing_libraries: tuple[str, ...] = ()
    """The libraries that its CUDA provider needs, and the loader would not find."""


@dataclasses.dataclass(frozen=True, slots=True)
class CupyBuild:
    """The CuPy that an import finds."""

    packages: tuple[str, ...]
    """All installed packages of CuPy, the one that is found first."""
    version: str
    cuda: int | None
    missing_libraries: tuple[str, ...] = ()
    """What its compiler needs, and it would not find."""


@dataclasses.dataclass(frozen=True, slots=True)
class GpuPackages:
    """The installed packages for GPUs; None for one that is not installed."""

    onnxruntime: OnnxRuntimeBuild | None = None
    cupy: CupyBuild | None = None
    versions: Mapping[str, str] = dataclasses.field(default_factory=dict)
    """All packages that belong to one CUDA, and their versions."""


FindLibrary = Callable[[str, Sequence[pathlib.Path]], bool]
"""Whether a shared library is in NVIDIA's packages of some site folders, or the loader finds it."""


def read_gpu_packages(paths: Sequence[str], find_library: FindLibrary) -> GpuPackages:
    """Reads the packages in some folders of the import path, the first of which wins where a package is in several."""
    found: dict[str, tuple[str, pathlib.Path]] = {}
    in_folder: dict[pathlib.Path, list[str]] = {}
    for path in dict.fromkeys(paths):
        for one in importlib.metadata.distributions(path=[path]):
            name, folder = re.sub(r"[-_.]+", "-", one.metadata["Name"] or "").lower(), pathlib.Path(path)
            found.setdefault(name, (one.version, folder))
            if name.startswith("onnxruntime"):
                in_folder.setdefault(folder, []).append(name)
    versions = {name: version for name, (version, _) in sorted(found.items()) if package_cuda_major(name, version)}
    onnxruntime = next((_read_onnxruntime(folder, names, found, find_library) for folder, names in in_folder.items()), None)
    return GpuPackages(onnxruntime, _read_cupy(found, find_library), versions)


def _read_onnxruntime(
    folder: pathlib.Path, names: Sequence[str], found: Mapping[str, tuple[str, pathlib.Path]], find_library: FindLibrary
) -> OnnxRuntimeBuild:
    """Reads what the build says of itself in `build_and_package_info.py`, which the package that was installed last has written."""
    capi = folder / "onnxruntime" / "capi"
    info = dict(re.findall(r"^(\w+)\s*=\s*'([^']*)'", read_system_file(capi / "build_and_package_info.py") or "", re.MULTILINE))
    package = info.get("package_name", names[0])
    version = info.get("__version__") or found[package if package in found else names[0]][0]
    is_for_cuda = "cuda_version" in info or package == "onnxruntime-gpu"
    cuda = (
        (int(info["cuda_version"].split(".")[0]) if info.get("cuda_version") else package_cuda_major(package, version))
        if is_for_cuda
        else None
    )
    has_provider = is_for_cuda and (capi / "libonnxruntime_providers_cuda.so").exists()
    needed = [*(f"{name}.so.{cuda}" for name in ("libcublasLt", "libcublas", "libcudart")), *_PROVIDER_LIBRARIES] if has_provider else []
    missing = tuple(name for name in needed if not find_library(name, [folder]))
    return OnnxRuntimeBuild(package, version, cuda, has_provider, tuple(sorted(names)), missing)


def _read_cupy(found: Mapping[str, tuple[str, pathlib.Path]], find_library: FindLibrary) -> CupyBuild | None:
    packages = tuple(name for name in found if re.fullmatch(r"cupy(-cuda.+)?", name))
    if not packages:
        return None
    version, _ = found[packages[0]]
    cuda = package_cuda_major(packages[0], version)
    sites = list(dict.fromkeys(folder for _, folder in found.values()))
    missing = () if cuda is None or find_library(f"libnvrtc.so.{cuda}", sites) else (f"libnvrtc.so.{cuda}",)
    return CupyBuild(packages, version, cuda, missing)


def library_finder(environment: Mapping[str, str], loader_cache: str) -> FindLibrary:
    """Looks in NVIDIA's packages, in LD_LIBRARY_PATH and CUDA_PATH, and in the loader's cache (the output of `ldconfig -p`)."""
    folders = [pathlib.Path(folder) for folder in environment.get("LD_LIBRARY_PATH", "").split(":") if folder]
    folders += [pathlib.Path(environment[key]) / "lib64" for key in ("CUDA_PATH", "CUDA_HOME") if environment.get(key)]
    cached = {line.split()[0] for line in loader_cache.splitlines() if "=>" in line}

    def find(name: str, sites: Sequence[pathlib.Path]) -> bool:
        return (
            name in cached
            or any((folder / name).exists() for folder in folders)
            or any(next(site.glob(f"nvidia/*/lib/{name}"), None) for site in sites)
        )

    return find


def read_loader_cache() -> str:
    """What `ldconfig -p` prints; empty on systems without it."""
    for program in ("/sbin/ldconfig", "/usr/sbin/ldconfig"):
        with contextlib.suppress(OSError, subprocess.SubprocessError):
            return subprocess.run([program, "-p"], capture_output=True, text=True, check=True, timeout=10).stdout
    return ""
