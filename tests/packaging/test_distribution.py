"""The built sdist and wheel: installed outside the checkout, they measure without its files.

That two builds are alike, and that tests of the sdist pass, is shown by `python -m benchmarks.release`.
"""

import email
import json
import os
import pathlib
import re
import shutil
import subprocess
import sys
import sysconfig
import tarfile
import zipfile
from typing import NamedTuple

import pytest

import perfkit
from perfkit.installation import REPOSITORY

ROOT = pathlib.Path(__file__).parents[2]
GENERATED = {"PKG-INFO", "setup.cfg", "build", "dist", "site", "perfkit.egg-info"}
CHECKED_OUT_S, EPOCH_S = 1_700_000_000, 1_600_000_000


class Installed(NamedTuple):
    python: pathlib.Path
    perfkit: pathlib.Path
    sdist: pathlib.Path
    """The unpacked sdist, without its packages."""
    folder: pathlib.Path
    dist: pathlib.Path
    """The sdist and the wheel."""


def source_files():
    """The paths of all files of the source: those under version control and new ones, or what the sdist has that this is run in."""
    if (ROOT / ".git").exists():
        listed = run("git", "ls-files", "-z", "--cached", "--others", "--exclude-standard", cwd=ROOT).split("\0")
        return {path for path in listed if path and (ROOT / path).exists()}
    hidden = {".venv", ".venv-gpu", ".mypy_cache", ".ruff_cache", ".pytest_cache", ".hypothesis", "__pycache__"}
    found = (path.relative_to(ROOT) for path in ROOT.rglob("*") if path.is_file())
    return {str(path) for path in found if path.parts[0] not in GENERATED and not hidden & {*path.parts}}


def copy_source(folder):
    """Copy the files as a checkout of another time would have them."""
    for name in source_files():
        copy = folder / name
        copy.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(ROOT / name, copy, follow_symlinks=False)
        os.utime(copy, (CHECKED_OUT_S, CHECKED_OUT_S), follow_symlinks=False)


def ended(*command, cwd, **environment):
    """How a command ends without the checkout on its path."""
    inherited = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    return subprocess.run(list(map(str, command)), cwd=cwd, env={**inherited, **environment}, capture_output=True, text=True, check=False)


def run(*command, cwd, **environment):
    """What such a command prints; fails with its output."""
    end = ended(*command, cwd=cwd, **environment)
    assert end.returncode == 0, f"{command}:\n{end.stdout}\n{end.stderr}"
    return end.stdout


@pytest.fixture(scope="module")
def installed(tmp_path_factory):
    """A virtual environment with the wheel; its dependencies are those of the environment that runs the tests."""
    folder = tmp_path_factory.mktemp("distribution")
    environment, source, dist = folder / "venv", folder / "source", folder / "dist"
    copy_source(source)
    # without a kind, the wheel is made from the sdist
    run(sys.executable, "-m", "build", "--no-isolation", "--outdir", dist, source, cwd=folder, SOURCE_DATE_EPOCH=str(EPOCH_S))
    shutil.rmtree(source)
    run(sys.executable, "-m", "venv", "--without-pip", environment, cwd=folder)
    python = environment / "bin" / "python"
    (wheel,), (sdist,) = dist.glob("*.whl"), dist.glob("*.tar.gz")
    run(sys.executable, "-m", "pip", "--python", python, "install", "--quiet", "--no-deps", "--no-index", "--no-compile", wheel, cwd=folder)
    packages = environment / "lib" / f"python{sys.version_info.major}.{sys.version_info.minor}" / "site-packages"
    dependencies = [path for path in map(pathlib.Path, sys.path) if path.name == "site-packages"] or [
        pathlib.Path(sysconfig.get_path("purelib"))
    ]
    (packages / "dependencies.pth").write_text("".join(f"{path}\n" for path in dependencies))
    with tarfile.open(sdist) as archive:
        archive.extractall(folder, filter="data")
    (unpacked,) = folder.glob("perfkit-*")
    for package in ("perfkit", "server_stub"):
        shutil.rmtree(unpacked / package)
    return Installed(python, environment / "bin" / "perfkit", unpacked, folder, dist)


def test_nothing_in_an_sdist_is_of_the_time_or_the_user_of_its_build(installed):
    assert sorted(path.name for path in installed.dist.iterdir()) == [
        f"perfkit-{perfkit.__version__}-py3-none-any.whl",
        f"perfkit-{perfkit.__version__}.tar.gz",
    ]
    (path,) = installed.dist.glob("*.tar.gz")
    flags, *time_bytes = path.read_bytes()[3:8]  # RFC 1952, section 2.3: no name of a file, and the time of the compression
    assert (flags, int.from_bytes(bytes(time_bytes), "little")) == (0, EPOCH_S)
    with tarfile.open(path) as archive:
        members = archive.getmembers()
    assert {(member.mtime, member.uid, member.gid, member.uname, member.gname) for member in members} == {(EPOCH_S, 0, 0, "", "")}
    assert {member.mode for member in members} == {0o644, 0o755}
    assert {key for member in members for key in member.pax_headers} <= {"path"}
    parts = [member.name.split("/") for member in members]
    assert parts == sorted(parts), "not in the order in which the folders were read"


def test_the_sdist_has_every_file_of_the_source(installed):
    with tarfile.open(next(installed.dist.glob("*.tar.gz"))) as archive:
        members = archive.getmembers()
    found = {member.name.partition("/")[2] for member in members if member.isfile()}
    linked = tuple(f"perfkit/{path.name}/" for path in (ROOT / "perfkit").iterdir() if path.name in {"docs", "scenarios"})
    kept = {path for path in found if path.split("/")[0] not in GENERATED and not path.startswith(linked)}
    assert kept == {path for path in source_files() if not (ROOT / path).is_dir() and not path.startswith(linked)}


