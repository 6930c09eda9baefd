"""The telemetry of a run, a row a sample: CSV while the run goes on, Parquet at its end where pyarrow is installed."""

import contextlib
import csv
import importlib.util
import json
import os
import pathlib
import subprocess
import sys
from collections.abc import Generator
from typing import Any, NamedTuple

from perfkit.errors import ResultError
from perfkit.telemetry.series import Series
from perfkit.units import NS_PER_S

CSV_FILE, PARQUET_FILE = "telemetry.csv", "telemetry.parquet"
COLUMNS = ("point", "repetition", "protocol", "load", "name", "labels", "unit", "time_s", "window_s", "value")


class SampledPoint(NamedTuple):
    """One load point of one repetition, as the rows name it; instants are of the monotonic clock."""

    number: int
    repetition: int
    protocol: str
    load: str
    window_start_ns: int


class TelemetryLog:
    """Appends to `telemetry.csv` in a folder. `time_s` counts from the start of `latency.hlog`, `window_s` from that of the point's window."""

    def __init__(self, folder: pathlib.Path) -> None:
        self._folder = folder
        self._has_rows = False

    def add(self, point: SampledPoint, log_start_ns: int, series: tuple[Series, ...]) -> None:
        """Takes the series of a load point; raises OSError."""
        if not any(one.values for one in series):
            return
        with (self._folder / CSV_FILE).open("a", encoding="utf-8", newline="") as stream:
            rows = csv.writer(stream, lineterminator="\n")
            if not self._has_rows:
                rows.writerow(COLUMNS)
                self._has_rows = True
            for one in series:
                named = (*point[:4], one.name, json.dumps(dict(sorted(one.labels.items()))), one.unit)
                for time_ns, value in zip(one.times_ns, one.values, strict=True):
                    log_s, window_s = (time_ns - log_start_ns) / NS_PER_S, (time_ns - point.window_start_ns) / NS_PER_S
                    rows.writerow((*named, f"{log_s:.6f}", f"{window_s:.6f}", repr(float(value))))

    def finish(self) -> None:
        """Makes it Parquet, where pyarrow is installed; the CSV file stays where that fails, or there is none.

        In a process of its own: pyarrow takes more memory than all the rest of a run.
        """
        if self._has_rows and importlib.util.find_spec("pyarrow"):
            command = [sys.executable, "-m", __name__, str(self._folder)]
            subprocess.run(command, check=False, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)


def telemetry_file(folder: pathlib.Path) -> pathlib.Path | None:
    """The file in a result folder; None where nothing was sampled."""
    return next((file for name in (PARQUET_FILE, CSV_FILE) if (file := folder / name).exists()), None)


def read_telemetry(folder: pathlib.Path) -> dict[tuple[int, int], list[Series]]:
    """The series by point and repetition, their times in nanoseconds since the window's start; empty where there is no file.

    Raises ResultError where it cannot be read, as a Parquet file cannot without pyarrow.
    """
    file = telemetry_file(folder)
    if file is None:
        return {}
    found: dict[tuple[int, int], dict[tuple[str, str], tuple[str, list[int], list[float]]]] = {}
    try:
        with contextlib.closing(_parquet_rows(file) if file.name == PARQUET_FILE else _csv_rows(file)) as rows:  # also where one is damaged
            for row in rows:
                series = found.setdefault((int(row["point"]), int(row["repetition"])), {})
                _, times_ns, values = series.setdefault((row["name"], row["labels"]), (row["unit"] or "", [], []))
                times_ns.append(round(float(row["window_s"]) * NS_PER_S))
                values.append(float(row["value"]))
        return {
            key: [
                Series(name, unit, json.loads(labels), tuple(times_ns), tuple(values))
                for (name, labels), (unit, times_ns, values) in some.items()
            ]
            for key, some in found.items()
        }
    except ImportError:
        raise ResultError(f"{file}: reading it takes pyarrow; `pip install pyarrow` brings it") from None
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise ResultError(f"{file}: cannot be read: {error}") from None


def convert(folder: pathlib.Path) -> None:
    """Puts the Parquet file in the CSV file's place, in one step; leaves that where it cannot be read or written."""
    from pyarrow import csv as arrow_csv
    from pyarrow import parquet

    file, new = folder / CSV_FILE, folder / (PARQUET_FILE + ".new")
    try:
        with (
            arrow_csv.open_csv(file, convert_options=arrow_csv.ConvertOptions(column_types=_types())) as rows,
            parquet.ParquetWriter(new, rows.schema) as written,
        ):
            for batch in rows:
                written.write_batch(batch)
        new.replace(folder / PARQUET_FILE)
    except (OSError, ValueError):  # such as pyarrow's, of a file that was cut off
        new.unlink(missing_ok=True)
        return
    file.unlink()


def _types() -> dict[str, Any]:
    import pyarrow as pa

    kinds = {"point": pa.int32(), "repetition": pa.int32(), "time_s": pa.float64(), "window_s": pa.float64(), "value": pa.float64()}
    return {name: kinds.get(name, pa.string()) for name in COLUMNS}


def _csv_rows(file: pathlib.Path) -> Generator[dict[str, Any]]:
    with file.open(encoding="utf-8", newline="") as stream:
        yield from csv.DictReader(stream)


def _parquet_rows(file: pathlib.Path) -> Generator[dict[str, Any]]:
    from pyarrow import parquet

    with parquet.ParquetFile(os.fspath(file)) as opened:
        for batch in opened.iter_batches():
            yield from batch.to_pylist()


if __name__ == "__main__":
    convert(pathlib.Path(sys.argv[1]))
