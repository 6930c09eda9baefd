"""Reads traces: CSV, JSON lines and Parquet with named columns, and the two files that perf_analyzer replays."""

import csv
import dataclasses
import functools
import json
import math
import pathlib
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, BinaryIO, Literal, TypeAlias

from perfkit.digits import whole_number
from perfkit.errors import ScenarioError
from perfkit.input_file import bounded_lines, open_input, read_bounded
from perfkit.machine.limits import MemoryBudget
from perfkit.parquet_file import open_parquet
from perfkit.trace.recorded import MAX_INSTANT_NS, Content, RecordedTrace, TraceBuilder
from perfkit.units import NS_PER_S

Format: TypeAlias = Literal["auto", "csv", "jsonl", "parquet", "request_intervals", "fixed_schedule"]
Row: TypeAlias = Mapping[str, Any]
Unit: TypeAlias = Literal["ns", "us", "ms", "s", "iso"]

COLUMNS = ("timestamp_ns", "model", "version", "call", "shapes", "payload")
"""The columns that `perfkit record` writes, in this order."""
_SCALES_NS: dict[Unit, int] = {"ns": 1, "us": 1_000, "ms": 1_000_000, "s": NS_PER_S, "iso": 1}
_FORMATS: dict[str, Format] = {
    ".csv": "csv", ".jsonl": "jsonl", ".ndjson": "jsonl", ".parquet": "parquet", ".json": "fixed_schedule",
}  # fmt: skip
# a row takes 16 bytes in memory, and more in any file; its content is kept once for all that are equal
_MEMORY_FACTOR = 3
_encode = json.JSONEncoder(separators=(",", ":")).encode  # json.dumps would create an encoder for every row
_ROW_BYTES = 16
_DECIMAL = re.compile(r"[+-]?(?:[0-9]{1,40}\.?[0-9]{0,40}|\.[0-9]{1,40})(?:[eE][+-]?[0-9]{1,3})?")
_ISO, _ZONE, _MOST_SHOWN = "a date and time such as 2026-01-31T12:00:00.250Z", re.compile(r"\s*(?:UTC|GMT)$"), 20
_LONGEST_LINE_BYTES, _LARGEST_SCHEDULE_BYTES = 2**26, 2**28
# names that begin so are written behind an apostrophe, or a spreadsheet may execute them; those with an apostrophe, too, to be read back as they were
_GUARDED = ("=", "+", "-", "@", "\t", "\r", "\n", "'")


@dataclasses.dataclass(frozen=True, slots=True)
class TimeColumn:
    """The column with the requests' instants, and its unit."""

    name: str
    unit: Unit


@dataclasses.dataclass(frozen=True, slots=True)
class _Instant:
    """A value of a Parquet file's timestamp column, whose type says its unit."""

    time_ns: int


_KNOWN_COLUMNS: dict[str, Unit] = {
    "timestamp_ns": "ns", "timestamp_us": "us", "timestamp_ms": "ms", "timestamp_s": "s", "timestamp": "iso", "TIMESTAMP": "iso", "Timestamp": "s",
}  # fmt: skip
_MOONCAKE = ("input_length", "output_length")  # beside times in milliseconds
_LENGTHS = (("ContextTokens", "GeneratedTokens"), ("Request tokens", "Response tokens"), _MOONCAKE)
"""The columns with the tokens of prompts and answers, as the public traces of Azure, BurstGPT and Mooncake name them."""
_MOST_TOKENS = 10_000_000


