"""Shared memory objects: seen by other processes, removed with their owner, and after it was killed."""

import multiprocessing.shared_memory
import os
import re
import signal
import subprocess
import sys

import pytest

from perfkit.errors import ScenarioError
from perfkit.machine.shared_memory import FOLDER, SystemMemory, remove_abandoned

CHILD = """
import sys
from perfkit.machine.shared_memory import SystemMemory
memory = SystemMemory(64)
print(memory.name, flush=True)
sys.stdin.read()
"""


def test_another_library_sees_the_object_and_its_bytes():
    memory = SystemMemory(5000)
    assert re.fullmatch(rf"perfkit-{os.getpid()}-[0-9a-f]{{16}}", memory.name)
    memory.write(4990, b"0123456789")
    other = multiprocessing.shared_memory.SharedMemory(memory.name)
    try:
        assert other.buf is not None
        assert bytes(other.buf[4990:5000]) == b"0123456789"
        other.buf[10:13] = b"abc"
        assert memory.reader.read(9, 5) == b"\0abc\0"
    finally:
        other.close()
        memory.close()
    assert not (FOLDER / memory.name).exists()
    with pytest.raises(OSError, match="No such file"):
        memory.reader.read(0, 1)


def test_the_object_is_readable_for_its_user_alone():
    memory = SystemMemory(1)
    mode = (FOLDER / memory.name).stat().st_mode
    memory.close()
    assert mode & 0o777 == 0o600


def test_objects_of_a_killed_process_are_removed_and_those_of_living_ones_and_of_others_stay():
    mine = SystemMemory(64)
    foreign = FOLDER / f"perfkit-test-{os.getpid()}"
    foreign.write_bytes(b"x")
    with subprocess.Popen([sys.executable, "-c", CHILD], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as child:
        name = child.stdout.readline().strip()
        try:
            assert name not in remove_abandoned()
            assert (FOLDER / name).exists()
            child.send_signal(signal.SIGKILL)
            child.wait()
            assert name in remove_abandoned()
            assert not (FOLDER / name).exists()
            assert (FOLDER / mine.name).exists()
            assert foreign.exists()
        finally:
            child.kill()
            mine.close()
            foreign.unlink()


def test_a_folder_that_is_too_small_or_missing_is_named_with_what_to_change(tmp_path):
    with pytest.raises(ScenarioError, match=r"shared_memory: .* are free: .*--shm-size"):
        SystemMemory(2**62)
    assert not list(FOLDER.glob(f"perfkit-{os.getpid()}-*"))
    with pytest.raises(ScenarioError, match="No such file"):
        SystemMemory(1, tmp_path / "missing")
    assert remove_abandoned(tmp_path / "missing") == ()
