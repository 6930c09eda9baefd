"""The result folder: grown beside its place, put there in one step."""

import contextlib
import ctypes
import pathlib
import shutil

import pytest

from perfkit.errors import MeasurementError, ResultError
from perfkit.result.file import ResultWriter, read_result


@pytest.fixture
def place(tmp_path):
    return tmp_path / "reports" / "out"


def write(place, result):
    writer = ResultWriter(place, 0.0)
    writer.save(result)
    return writer.commit()


def named(result, name):
    return result.model_copy(update={"scenario": {"name": name}})


def test_a_result_is_written_beside_its_place_during_the_run(place, result):
    writer = ResultWriter(place, 0.0)
    assert writer.partial == place.with_name("out.partial")
    for name in ("one point", "two points"):
        writer.save(named(result, name))
        assert not place.exists()
        assert read_result(writer.partial)[0].scenario == {"name": name}
        assert {path.name for path in writer.partial.iterdir()} == {"result.json", "latency.hlog"}
    writer.discard()


def test_a_commit_puts_the_folder_in_its_place(place, result):
    place.mkdir(parents=True)  # an empty folder may be filled
    assert write(place, result) == place
    assert read_result(place) == (result, place)
    assert {path.name for path in place.parent.iterdir()} == {"out"}
    assert (place / "result.json").read_text().endswith("}\n")


def test_an_existing_result_is_replaced_with_all_its_files(place, result):
    write(place, named(result, "old"))
    (place / "report.html").write_text("old")
    writer = ResultWriter(place, 0.0)
    writer.save(named(result, "new"))
    assert read_result(place)[0].scenario == {"name": "old"}
    writer.commit()
    assert read_result(place)[0].scenario == {"name": "new"}
    assert {path.name for path in place.iterdir()} == {"result.json", "latency.hlog", "checksums.sha256"}
    assert {path.name for path in place.parent.iterdir()} == {"out"}


def test_the_new_result_is_in_its_place_before_the_old_one_is_removed(place, result, monkeypatch):
    write(place, named(result, "old"))
    writer = ResultWriter(place, 0.0)
    writer.save(named(result, "new"))
    seen = []

    def remove(folder):
        seen.append((read_result(place)[0].scenario["name"], read_result(folder)[0].scenario["name"]))
        removed(folder)

    removed = shutil.rmtree
    monkeypatch.setattr(shutil, "rmtree", remove)
    writer.commit()
    assert seen == [("new", "old")]


def test_a_result_is_replaced_on_a_system_that_cannot_swap_folders(place, result, monkeypatch):
    write(place, named(result, "old"))
    monkeypatch.setattr(ctypes, "CDLL", lambda *_, **__: object())  # a C library without renameat2
    write(place, named(result, "new"))
    assert read_result(place)[0].scenario == {"name": "new"}
    assert {path.name for path in place.parent.iterdir()} == {"out"}


def test_a_link_to_a_result_stays_and_points_to_the_new_one(place, result, tmp_path):
    write(place, named(result, "old"))
    link = tmp_path / "latest"
    link.symlink_to(place)
    assert write(link, named(result, "new")) == link
    assert link.is_symlink()
    assert read_result(place)[0].scenario == {"name": "new"}
    assert {path.name for path in tmp_path.iterdir()} == {"reports", "latest"}


def test_a_folder_that_a_crash_left_does_not_hinder_a_new_run(place, result):
    left = place.with_name(f"{place.name}.partial")
    left.mkdir(parents=True)
    (left / "stale").touch()
    write(place, result)
    assert [path.name for path in left.iterdir()] == ["stale"]
    assert {path.name for path in place.iterdir()} == {"result.json", "latency.hlog", "checksums.sha256"}


@pytest.mark.parametrize("mine", ["out", "out/thesis.tex"])
def test_a_file_or_a_folder_that_is_not_a_result_is_refused_and_stays(place, mine):
    file = place.parent / mine
    file.parent.mkdir(parents=True)
    file.write_text("mine")
    with pytest.raises(ResultError) as caught:
        ResultWriter(place, 0.0)
    assert str(caught.value) == f"--out {place}: this exists and is not a result folder; give another one"
    assert {path.name for path in place.parent.iterdir()} == {"out"}
    assert file.read_text() == "mine"


def test_a_place_that_cannot_be_written_is_named(tmp_path):
    (tmp_path / "file").touch()
    for place, reason in (
        (tmp_path / "file" / "out", "cannot be written: File exists"),
        (tmp_path / ("x" * 300), "cannot be written: File name too long"),
        (pathlib.Path("/"), "this cannot be a result folder; give another one"),
    ):
        with pytest.raises(ResultError) as caught:
            ResultWriter(place, 0.0)
        assert str(caught.value) == f"--out {place}: {reason}"


def test_a_folder_given_as_a_dot_has_its_real_name(tmp_path, result, monkeypatch):
    (tmp_path / "here").mkdir()
    monkeypatch.chdir(tmp_path / "here")
    write(type(tmp_path)(), result)
    assert read_result(tmp_path / "here")[0] == result
    assert {path.name for path in tmp_path.iterdir()} == {"here"}


def test_a_discarded_result_leaves_no_folder_but_the_old_one(place, result):
    writer = ResultWriter(place, 0.0)
    writer.save(result)
    writer.discard()
    assert list(place.parent.iterdir()) == []
    write(place, result)
    ResultWriter(place, 0.0).discard()
    assert read_result(place)[0] == result
    assert {path.name for path in place.parent.iterdir()} == {"out"}


def test_a_folder_with_anything_else_in_it_is_not_replaced(place, result):
    write(place, result)
    (place / "notes.txt").write_text("mine")
    with pytest.raises(ResultError, match="give another one"):
        ResultWriter(place, 0.0)
    assert (place / "notes.txt").read_text() == "mine"


def test_a_run_that_fails_leaves_a_folder_only_if_a_point_was_measured(place, result):
    assert ResultWriter(place, 0.0).abort() is None
    assert not list(place.parent.iterdir())
    writer = ResultWriter(place, 0.0)
    writer.save(result)
    assert writer.abort() == writer.partial
    assert read_result(writer.partial)[0] == result


@pytest.mark.skipif(not pathlib.Path("/dev/full").exists(), reason="needs /dev/full, a device that is always full")
def test_a_full_disk_is_reported_in_a_sentence(place, result):
    writer = ResultWriter(place, 0.0)
    writer.save(result)
    writer._log.close()
    with pathlib.Path("/dev/full").open("w") as writer._log._file:
        writer.log_point(["x"])
        with pytest.raises(MeasurementError, match="cannot be written: No space left on device"):
            writer.save(result)
        with contextlib.suppress(OSError):
            writer._log.close()
    assert writer.abort() is not None
