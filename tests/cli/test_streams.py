"""A stdout that is full, closed, or whose reader leaves."""

import pathlib
import subprocess
import sys

PERFKIT = [sys.executable, "-m", "perfkit"]


def test_a_full_disk_under_stdout_is_reported_in_one_sentence():
    with pathlib.Path("/dev/full").open("w") as full:
        ended = subprocess.run([*PERFKIT, "schema"], stdout=full, stderr=subprocess.PIPE, text=True, check=False)
    assert (ended.returncode, ended.stderr) == (2, "perfkit: the output cannot be written: [Errno 28] No space left on device\n")


def test_a_reader_of_stdout_that_leaves_ends_the_command_quietly():
    with subprocess.Popen([*PERFKIT, "schema"], stdout=subprocess.PIPE, stderr=subprocess.PIPE) as running:
        running.stdout.close()
        assert running.stderr.read() == b""
    assert running.returncode == 0
