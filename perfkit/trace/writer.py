"""Writes traces row by row: each row is in the file, whole, as soon as it is written, whatever happens to the writer then."""

import csv
import errno
import io
import json
import os
import pathlib
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import NamedTuple

from perfkit.errors import StorageError, UsageError
from perfkit.trace.payloads import payload_folder, payload_name
from perfkit.trace.reader import COLUMNS, guarded_cell

SUFFIXES = (".jsonl", ".csv", ".parquet")
_encode = json.JSONEncoder(separators=(",", ":")).encode
_PARQUET_ROWS = 65_536


class TraceRow(NamedTuple):
    """A request as a row of a trace; the fields are the columns."""

    timestamp_ns: int
    model: str
    version: str
    call: str
    shapes: Mapping[str, Sequence[int]]
    payload: str


class TraceWriter:
    """Appends requests to a new trace; of a Parquet file, which cannot be read before its end, `complete_trace` makes the JSON lines then.

    Raises UsageError if the file exists or cannot be made.
    """

    def __init__(self, file: pathlib.Path) -> None:
        if file.suffix not in SUFFIXES:
            raise UsageError(f"--out {file}: expected a name that ends in {', '.join(SUFFIXES)}")
        self.file = file
        self.distinct_payloads = self.payload_bytes = 0
        self._rows_file = _rows_file(file)
        self._payloads = payload_folder(file)
        self._line: Callable[[TraceRow], str] = _csv_line if file.suffix == ".csv" else _json_line
        for place in (file, self._rows_file, self._payloads):
            if place.exists():
                raise UsageError(f"--out {file}: {place} exists already: remove it, or give another name")
        if file.suffix == ".parquet":
            _check_pyarrow(file)
        try:
            file.parent.mkdir(parents=True, exist_ok=True)
            self._descriptor = os.open(self._rows_file, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_APPEND, 0o644)
        except OSError as error:
            raise UsageError(f"--out {file}: cannot be written: {error.strerror}") from None
        if file.suffix == ".csv":
            self._append(",".join(COLUMNS) + "\n")

    def write(self, rows: Iterable[TraceRow]) -> None:
        """Appends rows in one step; raises StorageError if they cannot be written, and the file then ends with the last whole row."""
        self._append("".join(map(self._line, rows)))

    def keep_payload(self, payload: bytes) -> str:
        """Keeps a payload, unless it is kept already, and returns its name; raises StorageError."""
        name = payload_name(payload)
        place = self._payloads / name
        if not place.exists():
            try:
                self._payloads.mkdir(exist_ok=True)
                new = place.with_suffix(".new")
                new.write_bytes(payload)
                new.replace(place)
            except OSError as error:
                raise StorageError(f"the payload {place} cannot be written: {error.strerror}") from None
            self.distinct_payloads += 1
            self.payload_bytes += len(payload)
        return name

    def close(self) -> None:
        """Closes the file of rows."""
        os.close(self._descriptor)

    def _append(self, text: str) -> None:
        encoded, written, reason = text.encode(), 0, os.strerror(errno.ENOSPC)
        start = os.fstat(self._descriptor).st_size
        try:
            written = os.write(self._descriptor, encoded)
        except OSError as error:
            reason = error.strerror or str(error)
        if written < len(encoded):
            os.ftruncate(self._descriptor, start)  # a part of a row could be read as another row
            raise StorageError(f"{self._rows_file} cannot be written: {reason}")


def complete_trace(file: pathlib.Path) -> None:
    """Makes a Parquet file of the rows that a writer has closed; raises StorageError if it cannot be written, and the JSON lines are then kept."""
    rows = _rows_file(file)
    if rows != file:
        try:
            _convert(rows, file)
        except (OSError, ValueError) as error:  # ValueError: the writer was killed within a row
            file.unlink(missing_ok=True)
            raise StorageError(f"{file} cannot be written: {error}; the trace is in {rows}") from None
        rows.unlink()


def _rows_file(file: pathlib.Path) -> pathlib.Path:
    return file.with_suffix(".jsonl") if file.suffix == ".parquet" else file


def _json_line(row: TraceRow) -> str:
    return _encode({name: value for name, value in row._asdict().items() if value}) + "\n"


def _csv_line(row: TraceRow) -> str:
    text = io.StringIO()
    shapes = _encode(row.shapes) if row.shapes else ""
    cells = row._replace(model=guarded_cell(row.model), version=guarded_cell(row.version), shapes=shapes)  # type: ignore[arg-type]  # as text
    # Python leaves a carriage return unquoted, which would end the row
    has_return = "\r" in row.model + row.version
    csv.writer(text, lineterminator="\n", quoting=csv.QUOTE_ALL if has_return else csv.QUOTE_MINIMAL).writerow(cells)
    return text.getvalue()


def _check_pyarrow(file: pathlib.Path) -> None:
    try:
        import pyarrow  # noqa: F401 - only whether it is there
    except ImportError:
        raise UsageError(f"--out {file}: pyarrow is needed to write Parquet: pip install pyarrow, or record .jsonl") from None


def _convert(rows: pathlib.Path, file: pathlib.Path) -> None:
    """Writes JSON lines as Parquet, some rows at a time."""
    import pyarrow as pa
    from pyarrow import parquet

    schema = pa.schema([(name, pa.int64() if name == "timestamp_ns" else pa.string()) for name in COLUMNS])
    with rows.open(encoding="utf-8") as lines, parquet.ParquetWriter(file, schema) as writer:
        while batch := [json.loads(line) for _, line in zip(range(_PARQUET_ROWS), lines, strict=False)]:
            for row in batch:
                row["shapes"] = _encode(row["shapes"]) if "shapes" in row else None
            writer.write_table(pa.Table.from_pylist(batch, schema))
