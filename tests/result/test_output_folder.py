"""Output folders: one command at a time writes to each, and what cannot be written is found first."""

import contextlib
import json
import os
import pathlib
import re
import subprocess
import sys

import pytest

from perfkit.errors import ResultError
from perfkit.result.file import ResultWriter
from perfkit.result.output_folder import INNER_LOCK, default_folder, ensure_writable, locked, results_folder
from perfkit.result.sweep import SweepFolder

# holds a lock until its stdin ends
HOLDER = "import pathlib, sys\nfrom perfkit.result.output_folder import locked\nwith locked(pathlib.Path(sys.argv[1])): print('locked', flush=True); sys.stdin.read()"


@contextlib.contextmanager
def locked_by_another_process(folder):
    environment = {**os.environ, "PYTHONPATH": str(pathlib.Path(__file__).parents[2])}
    command = [sys.executable, "-c", HOLDER, str(folder)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=environment) as holder:
        assert holder.stdout is not None
        assert holder.stdout.readline() == b"locked\n"
        yield holder


def test_a_second_process_is_refused_with_the_first_ones_number_and_start(tmp_path):
    (tmp_path / "link").symlink_to(tmp_path / "out")
    with locked_by_another_process(tmp_path / "out") as holder:
        for name in ("out", "link"):
            with pytest.raises(ResultError) as refused, locked(tmp_path / name):
                pytest.fail("two processes hold the lock")
            assert f"--out {tmp_path / name}: another perfkit writes there: process {holder.pid} on " in str(refused.value)
            assert "started at 20" in str(refused.value)
    with locked(tmp_path / "out"):
        assert json.loads((tmp_path / "out.lock").read_text())["process"] == os.getpid()
    assert {path.name for path in tmp_path.iterdir()} == {"link"}


def test_the_lock_of_a_killed_process_holds_nobody_up(tmp_path):
    with locked_by_another_process(tmp_path / "out") as holder:
        holder.kill()
        holder.wait()
    assert (tmp_path / "out.lock").exists()
    with locked(tmp_path / "out"):
        pass
    assert list(tmp_path.iterdir()) == []


def test_a_failure_in_the_block_ends_the_lock(tmp_path):
    with pytest.raises(KeyError), locked(tmp_path / "new" / "out"):
        raise KeyError
    with locked(tmp_path / "new" / "out"):
        pass


@pytest.mark.parametrize("place", ["file/out", "file"])
def test_a_place_in_a_file_is_refused(tmp_path, place):
    (tmp_path / "file").touch()
    with pytest.raises(ResultError, match=f"--out {tmp_path / place}: "), locked(tmp_path / place):
        ResultWriter(tmp_path / place, 0.0)


def test_a_sweep_into_a_volume_beside_which_nothing_can_be_written_is_locked_inside(tmp_path, monkeypatch):
    monkeypatch.setattr(os, "access", lambda path, _: path != tmp_path)
    (tmp_path / "out").mkdir()
    with locked(tmp_path / "out", may_lock_inside=True):
        assert [path.name for path in (tmp_path / "out").iterdir()] == [INNER_LOCK]
        assert not (tmp_path / "out.lock").exists()
        SweepFolder(tmp_path / "out", "sweep", [({"load": 1}, {})])
        with pytest.raises(ResultError, match=f"process {os.getpid()} on "), locked(tmp_path / "out", may_lock_inside=True):
            pytest.fail("two hold the lock")
    assert not (tmp_path / "out" / INNER_LOCK).exists()


def test_a_lock_that_cannot_be_made_is_named(tmp_path):
    (tmp_path / "out.lock").mkdir()  # as one of another user
    with pytest.raises(ResultError, match=f"--out {tmp_path}/out: {tmp_path}/out.lock cannot be written: "), locked(tmp_path / "out"):
        pass


def test_a_folder_that_takes_no_files_is_refused_with_its_path_and_the_reason(tmp_path):
    read_only = pathlib.Path("/proc/self")  # for root too
    with pytest.raises(ResultError, match="--out mine: /proc/self cannot be written: "):
        ensure_writable(read_only, pathlib.Path("mine"))
    ensure_writable(tmp_path, tmp_path)
    assert list(tmp_path.iterdir()) == []


def test_a_mount_point_is_refused_before_the_run_since_a_result_cannot_replace_it(monkeypatch):
    monkeypatch.setattr("perfkit.result.file._may_be_replaced", lambda _: True)  # as an empty volume, which a test cannot mount
    with pytest.raises(ResultError, match=r"--out /proc: this is a mount point, .*such as /proc/result"):
        ResultWriter(pathlib.Path("/proc"), 0.0)


def test_results_go_to_reports_but_in_perfkits_checkout_to_results_which_git_ignores(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert results_folder() == pathlib.Path("reports")
    assert default_folder("densenet").parts[:-1] == ("reports",)
    assert re.fullmatch(r"densenet-\d{8}T\d{6}Z", default_folder("densenet").name)
    (tmp_path / "pyproject.toml").touch()  # some other project
    assert results_folder() == pathlib.Path("reports")
    checkout = pathlib.Path(__file__).parents[2]
    monkeypatch.chdir(checkout)
    assert results_folder() == pathlib.Path("results")
    assert "/results/" in (checkout / ".gitignore").read_text().splitlines()
