"""The telemetry of a run, one row per sample: CSV, and Parquet in the end if it is long and pyarrow is installed."""

import contextlib
import csv
import importlib.util
import json
import os
import pathlib
import sys
import warnings
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple, cast

from perfkit.errors import ResultError
from perfkit.input_file import bounded_lines, open_input
from perfkit.parquet_file import open_parquet
from perfkit.result.checksums import verify
from perfkit.telemetry.series import Series
from perfkit.units import NS_PER_S

if TYPE_CHECKING:
    import pandas as pd

CSV_FILE, PARQUET_FILE = "telemetry.csv", "telemetry.parquet"
_CONVERTED_FROM_BYTES = 4 * 2**20  # importing pyarrow alone takes a second, in which as much is read as CSV
_CONVERTED_WITHIN_S = 120
_LARGEST_BYTES, _LARGEST = 2**29, 1e9
_MOST_ROWS, _MOST_SERIES = 2**24, 100_000
_TYPES = {"point": "int32", "repetition": "int32", "time_s": "float64", "window_s": "float64", "value": "float64"}
_LIMITS = {
    "point": (0, 1e6), "repetition": (0, 1e6), "time_s": (-_LARGEST, _LARGEST), "window_s": (-_LARGEST, _LARGEST), "value": (-1e18, 1e18),
}  # fmt: skip
"""The lowest and the highest number that could be sampled."""
COLUMNS = ("point", "repetition", "protocol", "load", "name", "labels", "unit", "time_s", "window_s", "value")


class SampledPoint(NamedTuple):
    """One load point of one repetition, as the rows name it; the window starts at an instant of the monotonic clock."""

    number: int
    repetition: int
    protocol: str
    load: str
    window_start_ns: int


class TelemetryLog:
    """Appends to `telemetry.csv` in a folder.

    `time_s` counts from the start of `latency.hlog`, `window_s` from the start of the point's window. pandas would be too heavy
    here: this runs in the process that sends the load.
    """

    def __init__(self, folder: pathlib.Path, converted_from_bytes: int = _CONVERTED_FROM_BYTES) -> None:
        self._folder, self._converted_from_bytes = folder, converted_from_bytes
        file = folder / CSV_FILE
        self._has_rows = file.exists() and file.stat().st_size > 0
        """Whether it has rows, also those of a run that is continued."""

    def add(self, point: SampledPoint, log_start_ns: int, series: tuple[Series, ...]) -> None:
        """Adds the series of a load point; raises OSError."""
        if not any(one.times_ns for one in series):
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

    def sync(self) -> int:
        """Waits until the disk has the rows, and returns the size of the file; 0 without one. Raises OSError."""
        if not self._has_rows:
            return 0
        with (self._folder / CSV_FILE).open("rb") as stream:
            os.fsync(stream.fileno())
            return os.fstat(stream.fileno()).st_size

    def finish(self) -> None:
        """Converts a long file to Parquet if pyarrow is installed; if that fails, or takes more than two minutes, the CSV file stays.

        A child process does it, since pyarrow takes more memory than the rest of a run.
        """
        is_long = self._has_rows and (self._folder / CSV_FILE).stat().st_size >= self._converted_from_bytes
        if is_long and importlib.util.find_spec("pyarrow"):
            from perfkit.process.start_module import run_module  # whose modules the process that draws reports does without

            run_module(__name__, str(self._folder.absolute()), within_s=_CONVERTED_WITHIN_S)


def telemetry_file(folder: pathlib.Path) -> pathlib.Path | None:
    """The file in a result folder; None if nothing was sampled."""
    return next((file for name in (PARQUET_FILE, CSV_FILE) if (file := folder / name).exists()), None)


def read_telemetry(folder: pathlib.Path) -> dict[tuple[int, int], list[Series]]:
    """The series by point and repetition, with times in nanoseconds since the window's start; empty without a file.

    Raises ResultError for a file that cannot be read, as a Parquet file without pyarrow.
    """
    file = telemetry_file(folder)
    if file is None:
        return {}
    series_of: dict[tuple[int, int], list[Series]] = {}
    for group in _parquet_groups(file) if file.name == PARQUET_FILE else _csv_groups(file):
        times_ns = tuple(round(window_s * NS_PER_S) for window_s in group.window_s)
        series = Series(group.name, group.unit, _parse_labels(file, group.labels), times_ns, tuple(group.samples))
        series_of.setdefault((group.point, group.repetition), []).append(series)
    return series_of


class _Group(NamedTuple):
    """The rows of one series; `labels` are JSON."""

    point: int
    repetition: int
    name: str
    labels: str
    unit: str
    window_s: list[float]
    samples: list[float]


def _csv_groups(file: pathlib.Path) -> Sequence[_Group]:
    """The series of a CSV file, without pandas, whose import takes longer than a report."""
    groups: dict[tuple[str, ...], _Group] = {}
    with _naming_damage(file), open_input(file) as opened:
        verify(file)
        rows = csv.reader(bounded_lines(opened))
        place = {name: number for number, name in enumerate(next(rows, ()))}
        if not place.keys() >= set(COLUMNS):
            raise ValueError(f"its first line does not name the columns {', '.join(COLUMNS)}")
        numbers = [(place[name], name, *limits) for name, limits in _LIMITS.items()]
        key_places = [place[name] for name in ("point", "repetition", "name", "labels")]
        unit, window_s, value = place["unit"], place["window_s"], place["value"]
        for row in rows:
            if len(row) != len(place):
                raise ValueError(f"line {rows.line_num}: expected {len(place)} cells, found {len(row)}")
            for number, name, lowest, highest in numbers:
                if not lowest <= float(row[number]) <= highest:
                    raise ValueError(f"{name}: a number is not finite, or larger than anything that could be sampled")
            key = tuple(row[number] for number in key_places)
            if (group := groups.get(key)) is None:
                point, repetition, name, labels = key
                group = groups[key] = _Group(int(point), int(repetition), name, labels, row[unit], [], [])
            if rows.line_num > _MOST_ROWS or len(groups) > _MOST_SERIES:
                raise ValueError(f"it has more than {_MOST_ROWS:,} rows or {_MOST_SERIES:,} series; perfkit writes no such file")
            group.window_s.append(float(row[window_s]))
            group.samples.append(float(row[value]))
    return list(groups.values())


