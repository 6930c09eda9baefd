"""The telemetry file, as Parquet and as CSV."""

import csv
import sys

import pandas as pd
import pytest

from perfkit.errors import MeasurementError, ResultError
from perfkit.process.start_module import run_module
from perfkit.result.file import ResultWriter
from perfkit.result.telemetry_file import COLUMNS, SampledPoint, TelemetryLog, convert_to_parquet, read_telemetry, telemetry_file
from perfkit.telemetry.series import Series

S = 1_000_000_000
LOG_START, WINDOW = 50 * S, 53 * S
POWER = Series("gpu_power", "W", {"gpu": 'GPU-1, "main"\n'}, (WINDOW, WINDOW + S // 4, WINDOW + S), (1.0, 2.5, 0.1 + 0.2))
LAG = Series("event_loop_lag", "", {}, (WINDOW + 7,), (3.0,))
POINT = SampledPoint(2, 1, "grpc", "concurrency 4", WINDOW)
EMPTY = Series("nothing", "", {}, (), ())


@pytest.fixture(autouse=True)
def _in_a_child_process(monkeypatch):
    monkeypatch.setattr("perfkit.process.start_module.run_module", run_module)  # unlike in other tests


@pytest.fixture(params=["parquet", "csv"])
def written(request, tmp_path, monkeypatch):
    log = TelemetryLog(tmp_path, converted_from_bytes=0)
    log.add(POINT, LOG_START, (POWER, EMPTY))
    log.add(POINT._replace(repetition=2), LOG_START, (LAG, POWER))
    with monkeypatch.context() as without:
        if request.param == "csv":
            without.setitem(sys.modules, "pyarrow", None)
        log.finish()
    assert [file.name for file in tmp_path.iterdir()] == [f"telemetry.{request.param}"]
    return tmp_path


def test_series_are_read_back_with_times_from_the_start_of_the_window(written):
    shifted = [Series(one.name, one.unit, one.labels, tuple(t - WINDOW for t in one.times_ns), one.values) for one in (POWER, LAG)]
    # times are kept to the microsecond
    shifted[1] = Series("event_loop_lag", "", {}, (0,), (3.0,))
    assert read_telemetry(written) == {(2, 1): [shifted[0]], (2, 2): [shifted[1], shifted[0]]}


def test_pandas_reads_the_columns(written):
    file = telemetry_file(written)
    assert file
    frame = pd.read_parquet(file) if file.suffix == ".parquet" else pd.read_csv(file)
    assert tuple(frame.columns) == COLUMNS
    assert frame.value.tolist() == [1.0, 2.5, 0.1 + 0.2, 3.0, 1.0, 2.5, 0.1 + 0.2]
    assert frame.time_s.tolist()[:3] == [3.0, 3.25, 4.0]
    assert (frame.window_s == frame.time_s - 3).all()
    assert set(frame.load) == {"concurrency 4"}


def test_only_a_long_file_is_converted(tmp_path):
    for folder, seconds, kind in ((tmp_path / "short", 40_000, "csv"), (tmp_path / "long", 60_000, "parquet")):
        folder.mkdir()
        log = TelemetryLog(folder)
        times_ns = tuple(WINDOW + second * S for second in range(seconds))
        log.add(POINT, LOG_START, (Series("event_loop_lag", "ns", {}, times_ns, tuple(map(float, range(seconds)))),))
        log.finish()
        assert [file.name for file in folder.iterdir()] == [f"telemetry.{kind}"]


def test_a_run_without_samples_has_no_file(tmp_path):
    log = TelemetryLog(tmp_path)
    log.add(POINT, LOG_START, (EMPTY,))
    log.finish()
    assert list(tmp_path.iterdir()) == []
    assert (telemetry_file(tmp_path), read_telemetry(tmp_path)) == (None, {})


def test_a_result_folder_has_the_file_from_the_first_point_on_and_may_be_replaced(tmp_path):
    for _ in range(2):
        writer = ResultWriter(tmp_path / "out", 0.0)
        writer.log_series(POINT, LOG_START, (POWER,))
        with (writer.partial / "telemetry.csv").open() as stream:
            assert len(list(csv.reader(stream))) == 4
        (writer.partial / "result.json").write_text("{}")
        writer.commit()
    assert {file.name for file in (tmp_path / "out").iterdir()} == {
        "checksums.sha256", "latency.hlog", "result.json", "telemetry.csv",
    }  # fmt: skip


def test_a_file_that_cannot_be_written_is_reported_when_the_point_is_saved(tmp_path, result):
    writer = ResultWriter(tmp_path / "out", 0.0)
    (writer.partial / "telemetry.csv").mkdir()
    writer.log_series(POINT, LOG_START, (POWER,))
    with pytest.raises(MeasurementError, match="cannot be written: Is a directory"):
        writer.save(result)
    writer.discard()


def test_a_csv_file_that_is_cut_off_is_not_converted(tmp_path):
    log = TelemetryLog(tmp_path)
    log.add(POINT, LOG_START, (POWER,))
    with (tmp_path / "telemetry.csv").open("a") as stream:
        stream.write("2,1,grpc\n")
    convert_to_parquet(tmp_path)
    assert [file.name for file in tmp_path.iterdir()] == ["telemetry.csv"]


@pytest.mark.parametrize(
    "text",
    [
        "",
        "point,value\n1,2\n",
        ",".join(COLUMNS) + "\n1,x,http,l,n,{},u,0,0,1\n",
        ",".join(COLUMNS) + "\n1,1,http,l,n,{,u,0,0,1\n",
        ",".join(COLUMNS) + "\n1,1,http,l,n,{},u,0,0,nan\n",
        ",".join(COLUMNS) + "\n1,1,http\n",
    ],
)
def test_a_damaged_file_is_named(tmp_path, text):
    (tmp_path / "telemetry.csv").write_text(text)
    with pytest.raises(ResultError, match=r"telemetry\.csv: cannot be read"):
        read_telemetry(tmp_path)


def test_reading_parquet_without_pyarrow_names_the_package(tmp_path, monkeypatch):
    (tmp_path / "telemetry.parquet").write_bytes(b"")
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    with pytest.raises(ResultError, match="pyarrow is needed"):
        read_telemetry(tmp_path)
