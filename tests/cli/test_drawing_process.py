"""The process that draws reports ends by itself, with a report or without one."""

import subprocess

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