def _parquet_groups(file: pathlib.Path) -> Iterator[_Group]:
    for _, rows in _read_frame(file).groupby(["point", "repetition", "name", "labels"], sort=False, observed=True):
        first = rows.iloc[0]
        texts = (first["name"], first["labels"], first["unit"])
        yield _Group(int(first["point"]), int(first["repetition"]), *texts, rows["window_s"].tolist(), rows["value"].tolist())


def telemetry_frame(folder: pathlib.Path) -> "pd.DataFrame":
    """All rows and columns of the telemetry file; no rows without a file. Raises ResultError like `read_telemetry`."""
    import pandas as pd

    file = telemetry_file(folder)
    if file is None:
        return pd.DataFrame({name: pd.Series(dtype=_TYPES.get(name, "object")) for name in COLUMNS})
    return _read_frame(file)[list(COLUMNS)]


def convert_to_parquet(folder: pathlib.Path) -> None:
    """Replaces the CSV file by a Parquet file in one step; the CSV file stays if it cannot be read or the other not written."""
    import pyarrow as pa
    from pyarrow import csv as arrow_csv
    from pyarrow import parquet

    text = pa.dictionary(pa.int32(), pa.string())
    types = {name: pa.type_for_alias(_TYPES[name]) if name in _TYPES else text for name in COLUMNS}
    file, new = folder / CSV_FILE, folder / (PARQUET_FILE + ".new")
    try:
        parquet.write_table(arrow_csv.read_csv(file, convert_options=arrow_csv.ConvertOptions(column_types=types)), new)
        new.replace(folder / PARQUET_FILE)
    except (OSError, ValueError):  # pyarrow's errors are ValueErrors too
        new.unlink(missing_ok=True)
        return
    file.unlink()


def _read_frame(file: pathlib.Path) -> "pd.DataFrame":
    """All rows; raises ResultError for a damaged file, and without pyarrow for Parquet."""
    import pandas as pd

    with _naming_damage(file), warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of numbers that the checks below refuse
        verify(file)
        if file.name == PARQUET_FILE:
            frame = _read_parquet(file)
        else:
            # texts repeat in nearly every row: as categories they take a byte or two
            with open_input(file) as opened:
                frame = pd.read_csv(opened, dtype={name: _TYPES.get(name, "category") for name in COLUMNS}, keep_default_na=False)
        _check_rows(frame)
    return frame


@contextlib.contextmanager
def _naming_damage(file: pathlib.Path) -> Iterator[None]:
    """Turns whatever a damaged file raises into a ResultError."""
    try:
        yield
    except ResultError:
        raise
    except ImportError:
        raise ResultError(f"{file}: pyarrow is needed to read Parquet; `pip install pyarrow`") from None
    except Exception as error:  # noqa: BLE001 - pandas, pyarrow and csv raise whatever their parsers meet
        first = (str(error).splitlines() or [type(error).__name__])[0]
        raise ResultError(f"{file}: cannot be read: {first}; the file was damaged or edited: restore it, or remove it") from None


def _read_parquet(file: pathlib.Path) -> "pd.DataFrame":
    """All rows of a Parquet file; raises ValueError for more than perfkit writes."""
    import pyarrow as pa

    with open_input(file) as opened:
        _, batches = open_parquet(opened, COLUMNS)
        read, rows, size_bytes = list[Any](), 0, 0
        for batch in batches:
            rows, size_bytes = rows + batch.num_rows, size_bytes + batch.nbytes
            if rows > _MOST_ROWS or size_bytes > _LARGEST_BYTES:
                raise ValueError(
                    f"it has more than {_MOST_ROWS:,} rows or {_LARGEST_BYTES // 2**20} MiB of values; perfkit writes no such file"
                )
            read.append(batch)
    return cast("pd.DataFrame", pa.Table.from_batches(read).unify_dictionaries().to_pandas())


def _check_rows(frame: "pd.DataFrame") -> None:
    """Raises ValueError, KeyError or TypeError for a row that no sampler gave."""
    for name, (lowest, highest) in _LIMITS.items():
        column = frame[name].astype("float64")
        if not column.between(lowest, highest).all():  # false for NaN, too
            raise ValueError(f"{name}: a number is not finite, or larger than anything that could be sampled")
    for name in ("name", "labels", "unit"):
        if not frame[name].map(lambda text: isinstance(text, str)).astype(bool).all():
            raise ValueError(f"{name}: expected text")


def _parse_labels(file: pathlib.Path, text: str) -> dict[str, str]:
    try:
        labels = json.loads(text)
    except (ValueError, RecursionError):
        labels = None
    if not isinstance(labels, dict) or not all(isinstance(value, str) for value in labels.values()):
        raise ResultError(
            f"{file}: cannot be read: labels: expected a JSON object of texts, found {text[:50]!r}; the file was damaged or edited"
        )
    return labels


if __name__ == "__main__":
    convert_to_parquet(pathlib.Path(sys.argv[1]))
