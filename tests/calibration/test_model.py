"""How many workers a load needs, by hand-made costs; and a stored calibration is used again only on the machine and with the perfkit that made it."""

import json
import re

import pytest

from perfkit.calibration.model import (
    CachedCalibration,
    Cost,
    calibration_path,
    highest_rate_per_s,
    identity,
    read_calibration,
    spin_ns_per_request,
    transport_ns,
    workers_needed,
    write_calibration,
)
from perfkit.errors import UsageError
from perfkit.load import arrivals
from perfkit.load.arrivals import Schedule, from_timestamps
from perfkit.load.load_plan import ClosedPlan, OpenPlan
from perfkit.machine.description import describe_host
from tests.closed_schema import validator_of


def cost(protocol, tensor_bytes, cpu_us):
    times = {"service_time_p50_ns": 1, "bare_p50_ns": 1, "overhead_p50_ns": 0}
    return Cost(protocol=protocol, tensor_bytes=tensor_bytes, cpu_ns_per_request=cpu_us * 1000.0, ceiling_per_s=1.0, **times)


COSTS = (cost("http", 128, 20), cost("http", 602_112, 200), cost("grpc", 128, 25), cost("grpc", 602_112, 280))


@pytest.mark.parametrize(
    ("protocol", "tensor_bytes", "rate_per_s", "most", "workers"),
    [
        ("http", 128, 34_999, 8, 1),  # 34,999 × 20 µs = 0.69998 cores
        ("http", 128, 35_001, 8, 2),
        ("http", 128, 70_001, 8, 3),
        ("http", 128, 1e9, 8, 8),
        ("http", 128, 1e9, 1, 1),
        ("grpc", 128, 28_001, 8, 2),
        ("grpc", 602_112, 5_001, 8, 3),
        ("http", 0, 35_001, 8, 2),
        ("http", 8_700, 35_001, 8, 2),  # the middle of 128 and 602,112 as ratios is 8,779
        ("http", 8_900, 35_001, 16, 11),
        ("http", 50_000_000, 3_501, 8, 2),
        ("http", 128, 0.0, 8, 1),
    ],
)
def test_the_number_of_workers_follows_from_cost_and_rate(protocol, tensor_bytes, rate_per_s, most, workers):
    assert workers_needed(COSTS, protocol=protocol, tensor_bytes=tensor_bytes, rate_per_s=rate_per_s, max_workers=most) == workers


@pytest.mark.parametrize(
    ("rate_per_s", "workers"), [(11_600, 1), (11_700, 2), (23_400, 3)]
)  # 20 µs and 40 µs of spinning: 11,667/s a worker
def test_an_open_loop_spins_before_each_arrival_and_a_closed_one_does_not(rate_per_s, workers):
    assert spin_ns_per_request(ClosedPlan(16, 0)) == 0
    spin_ns = spin_ns_per_request(open_plan(arrivals.constant_rate(rate_per_s)))
    assert workers_needed(COSTS, protocol="http", tensor_bytes=128, rate_per_s=rate_per_s, max_workers=8, spin_ns=spin_ns) == workers


def test_a_protocol_that_was_not_calibrated_gets_one_worker():
    assert workers_needed(COSTS[:2], protocol="grpc", tensor_bytes=128, rate_per_s=1e9, max_workers=8) == 1


def open_plan(segments):
    return OpenPlan(100.0, "constant", Schedule("constant", segments), None, None)


@pytest.mark.parametrize(
    ("load", "rate_per_s"),
    [
        (ClosedPlan(16, 0), 16 / 0.002),
        (ClosedPlan(16, 6_000_000), 16 / 0.008),
        (open_plan(arrivals.constant_rate(100.0)), 100.0),
        (open_plan(arrivals.ramp(100.0, 3.0, 10.0)), 300.0),
        (open_plan(arrivals.spike(100.0, 5.0, 1.0, 1.0)), 500.0),
        (open_plan(arrivals.steps(100.0, (1.0, 4.0, 2.0), 1.0)), 400.0),
        (open_plan(arrivals.sine(100.0, 0.5, 60.0, 60.0, 256)), 150.0),
        (OpenPlan(40.0, "trace", from_timestamps([0.0, 0.05, 0.1]), None, None), 40.0),
    ],
)
def test_the_highest_rate_of_a_load(load, rate_per_s):
    assert highest_rate_per_s(load, 2_000_000) == pytest.approx(rate_per_s)


@pytest.mark.parametrize(
    ("protocol", "tensor_bytes", "expected"),
    [("http", 128, 100), ("http", 1280, 100), ("http", 1300, None), ("http", 12, None), ("http", 602_112, 900), ("grpc", 200_000, 900), ("grpc", 0, None)],
)  # fmt: skip
def test_transport_takes_as_long_as_with_a_server_that_answers_at_once_if_the_size_is_near(protocol, tensor_bytes, expected):
    costs = [one.model_copy(update={"service_time_p50_ns": 100 if one.tensor_bytes == 128 else 900}) for one in COSTS]
    assert transport_ns(costs, protocol, tensor_bytes) == expected
    assert transport_ns((), protocol, tensor_bytes) is None


def test_a_stored_calibration_is_read_back(tmp_path, calibration):
    path = tmp_path / "new" / "calibration.json"
    write_calibration(path, calibration)
    cached = read_calibration(path, calibration.host)
    assert (cached.calibration, cached.unusable) == (calibration, "")
    document = json.loads(path.read_text())
    assert document["schema"] == "perfkit.calibration/1"
    validator_of("calibration").validate(document)
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
