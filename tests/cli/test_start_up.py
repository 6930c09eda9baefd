"""Commands start fast: they import no large library that they do without, and a run nothing that its first request does without."""

import os
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
import os, sys
from perfkit.cli.main import main
from tests.json_server import serving, v2_handler

def on_inference(number):
    print("imported:", *sys.modules, flush=True)
    os._exit(0)  # its children end with it

with serving(v2_handler(on_inference)) as port:
    main(["run", f"http://127.0.0.1:{port}", "-m", "m", "-c", "1", "--quiet", "--out", sys.argv[1]])
"""


def test_the_first_request_of_a_run_does_not_wait_for_what_it_does_without(tmp_path):
    command = [sys.executable, "-c", RUN, str(tmp_path / "result")]
    finished = subprocess.run(command, capture_output=True, text=True, check=True, cwd=ROOT)
    imported = set(finished.stdout.rpartition("imported: ")[2].split())
    assert "perfkit.measurement.target_probe" in imported
    assert not imported & {"pandas", "matplotlib", "scipy", "jinja2", "rich", "grpc", "yaml", "psutil", "hdrh", "hpack"}
    later = {
        "points",
        "stats",
        "spans",
        "recorder",
        "calibration",
        "figures",
        "search",
        "fleet",
        "workers.group",
        "result.model",
        "telemetry.messages",
    }
    assert not {name for name in imported for package in later if f"{name}.".startswith(f"perfkit.{package}.")}


WHOLE = """
import sys
from perfkit.cli.main import main
from tests.json_server import serving, v2_handler
from tests.undisturbed import undisturbed

with serving(v2_handler(lambda _: None)) as port, undisturbed():
    words = ["run", f"http://127.0.0.1:{port}", "-m", "m", "-c", "1", "--duration", "200ms"]
    code = main([*words, "--quiet", "--no-report", "--out", sys.argv[1]])
print("imported:", *sys.modules)
sys.exit(code)
"""


def test_a_whole_run_does_without_what_would_only_fill_its_memory(tmp_path):
    command = [sys.executable, "-c", WHOLE, str(tmp_path / "result")]
    finished = subprocess.run(command, capture_output=True, text=True, check=True, cwd=ROOT)
    imported = set(finished.stdout.rpartition("imported: ")[2].split())
    assert "perfkit.points.steady_state" in imported
    assert not imported & {"pandas", "matplotlib", "scipy", "jinja2", "yaml", "grpc", "google.protobuf", "numpy.ma", "perfkit.report.run"}


GARBAGE = """
import gc, os, sys
from perfkit.cli import recover, start
from perfkit.cli.main import main
from tests.json_server import serving, v2_handler

def tell(*_):
    print(gc.isenabled(), gc.get_freeze_count() > 0, flush=True)
    os._exit(7)

def on_inference(number):
    if number == 2:  # the first one of the load
        tell()

recover.configure = lambda parser: parser.set_defaults(execute=tell)
with serving(v2_handler(on_inference)) as port:
    how = sys.argv[1]
    if how == "disabled":
        gc.disable()
    sys.argv = ["perfkit", *(word.replace("PORT", str(port)) for word in sys.argv[2:])]
    (main if how == "called" else start)()
"""
MEASURE = "run http://127.0.0.1:PORT -m m -c 1 --quiet --no-report --out {}/result"


@pytest.mark.parametrize(
    ("how", "words", "said"),
    [
        ("started", MEASURE, "True True"),
        ("started", "recover", "True True"),
        ("called", "recover", "True False"),
        ("disabled", "recover", "False False"),
    ],
)  # fmt: skip
def test_garbage_is_collected_once_a_command_has_started_and_as_a_program_that_calls_it_wants_it(tmp_path, how, words, said):
    """What was imported before that is left out."""
    command = [sys.executable, "-c", GARBAGE, how, *words.format(tmp_path).split()]
    finished = subprocess.run(command, capture_output=True, text=True, check=False, cwd=ROOT)
    assert (finished.returncode, finished.stdout) == (7, f"{said}\n"), finished.stderr


def test_reports_are_drawn_without_what_sends_load():
    program = "import importlib, sys, perfkit.cli.drawing_process as it; [*map(importlib.import_module, it._IMPORTED_AHEAD)]; print('imported:', *sys.modules)"
    finished = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True, cwd=ROOT)
    imported = set(finished.stdout.partition("imported: ")[2].split())
    assert "perfkit.report.run" in imported
    assert not imported & {
        "rich",
        "psutil",
        "pandas",
        "scipy",
        "numpy.random",
        "perfkit.load.loop",
        "perfkit.telemetry.host.generator",
        "perfkit.protocol.tensor",
        "asyncio",
    }


THREADS = """
import os, sys
from perfkit.process.entry import without_blas_threads
with without_blas_threads():
    import numpy
print(len(os.listdir("/proc/self/task")), os.environ.get("OPENBLAS_NUM_THREADS"))
"""


@pytest.mark.parametrize(("given", "threads"), [(None, 1), ("3", 3)])
def test_numpy_starts_no_threads_unless_the_user_asks_for_them(given, threads):
    environ = {name: value for name, value in os.environ.items() if name != "OPENBLAS_NUM_THREADS"}
    environ |= {} if given is None else {"OPENBLAS_NUM_THREADS": given}
    finished = subprocess.run([sys.executable, "-c", THREADS], env=environ, capture_output=True, text=True, check=True, cwd=ROOT)
    assert finished.stdout.split() == [str(min(threads, len(os.sched_getaffinity(0)))), str(given)]


def test_a_child_of_perfkit_has_no_threads_of_numpy():
    environ = {name: value for name, value in os.environ.items() if name != "OPENBLAS_NUM_THREADS"}
    program = "import os, perfkit.workers.worker_process; print(len(os.listdir('/proc/self/task')))"
    start = "from perfkit.process.entry import become_module; import runpy; runpy.run_module = lambda *_, **__: exec({!r}); become_module(dies_with_parent=False)"
    command = [
        sys.executable,
        "-P",
        "-c",
        f"import sys; sys.path.insert(0, sys.argv[1]); {start.format(program)}",
        str(ROOT),
        "perfkit.workers.worker_process",
    ]
    assert subprocess.run(command, env=environ, capture_output=True, text=True, check=True).stdout == "1\n"


def test_a_worker_of_the_load_does_without_what_reads_scenarios():
    program = "import sys, perfkit.workers.worker_process; print('imported:', *sys.modules)"
    finished = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True, cwd=ROOT)
    imported = set(finished.stdout.partition("imported: ")[2].split())
    assert "perfkit.workers.worker" in imported
    assert not imported & {"yaml", "pydantic", "pandas", "scipy", "aiohttp", "grpc"}
