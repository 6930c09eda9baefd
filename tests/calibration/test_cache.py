"""A stored calibration is used again only on the machine and with the perfkit that made it."""

import json
import re

import jsonschema
import pytest

from perfkit.calibration.cache import CachedCalibration, calibration_path, identity, read_calibration, write_calibration
from perfkit.cli.schema_model import schema_of
from perfkit.errors import UsageError
from perfkit.fleet.messages import OF_MACHINE, Hello
from perfkit.machine.description import describe_host
from tests.closed_schema import closed


def test_a_stored_calibration_is_read_back(tmp_path, calibration):
    path = tmp_path / "new" / "calibration.json"
    write_calibration(path, calibration)
    cached = read_calibration(path, calibration.host)
    assert (cached.calibration, cached.unusable) == (calibration, "")
    document = json.loads(path.read_text())
    assert document["schema"] == "perfkit.calibration/1"
    jsonschema.validate(document, closed(schema_of("calibration")))
    assert [one.name for one in path.parent.iterdir()] == ["calibration.json"]


def test_a_calibration_of_this_machine_is_used(tmp_path, calibration):
    write_calibration(tmp_path / "c", calibration.model_copy(update={"host": identity(describe_host())}))
    assert read_calibration(tmp_path / "c", describe_host()).calibration is not None


@pytest.mark.parametrize(
    ("key", "other", "words"),
    [
        ("perfkit", "0.2.0", "with another perfkit: 0.1.0, now 0.2.0"),
        ("kernel", "6.2", "with another kernel: 6.1, now 6.2"),
        ("cpu_model", "B", "with another CPU: A CPU, now B"),
        ("usable_cpus", [1], r"with another set of usable CPUs: \[0, 1\], now \[1\]"),
        ("python", "3.13.0", "with another Python"),
        ("system", "Darwin", "with another system"),
        ("machine", "aarch64", "with another machine"),
    ],
)
def test_a_calibration_of_another_machine_is_not_used(tmp_path, calibration, key, other, words):
    write_calibration(tmp_path / "c", calibration)
    cached = read_calibration(tmp_path / "c", {**calibration.host, key: other})
    assert cached.calibration is None
    assert re.search(words, cached.unusable)


@pytest.mark.parametrize("text", ["", "{", "[]", "{}", '{"schema": "perfkit.calibration/2"}', "\x00", "[" * 100_000])
def test_a_file_that_is_no_calibration_is_not_used(tmp_path, calibration, text):
    path = tmp_path / "c"
    path.write_text(text)
    cached = read_calibration(path, calibration.host)
    assert cached.calibration is None
    assert f"{path} cannot be read as a calibration" in cached.unusable


def test_a_missing_file_is_not_reported(tmp_path, calibration):
    assert read_calibration(tmp_path / "none", calibration.host) == CachedCalibration()


def test_a_later_schema_is_not_used(tmp_path, calibration):
    write_calibration(tmp_path / "c", calibration.model_copy(update={"schema_version": "perfkit.calibration/2"}))
    assert "reads perfkit.calibration/1, found 'perfkit.calibration/2'" in read_calibration(tmp_path / "c", calibration.host).unusable


def test_a_cache_that_cannot_be_written_is_an_error_that_names_the_fix(tmp_path, calibration):
    (tmp_path / "file").write_text("")
    with pytest.raises(UsageError, match="set PERFKIT_CACHE_DIR to a writable folder"):
        write_calibration(tmp_path / "file" / "calibration.json", calibration)


def test_the_folder_of_the_cache_can_be_set(tmp_path, monkeypatch):
    monkeypatch.setenv("PERFKIT_CACHE_DIR", str(tmp_path))
    assert calibration_path() == tmp_path / "calibration.json"
    monkeypatch.delenv("PERFKIT_CACHE_DIR")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "xdg"))
    assert calibration_path() == tmp_path / "xdg" / "perfkit" / "calibration.json"


def test_the_calibration_of_a_fleets_machine_reaches_its_driver(calibration):
    hello = Hello("alpha", "1", (0,), 1000, 500, calibration)
    assert OF_MACHINE.decoded(OF_MACHINE.encoded(hello)) == hello
