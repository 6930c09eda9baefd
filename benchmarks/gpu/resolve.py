"""Resolves the extras for GPUs from package metadata alone: which wheels, how large, and of which CUDA.

    python -m benchmarks.gpu.resolve [--out reports/gpu-packages.json]

It needs `uv` (`pip install uv`) and a package index, and downloads no wheel. Beside the JSON it writes the same as Markdown. The
exit code is 1 if an extra cannot be resolved or mixes two versions of CUDA. `wheels.py` beside this file takes the versions and
SHA-256 sums from the report; `tests/packaging/test_gpu_extras.py` compares the report with pyproject.toml.
"""

import dataclasses
import datetime
import json
import pathlib
import shutil
import subprocess
import sys
import tomllib
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from benchmarks.report import option_parser, table_head, table_row, write_report
from perfkit.machine.gpu_packages import package_cuda_major

ROOT = pathlib.Path(__file__).parents[2]
REPORT = ROOT / "reports" / "gpu-packages.json"
PYTHON, PLATFORM = "3.12", "x86_64-manylinux_2_28"
# each set is installed together; the last one is what `make test-gpu` installs
SETS = {"cuda": ("cuda",), "cuda12": ("cuda12",), "cuda,dev": ("cuda", "dev")}

ReadLock = Callable[[Sequence[str]], str]
"""Resolves some extras to the text of a pylock.toml."""


class ResolutionError(Exception):
    """The packages cannot be resolved; the message is a sentence for the user."""


@dataclasses.dataclass(frozen=True, slots=True)
class Wheel:
    """A package in a resolved set, and the wheel that would be installed."""

    name: str
    version: str
    file: str
    size_bytes: int
    sha256: str
    cuda: int | None
    """The major version of CUDA that it belongs to; None if to none in particular."""


def parse_lock(text: str) -> list[Wheel]:
    """The wheels of a pylock.toml (PEP 751), for glibc where there are several."""
    wheels = []
    for package in tomllib.loads(text)["packages"]:
        name, version = package["name"], package["version"]
        for wheel in package["wheels"]:
            file = wheel.get("name") or wheel["url"].rpartition("/")[2]
            if "musllinux" not in file:
                major = package_cuda_major(name, version)
                wheels.append(Wheel(name, version, file, wheel["size"], wheel["hashes"]["sha256"], major))
                break
        else:
            raise ResolutionError(f"{name} {version} has no wheel for {PLATFORM}.")
    return wheels


def requirements_of(extras: Sequence[str], project: Mapping[str, Any]) -> list[str]:
    """What pyproject.toml names for perfkit itself and for some extras, in its order."""
    return [*project["dependencies"], *(line for extra in extras for line in project["optional-dependencies"][extra])]


def cuda_majors(wheels: Sequence[Wheel]) -> dict[int, list[str]]:
    """The names of the packages of each major version of CUDA; a set that fits together has one."""
    majors: dict[int, list[str]] = {}
    for wheel in wheels:
        if wheel.cuda is not None:
            majors.setdefault(wheel.cuda, []).append(wheel.name)
    return majors


def run_uv(extras: Sequence[str]) -> str:
    """Resolves some extras of this project with `uv pip compile`; raises ResolutionError."""
    program = shutil.which("uv") or str(pathlib.Path(sys.executable).with_name("uv"))
    command = [program, "pip", "compile", "--quiet", "--no-config", "pyproject.toml", "--format", "pylock.toml", "--no-header"]
    command += ["--python-version", PYTHON, "--python-platform", PLATFORM, "--only-binary", ":all:"]
    command += [word for extra in extras for word in ("--extra", extra)]
    try:
        ended = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    except FileNotFoundError:
        raise ResolutionError("uv is not installed: pip install uv") from None
    if ended.returncode:
        raise ResolutionError(f"the extras {', '.join(extras)} cannot be resolved:\n{ended.stderr.strip()}")
    return ended.stdout


def resolve(project: Mapping[str, Any], read_lock: ReadLock, today: datetime.date) -> dict[str, Any]:
    """The report: each set's requirements, its wheels and the CUDA versions among them; no address of any index."""
    sets = {}
    for name, extras in SETS.items():
        wheels = parse_lock(read_lock(extras))
        sets[name] = {
            "extras": list(extras),
            "requirements": requirements_of(extras, project),
            "size_bytes": sum(wheel.size_bytes for wheel in wheels),
            "cuda": sorted(cuda_majors(wheels)),
            "wheels": [dataclasses.asdict(wheel) for wheel in wheels],
        }
    return {"resolved": today.isoformat(), "python": PYTHON, "platform": PLATFORM, "sets": sets}


def report_lines(document: Mapping[str, Any]) -> list[str]:
    """The report as Markdown."""
    target = f"Python {document['python']} on {document['platform']}"
    lines = [
        "# Packages of the extras for GPUs",
        "",
        f"Resolved on {document['resolved']} from package metadata alone, for {target}; nothing was downloaded or installed.",
        "",
        *table_head("extras", ">wheels", ">GB", "CUDA"),
    ]
    sets = document["sets"].items()
    lines += [table_row(name, len(one["wheels"]), f"{one['size_bytes'] / 1e9:.2f}", ", ".join(map(str, one["cuda"]))) for name, one in sets]
    for name, one in sets:
        if name == ",".join(one["extras"]) and len(one["extras"]) == 1:
            lines += ["", f"## `{name}`: what belongs to CUDA", "", *table_head("package", "version", ">MB", "CUDA")]
            lines += [
                table_row(wheel["name"], wheel["version"], f"{wheel['size_bytes'] / 1e6:.1f}", wheel["cuda"])
                for wheel in one["wheels"]
                if wheel["cuda"] is not None
            ]
    return lines


def main() -> int:
    """Resolves, writes both reports, and returns the exit code."""
    options = option_parser(__doc__, out=REPORT).parse_args()
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    try:
        document = resolve(project, run_uv, datetime.datetime.now(datetime.UTC).date())
    except ResolutionError as error:
        print(error, file=sys.stderr)
        return 1
    write_report(options.out, [json.dumps(document, indent=1)])
    lines = report_lines(document)
    write_report(options.out.with_suffix(".md"), lines)
    print("\n".join(lines))
    return 1 if any(len(one["cuda"]) > 1 for one in document["sets"].values()) else 0


if __name__ == "__main__":
    sys.exit(main())
