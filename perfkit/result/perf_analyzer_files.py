"""The files that perf_analyzer wrote, known by their beginning, and its CSV reports (`-f`).

Columns of the reports are in no unit and in an order of their own.
"""

import csv
import dataclasses
import math
import pathlib
import re
from collections.abc import Mapping
from typing import Literal

from perfkit.errors import ResultError
from perfkit.result.checks import HIGHEST_RATE_PER_S
from perfkit.result.json_file import read_bytes
from perfkit.stats.buckets import LONGEST_TIME_NS

Kind = Literal["profile export", "CSV report"]

NOT_RECORDED = "no response time from the intended start, no failures: its format does not record them"
LOAD_COLUMNS = {"Concurrency": "concurrency", "Request Rate": "request_rate"}
"""The first column of a CSV report, and the mode of the load that it tells."""
_BEGINNING_BYTES = 4096
_EXPORT = re.compile(rb'\s*\{\s*"experiments"')
_CSV = re.compile(f"(?:\ufeff)?(?:{'|'.join(LOAD_COLUMNS)}),".encode())


def kind_of(beginning: bytes) -> Kind | None:
    """Which of perf_analyzer's files begins so; None for any other."""
    return "profile export" if _EXPORT.match(beginning) else "CSV report" if _CSV.match(beginning) else None


def perf_analyzer_kind(path: pathlib.Path) -> Kind | None:
    """Which of perf_analyzer's files this is; None for any other file, a folder, and what cannot be read."""
    try:
        if not path.is_file():
            return None
        with path.open("rb") as stream:
            return kind_of(stream.read(_BEGINNING_BYTES))
    except (OSError, ValueError):
        return None


_LARGEST_BYTES = 16 * 2**20
_NS_PER_US = 1000
_PERCENTILE = re.compile(r"p(\d{1,2}) latency")
_RATE, _RESPONSE_RATE, _MEAN = "Inferences/Second", "Response Throughput", "Avg latency"


@dataclasses.dataclass(frozen=True, slots=True)
class CsvRow:
    """One load point of a CSV report; rates are per second."""

    mode: str
    value: float
    inferences_per_s: float
    responses_per_s: float | None
    mean_ns: float | None
    """The mean of the latency; None without `--verbose-csv`, and with `--percentile`."""
    percentiles_ns: Mapping[str, float]
    """By names such as `p99`."""
    further: Mapping[str, str]
    """The other columns as they stand: parts of the time in microseconds, and figures of GPUs."""


def read_csv(file: pathlib.Path) -> list[CsvRow]:
    """The rows of a CSV report; raises ResultError."""
    try:
        text = read_bytes(file, _LARGEST_BYTES).decode("utf-8-sig", "replace")
    except FileNotFoundError:
        raise ResultError(f"{file}: cannot be read: no such file") from None
    try:
        header, *lines = csv.reader(text.splitlines(), strict=True)
    except (csv.Error, ValueError) as error:
        raise ResultError(f"{file}: this is no CSV report of perf_analyzer: {error}") from None
    if header[0] not in LOAD_COLUMNS or _RATE not in header or len(set(header)) < len(header):
        names = " or ".join(LOAD_COLUMNS)
        raise ResultError(f"{file}: this is no CSV report of perf_analyzer: expected the columns {names}, and {_RATE}")
    rows = [_row(file, number, dict(zip(header, line, strict=False))) for number, line in enumerate(lines, 2) if len(line) >= len(header)]
    if not rows or len(rows) < len(lines):
        raise ResultError(f"{file}: line {len(rows) + 2}: expected {len(header)} values, as the first line has")
    return rows


def _row(file: pathlib.Path, line: int, cells: Mapping[str, str]) -> CsvRow:
    def number(name: str, unit: float, highest: float) -> float:
        try:
            value = float(cells[name]) * unit
        except ValueError:
            value = math.nan
        if not 0 <= value <= highest:
            raise ResultError(f"{file}: line {line}: {name}: expected a number that could be measured, found {cells[name][:50]!r}")
        return value

    def rate(name: str) -> float:
        return number(name, 1.0, HIGHEST_RATE_PER_S)

    def time_ns(name: str) -> float:
        return number(name, _NS_PER_US, LONGEST_TIME_NS)

    load = next(iter(cells))
    percentiles = {f"p{found[1]}": name for name in cells if (found := _PERCENTILE.fullmatch(name))}
    known = {load, _RATE, _RESPONSE_RATE, _MEAN, *percentiles.values()}
    return CsvRow(
        mode=LOAD_COLUMNS[load],
        value=rate(load),
        inferences_per_s=rate(_RATE),
        responses_per_s=rate(_RESPONSE_RATE) if _RESPONSE_RATE in cells else None,
        mean_ns=time_ns(_MEAN) if _MEAN in cells else None,
        percentiles_ns={name: time_ns(column) for name, column in percentiles.items()},
        further={name: text[:300] for name, text in cells.items() if name not in known},
    )
