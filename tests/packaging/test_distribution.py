"""The built sdist and wheel: installed outside the checkout, they measure and pass tests without its files."""

import json
import os
import pathlib
import shutil
import subprocess
import sys
import sysconfig
import tarfile
from typing import NamedTuple

import pytest

ROOT = pathlib.Path(__file__).parents[2]
NOT_COPIED = shutil.ignore_patterns(".*", "build", "dist", "reports", "*.egg-info", "__pycache__")


class Installed(NamedTuple):
    python: pathlib.Path
    perfkit: pathlib.Path
    sdist: pathlib.Path
    """The unpacked sdist, without its packages."""
    folder: pathlib.Path


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
    source, dist, environment = folder / "source", folder / "dist", folder / "venv"
    shutil.copytree(ROOT, source, ignore=NOT_COPIED)
    run(sys.executable, "-m", "build", "--no-isolation", "--outdir", dist, source, cwd=folder)  # the wheel is made from the sdist
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
    return Installed(python, environment / "bin" / "perfkit", unpacked, folder)


def test_the_wheel_is_what_is_imported(installed):
    found = run(installed.python, "-c", "import perfkit, server_stub; print(perfkit.__file__, server_stub.__file__)", cwd=installed.folder)
    assert all(pathlib.Path(path).is_relative_to(installed.folder / "venv") for path in found.split())


def test_the_wheel_measures_a_scenario_of_the_sdist(installed):
    scenario = shutil.copy(installed.sdist / "scenarios" / "simple.yaml", installed.folder)
    settings = ("measure.duration=300ms", "measure.warmup=100ms", "measure.repetitions=1", "load.closed.concurrency=2")
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
    pictures = run(installed.python, "-c", "import perfkit.scenario.shipped as s; print(s.find_scenario('pictures').parent)", cwd=empty)
    assert {path.name for path in (pathlib.Path(pictures.strip()) / "pictures").iterdir()} == {"dawn.png", "dusk.png"}


def test_a_script_beside_a_checkout_imports_perfkit_and_not_the_folder(tmp_path):
    checkout, environment = tmp_path / "perfkit", tmp_path / "venv"
    for package in ("perfkit", "server_stub"):
        (checkout / package).mkdir(parents=True)
        shutil.copy(ROOT / package / "__init__.py", checkout / package)
    for name in ("pyproject.toml", "README.md", "LICENSE"):
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


def test_the_wheel_passes_tests_of_the_sdist(installed):
    shutil.copytree(installed.sdist / "tests", installed.folder / "tests")
    command = ["-m", "pytest", "-q", "-p", "no:cacheprovider", "-p", "no:randomly", "--import-mode=importlib", "-c", os.devnull]
    command += [f"--rootdir={installed.folder}", "tests/result/test_document.py", "tests/workload/test_inputs.py"]
    shown = run(installed.python, *command, cwd=installed.folder, PYTHONPATH=str(installed.folder))
    assert " passed" in shown
