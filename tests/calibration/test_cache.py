"""What is kept comes back, on the machine and with the perfkit that it is of."""

import json

import pytest

from perfkit.calibration.cache import calibration_path, identity, read_calibration, write_calibration
from perfkit.errors import UsageError
from perfkit.machine.description import describe_host


def test_what_is_kept_comes_back(tmp_path, calibration):
    path = tmp_path / "new" / "calibration.json"
    write_calibration(path, calibration)
    kept = read_calibration(path, calibration.host)
    assert (kept.calibration, kept.unusable) == (calibration, "")
    assert json.loads(path.read_text())["schema"] == "perfkit.calibration/1"
    assert [one.name for one in path.parent.iterdir()] == ["calibration.json"]


def test_this_machine_is_itself(tmp_path, calibration):
    write_calibration(tmp_path / "c", calibration.model_copy(update={"host": identity(describe_host())}))
    assert read_calibration(tmp_path / "c", describe_host()).calibration is not None


@pytest.mark.parametrize(
    ("key", "other", "words"),
    [
        ("perfkit", "0.2.0", "of another perfkit: 0.1.0, here 0.2.0"),
        ("kernel", "6.2", "of another kernel: 6.1, here 6.2"),
        ("cpu_model", "B", "of another CPU: A CPU, here B"),
        ("usable_cpus", [1], r"of another usable CPUs: \[0, 1\], here \[1\]"),
        ("python", "3.13.0", "of another Python"),
        ("system", "Darwin", "of another system"),
        ("machine", "aarch64", "of another machine"),
    ],
)
def test_another_machines_is_not_used(tmp_path, calibration, key, other, words):
    write_calibration(tmp_path / "c", calibration)
    kept = read_calibration(tmp_path / "c", {**calibration.host, key: other})
    assert kept.calibration is None
    with pytest.raises(ValueError, match=words):
        raise ValueError(kept.unusable)


@pytest.mark.parametrize("text", ["", "{", "[]", "{}", '{"schema": "perfkit.calibration/2"}', "\x00", "[" * 100_000])
def test_what_is_no_calibration_is_not_used(tmp_path, calibration, text):
    path = tmp_path / "c"
    path.write_text(text)
    kept = read_calibration(path, calibration.host)
    assert kept.calibration is None
    assert f"{path} cannot be read as a calibration" in kept.unusable


def test_without_one_there_is_nothing_to_say(tmp_path, calibration):
    kept = read_calibration(tmp_path / "none", calibration.host)
    assert (kept.calibration, kept.unusable) == (None, "")


def test_a_later_schema_is_not_used(tmp_path, calibration):
    write_calibration(tmp_path / "c", calibration.model_copy(update={"schema_version": "perfkit.calibration/2"}))
    assert "reads perfkit.calibration/1, found 'perfkit.calibration/2'" in read_calibration(tmp_path / "c", calibration.host).unusable


def test_where_it_cannot_be_kept_the_fix_is_named(tmp_path, calibration):
    (tmp_path / "file").write_text("")
    with pytest.raises(UsageError, match="set PERFKIT_CACHE_DIR to a writable folder"):
        write_calibration(tmp_path / "file" / "calibration.json", calibration)


def test_the_users_cache_can_be_moved(tmp_path, monkeypatch):
    monkeypatch.setenv("PERFKIT_CACHE_DIR", str(tmp_path))
    assert calibration_path() == tmp_path / "calibration.json"
    monkeypatch.delenv("PERFKIT_CACHE_DIR")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "xdg"))
    assert calibration_path() == tmp_path / "xdg" / "perfkit" / "calibration.json"
