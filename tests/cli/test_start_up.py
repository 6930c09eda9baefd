"""Commands that measure nothing start fast: they import no large library."""

import pathlib
import subprocess
import sys

import pytest

ROOT = pathlib.Path(__file__).parents[2]
SCENARIO = ROOT / "scenarios" / "densenet.yaml"
LARGE = {"numpy", "scipy", "pandas", "matplotlib", "uvloop", "google.protobuf", "hdrh", "aiohttp", "grpc", "psutil"}
PROGRAM = """
import sys
from perfkit.cli.main import main
try:
    main(sys.argv[1:])
finally:
    print("imported:", *sys.modules)
"""


def imported_by(*arguments):
    finished = subprocess.run([sys.executable, "-c", PROGRAM, *map(str, arguments)], capture_output=True, text=True, check=True)
    return set(finished.stdout.rpartition("imported: ")[2].split())


@pytest.mark.parametrize("arguments", [["--help"], ["run", "--help"]])
def test_help_imports_neither_a_large_library_nor_what_reads_scenarios(arguments):
    assert not imported_by(*arguments) & (LARGE | {"yaml", "pydantic"})


def test_validate_imports_no_large_library():
    assert not imported_by("validate", SCENARIO) & LARGE


RUN = """
import sys
from perfkit.cli.main import main
from tests.json_server import serving, v2_handler
imported = []
with serving(v2_handler(lambda number: imported or imported.extend(sys.modules))) as port:
    main(["run", f"http://127.0.0.1:{port}", "-m", "m", "-c", "1", "--duration", "10ms", "--set", "measure.warmup=0s", *sys.argv[1:]])
print("imported:", *imported)
"""


def test_the_first_request_of_a_run_does_not_wait_for_what_shows_its_result(tmp_path):
    options = ["--no-report", "--quiet", "--out", tmp_path / "result", "--set", "telemetry=false", "--set", "measure.repetitions=1"]
    finished = subprocess.run([sys.executable, "-c", RUN, *map(str, options)], capture_output=True, text=True, check=True, cwd=ROOT)
    imported = set(finished.stdout.rpartition("imported: ")[2].split())
    assert "perfkit.measurement.lifecycle" in imported
    assert not imported & {"pandas", "matplotlib", "scipy", "jinja2", "rich", "grpc", "perfkit.report.terminal_summary"}


def test_a_worker_of_the_load_does_without_what_reads_scenarios():
    program = "import sys, perfkit.workers.worker_process; print('imported:', *sys.modules)"
    finished = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True, cwd=ROOT)
    imported = set(finished.stdout.partition("imported: ")[2].split())
    assert "perfkit.workers.worker" in imported
    assert not imported & {"yaml", "pydantic", "pandas", "scipy", "aiohttp", "grpc"}
