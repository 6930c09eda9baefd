"""The traced requests of a run, one row each: `traces.csv`."""

import csv
import pathlib
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple

from perfkit.errors import ResultError
from perfkit.input_file import bounded_lines, open_input
from perfkit.result.checksums import verify
from perfkit.units import NS_PER_S

TRACES_FILE = "traces.csv"
_COLUMNS = ("workload", "protocol", "load", "repetition", "trace_id", "window_s", "total_ns")
_TRACE_ID = re.compile(r"[0-9a-f]{32}")
_LATEST_S, _LONGEST_NS = 1e9, 10**18


def write_traces(folder: pathlib.Path, parts: Sequence[str], rows: Iterable[tuple[str | int | float, ...]]) -> None:
    """Writes the file; a row has the columns above, then the parts of the total in nanoseconds. Raises OSError.

    `window_s` is the request's start, in an open loop the intended one, since the start of the window.
    """
    with (folder / TRACES_FILE).open("w", encoding="utf-8", newline="") as stream:
        writer = csv.writer(stream, lineterminator="\n")
        writer.writerow((*_COLUMNS, *(f"{part}_ns" for part in parts)))
        writer.writerows(rows)


class TracedRequest(NamedTuple):
    """A row of the file."""

    workload: str
    """The workload of a mix; empty for the whole mix, in which each request is listed a second time, and for a scenario that is no mix."""
    protocol: str
    load: str
    """The load point in words."""
    repetition: int
    trace_id: str
    start_ns: int
    """Since the start of the window; in an open loop the intended start."""
    total_ns: int
    parts_ns: Mapping[str, int]
    """By the name of the part."""


def read_traces(folder: pathlib.Path) -> Iterator[TracedRequest]:
    """The traced requests of a result, in the order of the file; none without the file. Raises ResultError."""
    file = folder / TRACES_FILE
    if not file.exists():
        return
    verify(file)
    line = 1
    try:
        with open_input(file) as opened:
            rows = csv.reader(bounded_lines(opened))
            parts = _parts(next(rows, []))
            for row in rows:
                line = rows.line_num
                yield _traced_request(row, parts)
    except (OSError, ValueError, csv.Error) as error:
        what = error.strerror if isinstance(error, OSError) else error
        raise ResultError(f"{file}:{line}: cannot be read: {what}; the file was damaged or edited: restore it, or remove it") from None


def _parts(header: Sequence[str]) -> list[str]:
    """The names of the parts; raises ValueError for the first line of another file."""
    if tuple(header[: len(_COLUMNS)]) != _COLUMNS:
        raise ValueError(f"expected the columns {', '.join(_COLUMNS)}")
    return [name.removesuffix("_ns") for name in header[len(_COLUMNS) :]]


def _traced_request(row: Sequence[str], parts: Sequence[str]) -> TracedRequest:
    """Raises ValueError for a row that no run writes."""
    if len(row) != len(_COLUMNS) + len(parts):
        raise ValueError(f"expected {len(_COLUMNS) + len(parts)} cells, found {len(row)}")
    workload, protocol, load, repetition, trace_id, window_s, *times = row
    total_ns, *parts_ns = map(int, times)
    if not _TRACE_ID.fullmatch(trace_id) or not abs(float(window_s)) <= _LATEST_S or not 0 <= total_ns <= _LONGEST_NS:
        raise ValueError("a trace id, a start or a time that no run has")
    start_ns = round(float(window_s) * NS_PER_S)
    return TracedRequest(workload, protocol, load, int(repetition), trace_id, start_ns, total_ns, dict(zip(parts, parts_ns, strict=True)))
