"""Commands that measure nothing start fast: they import no large library."""

import pathlib
import subprocess
import sys

import pytest

SCENARIO = pathlib.Path(__file__).parents[2] / "scenarios" / "densenet.yaml"
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