def read_trace(
    file: pathlib.Path, given: Format = "auto", *, model: str = "", column: TimeColumn | None = None, budget: MemoryBudget | None = None
) -> RecordedTrace:
    """Reads a trace; the format is by default that of the file's suffix.

    With `model` only the requests for that model are kept. `column` is that of the instants; by default it is known by its name. Raises ScenarioError, which names the file, the line and what was expected.
    """
    kind = _FORMATS.get(file.suffix.lower()) if given == "auto" else given
    if kind is None:
        suffixes = ", ".join(_FORMATS)
        raise ScenarioError(
            f"load.replay.trace: the suffix of {file} does not say its format: use one of {suffixes}, or give load.replay.format; "
            "perf_analyzer's file of intervals has format: request_intervals"
        )
    if column is not None and kind in ("request_intervals", "fixed_schedule"):
        raise ScenarioError(f"load.replay.columns: the format {kind} has columns of its own: remove columns, or correct load.replay.format")
    read: dict[Format, Callable[[pathlib.Path, MemoryBudget], TraceBuilder]] = {
        "csv": functools.partial(_read_csv, column=column),
        "jsonl": functools.partial(_read_json_lines, column=column),
        "parquet": functools.partial(_read_parquet, column=column),
        "request_intervals": _read_intervals,
        "fixed_schedule": _read_fixed_schedule,
    }
    try:
        builder = read[kind](file, budget or MemoryBudget())
    except FileNotFoundError:
        raise ScenarioError(f"load.replay.trace: the file {file} does not exist") from None
    except (OSError, UnicodeDecodeError) as error:
        raise ScenarioError(f"load.replay.trace: {file} cannot be read: {error}") from None
    if not len(builder):
        raise ScenarioError(f"load.replay.trace: {file} contains no requests")
    if kind == "request_intervals":  # the first interval precedes the first request, and the last request ends the period
        trace = builder.build(start_ns=0)
        return dataclasses.replace(trace, period_ns=trace.span_ns or NS_PER_S)
    trace = builder.build(start_ns=0 if kind == "fixed_schedule" else None, model=model)
    _check_models(trace, file, model)
    if trace.span_ns > MAX_INSTANT_NS:
        raise ScenarioError(f"load.replay.trace: {file} spans more than 30 years: are its times in the unit that their column names?")
    return trace


def _check_models(trace: RecordedTrace, file: pathlib.Path, model: str) -> None:
    """Raises ScenarioError if the trace has several models and none is chosen, or not the chosen one."""
    names = sorted(trace.requests_by_model.items(), key=lambda one: -one[1])
    listed = ", ".join(f"{name or '(none)'} ({count:,})" for name, count in names[:10]) + (", …" if len(names) > 10 else "")
    if model and model not in trace.requests_by_model:
        raise ScenarioError(f"load.replay.model: {file} has no requests for '{model}'; it has {listed}")
    if not model and len(names) > 1:
        raise ScenarioError(
            f"load.replay.trace: {file} has requests for {len(names)} models, and a load point sends to one: {listed}. Choose one with "
            "load.replay.model; its requests keep their instants in the whole trace"
        )


def _read_csv(file: pathlib.Path, budget: MemoryBudget, column: TimeColumn | None) -> TraceBuilder:
    with _open(file, budget) as opened:
        rows = csv.reader(bounded_lines(opened), strict=True)
        try:
            names = [name.strip() for name in next(rows, [])]
            return _build(file, ((rows.line_num, _csv_row(names, row)) for row in rows if row), column, names)
        except UnicodeDecodeError:
            raise
        except (csv.Error, ValueError) as error:
            raise ScenarioError(f"load.replay.trace: {file}:{rows.line_num}: the row does not fit the header: {error}") from None


def _csv_row(names: Sequence[str], row: Sequence[str]) -> Row:
    if len(row) != len(names):
        raise ValueError(f"it has {len(row):,} value{'s' * (len(row) != 1)}, and the header has {len(names):,} names")
    return dict(zip(names, map(_unguarded, row), strict=True))


def guarded_cell(text: str) -> str:
    """A name as a cell of a recorded CSV file, with an apostrophe before what a spreadsheet would execute; the reader takes it off again."""
    return f"'{text}" if text.startswith(_GUARDED) else text


def _unguarded(cell: str) -> str:
    return cell[1:] if cell.startswith("'") and cell[1:].startswith(_GUARDED) else cell


