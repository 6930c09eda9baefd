"""A stdout that is full, closed, or whose reader leaves."""

import pathlib
import subprocess
import sys

from tests.cli.conftest import Finished

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


def test_a_run_needs_no_standard_files(write_quick_scenario, tmp_path):
    scenario = write_quick_scenario(
        load={"closed": {"concurrency": 2, "think_time": "5ms"}},
        measure={"warmup": "50ms", "requests": 50, "repetitions": 1, "workers": 2},
        telemetry=True,
    )
    command = ["sh", "-c", 'exec "$@" <&- >&- 2>&-', "sh", *PERFKIT, "run", str(scenario), "--out", str(tmp_path / "out")]
    finished = Finished(subprocess.run(command, check=False).returncode, "", "", tmp_path / "out")
    assert [point["requests"]["ok"] for point in finished.result["points"]] == [50]
    assert not [note for note in finished.result["environment"]["telemetry"]["notes"] if "telemetry process" in note]
    assert (tmp_path / "out" / "report.html").exists()
