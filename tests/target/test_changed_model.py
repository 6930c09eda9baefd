"""Marks of models whose configuration was changed, between processes."""

import fcntl
import os
import subprocess
import sys

import pytest

from perfkit.errors import UsageError
from perfkit.target.address import Address
from perfkit.target.changed_model import ChangedModel, ChangedModels, clear_marks_of, describe_changed, find_changed

ADDRESS = Address.parse("http://127.0.0.1:8000")
SET_AND_WAIT = """
import pathlib, sys
from perfkit.target.address import Address
from perfkit.target.changed_model import ChangedModel
mark = ChangedModel(Address.parse("http://127.0.0.1:8000"), "m", pathlib.Path(sys.argv[1])).set()
print("set", flush=True)
sys.stdin.read()
"""


@pytest.fixture(autouse=True)
def _state_folder(tmp_path, monkeypatch):
    monkeypatch.setenv("PERFKIT_STATE_DIR", str(tmp_path / "state"))


def test_a_mark_is_found_once_its_process_was_killed(tmp_path):
    command = [sys.executable, "-c", SET_AND_WAIT, str(tmp_path)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "set\n"
        assert find_changed(ADDRESS, "m") is None, "its process lives"
        with pytest.raises(UsageError, match="another perfkit changes the configuration of model 'm'"):
            ChangedModel(ADDRESS, "m", tmp_path).set()
        process.kill()
    assert find_changed(ADDRESS, "m") == tmp_path
    assert find_changed(ADDRESS, "another") is None
    assert find_changed(Address.parse("http://127.0.0.1:8001"), "m") is None
    ChangedModel(ADDRESS, "m", tmp_path).set().clear()
    assert find_changed(ADDRESS, "m") is None


def test_a_mark_that_was_released_is_found(tmp_path):
    ChangedModel(ADDRESS, "m", tmp_path).set().release()
    assert find_changed(ADDRESS, "m") == tmp_path


def test_a_mark_that_was_not_set_is_left_alone(tmp_path):
    mine = ChangedModel(ADDRESS, "m", tmp_path).set()
    ChangedModel(ADDRESS, "m", tmp_path).clear()
    assert mine.file.exists()


def test_a_mark_that_is_removed_while_another_process_waits_for_it_is_made_again(tmp_path, monkeypatch):
    first, second = ChangedModel(ADDRESS, "m", tmp_path).set(), ChangedModel(ADDRESS, "m", tmp_path)
    opened = os.open

    def opened_before_the_removal(*arguments):
        descriptor = opened(*arguments)
        first.clear()
        return descriptor

    monkeypatch.setattr(os, "open", opened_before_the_removal)
    second.set()
    monkeypatch.undo()
    assert second.file.exists()
    second.release()


def test_a_mark_can_be_set_as_soon_as_nobody_reads_it(tmp_path, monkeypatch):
    mark = ChangedModel(ADDRESS, "m", tmp_path).set()
    mark.release()
    reading = os.open(mark.file, os.O_RDONLY)
    fcntl.flock(reading, fcntl.LOCK_SH)
    assert find_changed(ADDRESS, "m") == tmp_path, "two may read"
    monkeypatch.setattr("perfkit.target.changed_model.threading.Event.wait", lambda *_: fcntl.flock(reading, fcntl.LOCK_UN))
    mark.set().clear()
    os.close(reading)


def test_several_marks_are_set_together_or_not_at_all(tmp_path):
    addresses = [ADDRESS, Address.parse("grpc://127.0.0.1:8001")]
    taken = ChangedModel(addresses[1], "b", tmp_path).set()
    marks = ChangedModels(addresses, ["a", "b"], tmp_path / "another")
    with pytest.raises(UsageError, match="'b'"):
        marks.set()
    assert find_changed(ADDRESS, "a") is None
    taken.clear()
    marks.set().release()
    assert {find_changed(address, model) for address in addresses for model in "ab"} == {tmp_path / "another"}


def test_all_marks_of_a_folder_are_removed_and_no_others(tmp_path):
    for model, folder in (("a", "mine"), ("b", "mine"), ("c", "another")):
        ChangedModel(ADDRESS, model, tmp_path / folder).set().release()
    living = ChangedModel(ADDRESS, "d", tmp_path / "mine").set()
    clear_marks_of(tmp_path / "mine")
    assert [find_changed(ADDRESS, model) for model in "abc"] == [None, None, tmp_path / "another"]
    assert living.file.exists(), "its process lives"


def test_the_note_has_the_command(tmp_path):
    assert f"perfkit tune --restore {tmp_path}" in describe_changed("m", tmp_path)


def test_a_folder_that_cannot_be_written_is_named(tmp_path, monkeypatch):
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("PERFKIT_STATE_DIR", str(tmp_path / "file"))
    with pytest.raises(UsageError, match="PERFKIT_STATE_DIR"):
        ChangedModel(ADDRESS, "m", tmp_path).set()