def _read_json_lines(file: pathlib.Path, budget: MemoryBudget, column: TimeColumn | None) -> TraceBuilder:
    with _open(file, budget) as opened:
        return _build(file, _json_rows(file, bounded_lines(opened, _LONGEST_LINE_BYTES)), column)


def _json_rows(file: pathlib.Path, lines: Iterable[str]) -> Iterator[tuple[int, Row]]:
    for number, line in enumerate(lines, 1):
        if not line.strip():
            continue
        try:
            row = json.loads(line)
        except (ValueError, RecursionError) as error:
            raise ScenarioError(f"load.replay.trace: {file}:{number}: not JSON: {error}") from None
        if not isinstance(row, dict):
            raise ScenarioError(f"load.replay.trace: {file}:{number}: expected an object for each request, found {line.strip()[:50]!r}")
        yield number, row


def _read_parquet(file: pathlib.Path, budget: MemoryBudget, column: TimeColumn | None) -> TraceBuilder:
    try:
        import pyarrow as pa
    except ImportError:
        raise ScenarioError(
            f"load.replay.trace: pyarrow is needed to read {file}: pip install pyarrow, or convert the trace to CSV"
        ) from None
    with _open(file, budget) as opened:
        try:
            own = () if column is None else (column.name,)
            names, batches = open_parquet(
                opened, (*COLUMNS, *_KNOWN_COLUMNS, *(name for names in _LENGTHS for name in names), "request", *own)
            )
            return _build(file, _parquet_rows(batches, budget), column, names)
        except (pa.ArrowException, OSError, MemoryError) as error:
            raise ScenarioError(f"load.replay.trace: {file} cannot be read as Parquet: {(str(error).splitlines() or [''])[0]}") from None


def _parquet_rows(batches: Iterable[Any], budget: MemoryBudget) -> Iterator[tuple[int, Row]]:
    """The rows; memory is reserved for them, and for each new text, as they come."""
    import pyarrow as pa

    number, texts = 0, set[str]()
    for batch in batches:
        columns, new_bytes = {}, _ROW_BYTES * batch.num_rows
        for name, column in zip(batch.schema.names, batch.columns, strict=True):
            if pa.types.is_timestamp(column.type):
                times_ns = column.cast(pa.timestamp("ns", column.type.tz)).cast(pa.int64()).to_pylist()
                columns[name] = [None if time_ns is None else _Instant(time_ns) for time_ns in times_ns]
            elif pa.types.is_dictionary(column.type):
                values = column.dictionary.to_pylist()
                new_bytes += sum(len(text) for text in values if text is not None and text not in texts)
                texts.update(text for text in values if text is not None)
                columns[name] = [None if index is None else values[index] for index in column.indices.to_pylist()]
            else:
                columns[name] = column.to_pylist()
        _reserve(new_bytes, budget)
        for values in zip(*columns.values(), strict=True):
            number += 1
            yield number, dict(zip(columns, values, strict=True))


def _build(
    file: pathlib.Path, rows: Iterable[tuple[int, Row]], column: TimeColumn | None, names: Iterable[str] | None = None
) -> TraceBuilder:
    """The rows as a trace; `names` are those of the columns, where the file has a header."""
    builder = TraceBuilder()
    time = None if names is None else _time_column(file, names, column)
    texts: list[tuple[int, str, str, Content]] = []
    for number, row in rows:
        try:
            time = time or _time_column(file, row, column)
            given = row.get(time.name)
            model, content = _optional_text(row, "model"), _content(row)
            if isinstance(given, _Instant):
                builder.add(given.time_ns, model, content)
            elif time.unit == "iso":
                texts.append((number, _iso_text(time.name, given), model, content))
            else:
                builder.add(_time_ns(given, _SCALES_NS[time.unit]), model, content)
        except (ValueError, OverflowError, TypeError) as error:
            raise ScenarioError(f"load.replay.trace: {file}:{number}: {error}") from None
    if texts:
        for (_, _, model, content), time_ns in zip(texts, _parse_iso(file, texts), strict=True):
            builder.add(time_ns, model, content)
    return builder


