"""The checksums of a result folder: written by a run, read by `sha256sum`, verified by every command."""

import shutil
import subprocess

import pytest

from perfkit.cli.main import main
from perfkit.errors import ResultError
from perfkit.result.checksums import CHECKSUM_FILE, unverified_note
from perfkit.result.file import read_result, replace_result
from perfkit.result.interval_log import read_intervals
from tests.queue_results import Writer


@pytest.fixture
def folder(tmp_path):
    return Writer(tmp_path)((20, 50), seconds=5, samples=100)


@pytest.mark.skipif(shutil.which("sha256sum") is None, reason="needs sha256sum")
def test_sha256sum_verifies_the_folder_of_a_run(folder):
    done = subprocess.run(["sha256sum", "-c", CHECKSUM_FILE], cwd=folder, capture_output=True, text=True, check=True)  # noqa: S607
    assert done.stdout.splitlines() == ["result.json: OK", "latency.hlog: OK"]


@pytest.mark.parametrize("name", ["result.json", "latency.hlog"])
def test_an_edited_file_is_refused_by_its_name_until_the_checksums_are_removed(folder, name, capsys):
    file = folder / name
    file.write_text(file.read_text() + "\n")
    assert main(["report", str(folder)]) == 2
    said = capsys.readouterr().err
    assert said.startswith(f"perfkit: {file}: the file differs from its checksum in checksums.sha256: damaged, or edited")
    assert f"remove {folder / CHECKSUM_FILE}" in said
    (folder / CHECKSUM_FILE).unlink()
    assert main(["report", str(folder)]) == 0
    assert capsys.readouterr().err.startswith(f"perfkit: note: {folder} has no checksums.sha256")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "result.json: checksums.sha256 does not list this file"),
        ("0" * 64 + "  result.json\n", "result.json: the file differs from its checksum"),
        (
            "0" * 64 + "  result.json\n" + "0" * 64 + "  result.json\n",
            "checksums.sha256:2: not a line of sha256sum, or a file listed twice",
        ),
        ("x\n", "checksums.sha256:1: not a line of sha256sum"),
        ("0" * 64 + "  ../../etc/passwd\n", "checksums.sha256:1: not a line of sha256sum"),
    ],
)
def test_checksums_that_were_damaged_are_refused(folder, text, message):
    (folder / CHECKSUM_FILE).write_text(text)
    with pytest.raises(ResultError) as caught:
        read_result(folder)
    assert message in str(caught.value)


def test_line_ends_of_windows_as_git_makes_them_are_no_damage(folder, capsys):
    for name in ("result.json", "latency.hlog", CHECKSUM_FILE):
        file = folder / name
        file.write_bytes(file.read_bytes().replace(b"\n", b"\r\n"))
    assert main(["report", str(folder)]) == 0
    assert capsys.readouterr().err == ""
    (folder / "latency.hlog").write_bytes((folder / "latency.hlog").read_bytes().replace(b"Tag=", b"Tag= ", 1))
    assert main(["report", str(folder)]) == 2
    assert "the file differs from its checksum" in capsys.readouterr().err


def test_a_log_of_another_run_is_refused(folder, tmp_path):
    other = Writer(tmp_path / "other")((20, 50), seconds=5, samples=100, seed=1)
    shutil.copy(other / "latency.hlog", folder / "latency.hlog")
    with pytest.raises(ResultError, match=r"latency\.hlog: the file differs from its checksum"):
        list(read_intervals(folder))


def test_a_result_that_is_replaced_on_purpose_has_new_checksums(folder):
    result, _ = read_result(folder)
    replace_result(folder, result.model_copy(update={"status_reason": "added later"}))
    assert read_result(folder)[0].status_reason == "added later"
    assert unverified_note(folder) == ""
    assert list(read_intervals(folder))


def test_only_results_without_checksums_have_a_note(folder, tmp_path):
    (folder / CHECKSUM_FILE).unlink()
    assert unverified_note(folder) == unverified_note(folder / "result.json") != ""
    (tmp_path / "baseline.json").write_text("{}")
    assert unverified_note(tmp_path / "baseline.json") == unverified_note(tmp_path) == unverified_note(tmp_path / "none") == ""
