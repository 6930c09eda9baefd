"""The process that draws reports: the load waits for it, and it ends by itself, with a report or without one."""

import os
import pathlib
import subprocess
import sys

import pytest

from perfkit.process.messages import message_bytes
from perfkit.process.start_module import DRAWING, module_command


@pytest.fixture
def drawing():
    pipe = subprocess.PIPE
    with subprocess.Popen(module_command(DRAWING), stdin=pipe, stdout=pipe, stderr=pipe) as process:
        yield process
        process.kill()


def test_without_a_result_it_ends_with_its_stdin(drawing: "subprocess.Popen[bytes]"):
    output, errors = drawing.communicate(timeout=60)
    assert (drawing.returncode, output, errors) == (0, b"\n", b""), "a line when it is ready to draw"


def test_a_result_that_cannot_be_read_is_named_on_stderr(drawing: "subprocess.Popen[bytes]", tmp_path):
    _, errors = drawing.communicate(message_bytes([str(tmp_path / "nothing")]), timeout=60)
    assert drawing.returncode == 2
    assert str(tmp_path / "nothing") in errors.decode()


ROOT = pathlib.Path(__file__).parents[2]
# Python imports it first, also in the process that draws
SITE = """
import os, pathlib, signal, sys
if "perfkit.cli.drawing_process" in sys.orig_argv:
    place = pathlib.Path(os.environ["PERFKIT_TEST_PLACE"])
    if os.environ["PERFKIT_TEST_CASE"] == "hangs" and not (place / "load").exists():
        signal.pause()
    write = sys.stdout.write
    sys.stdout.write = lambda text: ((place / "has_imported").touch(), write(text))[1]
"""
RUN = """
import os, pathlib, sys
from perfkit.cli.main import main
from perfkit.measurement import lifecycle
from tests.children import children_running
from tests.json_server import serving, v2_handler

place, case = pathlib.Path(os.environ["PERFKIT_TEST_PLACE"]), os.environ["PERFKIT_TEST_CASE"]
if case == "hangs":
    lifecycle._IDLE_WITHIN_S = 0.01
had_imported = []
wait_until_idle = lifecycle.wait_until_idle

async def wait_and_look(*options):
    await wait_until_idle(*options)
    had_imported.append((place / "has_imported").exists())

lifecycle.wait_until_idle = wait_and_look

def on_inference(number):
    if number == 2:  # the first one of the load
        drawing = children_running("perfkit.cli.drawing_process")
        print(len(drawing), had_imported, flush=True)
        (place / "load").touch()
        for process in drawing if case == "is killed" else ():
            process.kill()

with serving(v2_handler(on_inference)) as port:
    url = f"http://127.0.0.1:{port}"
    words = ["run", url, "-m", "m", "-c", "1", "--duration", "200ms", "--set", "measure.repetitions=1", "--quiet", "--format", "json"]
    sys.exit(main([*words, "--out", str(place / "result")]))
"""


@pytest.mark.parametrize(
    ("case", "drawing", "had_imported"),
    [("imports", 1, True), ("hangs", 0, False), ("is killed", 1, True)],
)  # fmt: skip
def test_the_load_waits_for_the_process_that_will_draw_and_another_draws_if_that_one_cannot(tmp_path, case, drawing, had_imported):
    (tmp_path / "sitecustomize.py").write_text(SITE)
    environment = {**os.environ, "PYTHONPATH": str(tmp_path), "PERFKIT_TEST_PLACE": str(tmp_path), "PERFKIT_TEST_CASE": case}
    finished = subprocess.run([sys.executable, "-c", RUN], capture_output=True, text=True, check=False, cwd=ROOT, env=environment)
    first, _, result = finished.stdout.partition("\n")
    assert first == f"{drawing} [{had_imported}]", finished.stderr
    assert "report_missing" not in result
    assert (tmp_path / "result/report.html").exists()