def _time_column(file: pathlib.Path, names: Iterable[str], given: TimeColumn | None) -> TimeColumn:
    names = list(names)
    shown = ", ".join(repr(name[:40]) for name in names[:_MOST_SHOWN]) + (", …" if len(names) > _MOST_SHOWN else "")
    if given is not None:
        if given.name not in names:
            raise ScenarioError(f"load.replay.columns.time: {file} has no column {given.name!r}; it has {shown or 'none'}")
        return given
    if {"timestamp", *_MOONCAKE} <= {*names}:
        return TimeColumn("timestamp", "ms")
    found = [name for name in names if name in _KNOWN_COLUMNS]
    if len(found) != 1:
        raise ScenarioError(
            f"load.replay.trace: {file}: expected one column with the instants, one of {', '.join(_KNOWN_COLUMNS)} (ISO 8601), found "
            f"{' and '.join(found) or 'none'} among {shown or 'no columns'}: name the one that has them, such as "
            "load.replay.columns: {time: NAME, unit: s}"
        )
    return TimeColumn(found[0], _KNOWN_COLUMNS[found[0]])


def _time_ns(value: object, scale_ns: int) -> int:
    if isinstance(value, str):
        value = value.strip()
        if (number := whole_number(value.removeprefix("-"))) is not None:
            return (-number if value.startswith("-") else number) * scale_ns
        if not _DECIMAL.fullmatch(value):
            raise ValueError(f"expected a number as the request's instant, found {value[:50]!r}")
        value = float(value)
    if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value):
        raise ValueError(f"expected a number as the request's instant, found {value!r}")
    return value * scale_ns if isinstance(value, int) else round(value * scale_ns)


def _iso_text(name: str, value: object) -> str:
    """A date and time in ISO 8601, whose decimals may follow a comma there, and whose zone some write in words."""
    if not isinstance(value, str) or value.strip().replace(".", "", 1).isdecimal():
        raise ValueError(
            f"{name}: expected {_ISO}, found {value!r:.60}; of numbers give the unit, such as load.replay.columns: {{time: {name}, unit: ms}}"
        )
    return _ZONE.sub("Z", value.strip()).replace(",", ".")


def _parse_iso(file: pathlib.Path, texts: Sequence[tuple[int, str, str, Content]]) -> Iterable[int]:
    import pandas as pd  # takes a while to import, and only these traces need it

    def parsed(some: list[str]) -> list[int]:
        times_ns: list[int] = pd.DatetimeIndex(pd.to_datetime(some, utc=True, format="ISO8601")).as_unit("ns").asi8.tolist()
        return times_ns

    def is_valid(low: int, high: int) -> bool:
        try:
            parsed([text for _, text, *_ in texts[low:high]])
        except (ValueError, OverflowError):
            return False
        return True

    try:
        return parsed([text for _, text, *_ in texts])
    except (ValueError, OverflowError):
        low, high = 0, len(texts)
        while high - low > 1:  # the first that cannot be read lies between them
            middle = (low + high) // 2
            low, high = (middle, high) if is_valid(low, middle) else (low, middle)
        number, text, *_ = texts[low]
        leap = "; a leap second counts as the one before" if ":60" in text else ""
        raise ScenarioError(f"load.replay.trace: {file}:{number}: expected {_ISO}, found {text[:40]!r}{leap}") from None


def _content(row: Row) -> Content:
    return Content(_optional_text(row, "payload"), _json_text(row, "shapes"), _json_text(row, "request"), lengths=_lengths(row))


def _lengths(row: Row) -> str:
    """The tokens of the prompt and of the answer; empty without them."""
    for names in _LENGTHS:
        if all(row.get(name) is not None for name in names):
            found = [int(_time_ns(row[name], 1)) for name in names]
            if not all(0 <= number <= _MOST_TOKENS for number in found):
                raise ValueError(f"{' and '.join(names)}: expected numbers of tokens up to {_MOST_TOKENS:,}, found {found}")
            return ",".join(map(str, found))
    return ""