def test_the_wheel_names_its_version_licence_and_addresses_and_has_only_the_packages(installed):
    with zipfile.ZipFile(next(installed.dist.glob("*.whl"))) as archive:
        names = archive.namelist()
        metadata = email.message_from_bytes(archive.read(f"perfkit-{perfkit.__version__}.dist-info/METADATA"))
    assert {name.split("/")[0] for name in names} == {"perfkit", "server_stub", f"perfkit-{perfkit.__version__}.dist-info"}
    assert [name for name in names if name.startswith(("perfkit/docs/", "perfkit/scenarios/")) and name.endswith(".py")] == []
    assert metadata["Version"] == perfkit.__version__
    assert metadata["Description-Content-Type"] == "text/markdown"
    links = re.findall(r"\]\(([^)]+)\)", str(metadata.get_payload()))
    assert len(links) == len(re.findall(r"\]\(", (ROOT / "README.md").read_text("utf-8")))
    assert [link for link in links if not link.startswith(f"{REPOSITORY}/")] == []
    assert [link for link in links if not (ROOT / link.removeprefix(f"{REPOSITORY}/").split("/main/")[1].split("#")[0]).exists()] == []
    assert metadata["License-Expression"] == "Apache-2.0 AND BSD-3-Clause"
    texts = {f"perfkit-{perfkit.__version__}.dist-info/licenses/{name}" for name in metadata.get_all("License-File")}
    assert len(texts) == 2
    assert texts <= set(names)
    pythons = [classifier.rpartition(" ")[2] for classifier in metadata.get_all("Classifier") if re.search(r":: 3\.\d", classifier)]
    assert metadata["Requires-Python"] == f">={pythons[0]}"
    assert pythons == [f"3.{minor}" for minor in range(11, 11 + len(pythons))]


def test_the_wheel_is_what_is_imported(installed):
    found = run(installed.python, "-c", "import perfkit, server_stub; print(perfkit.__file__, server_stub.__file__)", cwd=installed.folder)
    assert all(pathlib.Path(path).is_relative_to(installed.folder / "venv") for path in found.split())


def test_the_wheel_measures_a_scenario_of_the_sdist(installed):
    scenario = shutil.copy(installed.sdist / "scenarios" / "simple.yaml", installed.folder)
    settings = ("measure.duration=300ms", "measure.warmup=100ms", "measure.repetitions=1", "measure.workers=1", "load.closed.concurrency=2")
    options = [word for setting in settings for word in ("--set", setting)]
    end = ended(installed.perfkit, "run", scenario, *options, "--out", "result", cwd=installed.folder)
    result = installed.folder / "result"
    assert {path.name for path in result.iterdir()} >= {"result.json", "latency.hlog", "report.html", "report.md"}, end.stderr
    points = json.loads((result / "result.json").read_text())["points"]
    assert [point["requests"]["ok"] == point["requests"]["sent"] > 0 for point in points] == [True] * len(points), end.stderr


def test_the_wheel_ships_scenarios_that_run_by_name_in_an_empty_folder_and_its_help(installed):
    empty = installed.folder / "empty"
    empty.mkdir()
    names = {path.stem for path in (installed.sdist / "scenarios").glob("*.yaml")}
    assert len(names) > 8
    validate_all = "import sys; from perfkit.cli.main import main; sys.exit(any(main(['validate', name]) for name in sys.argv[1:]))"
    assert run(installed.python, "-c", validate_all, *names, cwd=empty).count(": valid; ") == len(names)
    assert "| 0 | done" in run(installed.perfkit, "help", "exit-codes", cwd=empty)
    pictures = run(installed.python, "-c", "import perfkit.scenario.file as s; print(s.find_scenario('pictures').parent)", cwd=empty)
    assert {path.name for path in (pathlib.Path(pictures.strip()) / "pictures").iterdir()} == {"dawn.png", "dusk.png"}


def test_a_script_beside_a_checkout_imports_perfkit_and_not_the_folder(tmp_path):
    checkout, environment = tmp_path / "perfkit", tmp_path / "venv"
    for package in ("perfkit", "server_stub"):
        (checkout / package).mkdir(parents=True)
        shutil.copy(ROOT / package / "__init__.py", checkout / package)
    for name in ("pyproject.toml", "setup.py", "README.md", "LICENSE", "THIRD_PARTY_LICENSES.md"):
        shutil.copy(ROOT / name, checkout)
    run(sys.executable, "-m", "venv", "--system-site-packages", "--without-pip", environment, cwd=tmp_path)
    install = ("install", "--quiet", "--no-deps", "--no-index", "--no-build-isolation", "--editable", checkout)
    packages = next((environment / "lib").glob("python*/site-packages"))
    (packages / "setuptools.pth").write_text(f"{pathlib.Path(sysconfig.get_path('purelib'))}\n")  # which builds it
    python = environment / "bin" / "python"
    run(sys.executable, "-m", "pip", "--python", python, *install, cwd=tmp_path)
    (packages / "setuptools.pth").unlink()
    script = tmp_path / "script.py"
    script.write_text("import perfkit\nprint(perfkit.__file__, perfkit.__version__)\n")
    assert run(python, script, cwd=tmp_path).split()[0] == str(checkout / "perfkit" / "__init__.py")


def test_the_wheel_brings_its_pytest_plugin(installed):
    shown = run(installed.python, "-m", "pytest", "--markers", "-c", os.devnull, cwd=installed.folder)
    assert "@pytest.mark.perfkit(slo, " in shown