def _optional_text(row: Row, name: str) -> str:
    value = row.get(name)
    if value is None:
        return ""
    if not isinstance(value, str):
        raise TypeError(f"{name}: expected text, found {value!r}")
    return value


def _json_text(row: Row, name: str) -> str:
    """A JSON object, given as one or as its text, in one spelling for equal ones."""
    value = row.get(name)
    if not value:
        return ""
    if isinstance(value, str):
        value = _parse_object(value)
    if not isinstance(value, dict):
        raise TypeError(f"{name}: expected a JSON object, found {row[name]!r:.80}")
    return _encode(value)


@functools.lru_cache(maxsize=256)
def _parse_object(text: str) -> object:
    """The JSON value of a text; the same one recurs in most rows."""
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        return None


def _read_intervals(file: pathlib.Path, budget: MemoryBudget) -> TraceBuilder:
    """perf_analyzer's `--request-intervals`: a line for each gap in microseconds, the first of which precedes the first request."""
    builder, time_ns = TraceBuilder(), 0
    with _open(file, budget) as opened:
        for number, line in enumerate(bounded_lines(opened), 1):
            if not (text := line.strip()):
                continue
            if (interval_us := whole_number(text)) is None:
                raise ScenarioError(f"load.replay.trace: {file}:{number}: expected a whole number of microseconds, found {text[:40]!r}")
            time_ns += interval_us * 1000
            if time_ns > MAX_INSTANT_NS:
                raise ScenarioError(f"load.replay.trace: {file}:{number}: the intervals add up to more than 30 years")
            builder.add(time_ns, "", Content())
    return builder


def _read_fixed_schedule(file: pathlib.Path, budget: MemoryBudget) -> TraceBuilder:
    """perf_analyzer's `--fixed-schedule`: input data whose entries have a `timestamp` in milliseconds since the start."""
    data = read_bounded(file, _LARGEST_SCHEDULE_BYTES)
    _reserve(len(data), budget)
    try:
        document = json.loads(data)
    except (ValueError, RecursionError) as error:
        raise ScenarioError(f"load.replay.trace: {file}: not JSON: {error}") from None
    entries = document.get("data") if isinstance(document, dict) else None
    if not isinstance(entries, list):
        raise ScenarioError(f"load.replay.trace: {file}: expected perf_analyzer's input data, an object with the list 'data'")
    builder = TraceBuilder()
    for number, entry in enumerate(entries):
        where = f"load.replay.trace: {file}: data[{number}]"
        if not isinstance(entry, dict):
            raise ScenarioError(f"{where}: expected the inputs of one request, found {type(entry).__name__}")
        given = entry.get("timestamp")
        (time_ms,) = given if isinstance(given, list) and len(given) == 1 else (given,)
        if isinstance(time_ms, bool) or not isinstance(time_ms, int) or not 0 <= time_ms * 1_000_000 <= MAX_INSTANT_NS:
            raise ScenarioError(
                f"{where}.timestamp: expected a list of one whole number, milliseconds since the start, found {given!r:.60}"
            )
        tensors = {name: value for name, value in entry.items() if name not in ("timestamp", "model")}
        model = entry.get("model")
        text = _encode(tensors) if tensors else ""
        builder.add(time_ms * 1_000_000, model if isinstance(model, str) else "", Content(tensors=text))
    return builder


def _open(file: pathlib.Path, budget: MemoryBudget) -> BinaryIO:
    """The opened file, for whose rows memory is reserved; raises OSError for anything but a regular file."""
    _reserve(file.stat().st_size, budget)
    return open_input(file)


def _reserve(size_bytes: int, budget: MemoryBudget) -> None:
    arithmetic = f"{size_bytes:,} bytes × {_MEMORY_FACTOR}"
    budget.reserve("load.replay.trace", size_bytes * _MEMORY_FACTOR, arithmetic, "the number of requests in the trace")
