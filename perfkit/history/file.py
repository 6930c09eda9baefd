"""The history file: figures of many results, in SQLite."""

import contextlib
import json
import pathlib
import sqlite3
from collections.abc import Iterator
from typing import Any

from perfkit.errors import ResultError
from perfkit.history.trend import HistoryEntry, Trend
from perfkit.result.checks import HIGHEST_RATE_PER_S, timestamp_problems
from perfkit.result.distribution import PERCENTILES
from perfkit.result.fingerprint import commit_of, fingerprint, host_of
from perfkit.result.json_file import DEEPEST
from perfkit.result.model import Point, Result
from perfkit.stats.buckets import LONGEST_TIME_NS

_VERSION = 1
_HIGHEST = {"per_s": HIGHEST_RATE_PER_S, "ns": float(LONGEST_TIME_NS)}
# results store their start in UTC and in one format, so the texts sort by time
_TABLES = """
CREATE TABLE result (
  id INTEGER PRIMARY KEY, scenario TEXT NOT NULL, started_at TEXT NOT NULL, commit_id TEXT NOT NULL,
  host_id TEXT NOT NULL, status TEXT NOT NULL, fingerprint TEXT NOT NULL, source TEXT NOT NULL, UNIQUE (scenario, started_at, host_id)
);
CREATE TABLE figure (
  result_id INTEGER NOT NULL REFERENCES result ON DELETE CASCADE, load_point TEXT NOT NULL, metric TEXT NOT NULL, unit TEXT NOT NULL,
  value REAL NOT NULL, valid INTEGER NOT NULL, PRIMARY KEY (result_id, load_point, metric)
) WITHOUT ROWID;
"""


class History:
    """An open history file; see `open_history`."""

    def __init__(self, connection: sqlite3.Connection, path: pathlib.Path) -> None:
        self._connection, self._path = connection, path

    def add(self, result: Result, source: str) -> bool:
        """Add a result's figures; False if the history has them already."""
        name, facts = str(result.scenario.get("name") or "result"), json.dumps(fingerprint(result), sort_keys=True)
        with self._connection:
            added = self._connection.execute(
                "INSERT OR IGNORE INTO result (scenario, started_at, commit_id, host_id, status, fingerprint, source) "
                "VALUES (?, ?, ?, ?, ?, ?, ?)",
                (name, result.started_at, commit_of(result), host_of(result), result.status, facts, source),
            )
            if added.rowcount != 1:
                return False
            rows = [
                (added.lastrowid, point.title, metric, unit, value, point.valid)
                for point in result.summary
                for metric, unit, value in _figures(point)
            ]
            self._connection.executemany("INSERT INTO figure VALUES (?, ?, ?, ?, ?, ?)", rows)
        return True

    def entries(self, scenario: str | None = None) -> list[tuple[str, str, HistoryEntry]]:
        """Scenario, status and entry of every result, ordered by time; raises ResultError for rows that no result gave."""
        rows = self._connection.execute(
            "SELECT scenario, status, started_at, commit_id, host_id, fingerprint, source FROM result "
            "WHERE ? IS NULL OR scenario = ? ORDER BY started_at, id",
            (scenario, scenario),
        )
        return [(self._text(name), self._text(status), self._entry(*rest)) for name, status, *rest in rows]

    def trends(self, scenario: str | None = None, load_point: str | None = None, metrics: tuple[str, ...] = ()) -> list[Trend]:
        """The matching trends, of valid figures only, sorted by scenario, load point and metric; raises ResultError as `entries`."""
        rows = self._connection.execute(
            "SELECT scenario, load_point, metric, unit, value, started_at, commit_id, host_id, fingerprint, source "
            "FROM figure JOIN result ON result.id = figure.result_id "
            "WHERE valid AND (? IS NULL OR scenario = ?) AND (? IS NULL OR load_point = ?) ORDER BY started_at, result.id",
            (scenario, scenario, load_point, load_point),
        )
        grouped: dict[tuple[str, str, str, str], list[tuple[HistoryEntry, float]]] = {}
        for name, point, metric, unit, value, *rest in rows:
            key = (self._text(name), self._text(point), self._text(metric), self._text(unit))
            if not metrics or metric in metrics:
                grouped.setdefault(key, []).append((self._entry(*rest), self._value(value, unit)))
        return [
            Trend(name, point, metric, "per_s" if unit == "per_s" else "ns", *zip(*values, strict=True))
            for (name, point, metric, unit), values in sorted(grouped.items())
        ]

    def _entry(self, started_at: Any, commit: Any, host_id: Any, fingerprint_json: Any, source: Any) -> HistoryEntry:
        for _, problem in timestamp_problems("started_at", self._text(started_at)):
            raise ResultError(f"{self._path}: result.started_at: {problem}")
        try:
            facts = json.loads(self._text(fingerprint_json))
        except (ValueError, RecursionError):
            facts = None
        if not isinstance(facts, dict) or fingerprint_json.count("[") + fingerprint_json.count("{") > DEEPEST * DEEPEST:
            raise ResultError(f"{self._path}: result.fingerprint: the result started at {started_at} has no fingerprint that can be read")
        return HistoryEntry(started_at, self._text(commit), self._text(host_id), facts, self._text(source))

    def _text(self, value: Any) -> str:
        if not isinstance(value, str):
            raise ResultError(f"{self._path}: expected text in a column of text, found {str(value)[:50]!r}")
        return value

    def _value(self, value: Any, unit: str) -> float:
        if not (isinstance(value, int | float) and 0 < value <= _HIGHEST.get(unit, 0.0)):
            raise ResultError(f"{self._path}: figure.value: {str(value)[:50]} {unit[:20]} is no figure of a result")
        return float(value)


@contextlib.contextmanager
def open_history(path: pathlib.Path, *, create: bool = False) -> Iterator[History]:
    """Open a history file for the length of the block; raises ResultError if it is missing, not a history, or of a newer version."""
    if not create and not path.is_file():
        raise ResultError(f"{path}: this history does not exist; `perfkit history add RESULT --file {path}` creates it")
    try:
        with contextlib.closing(sqlite3.connect(path)) as connection:
            connection.execute("PRAGMA foreign_keys = ON")
            version = connection.execute("PRAGMA user_version").fetchone()[0]
            tables = connection.execute("SELECT count(*) FROM sqlite_master").fetchone()[0]
            others = connection.execute("SELECT count(*) FROM sqlite_master WHERE type NOT IN ('table', 'index')").fetchone()[0]
            if version > _VERSION:
                raise ResultError(f"{path}: this perfkit reads version {_VERSION}, found {version}: a newer perfkit may read it")
            if (version == 0 and tables) or others:
                raise ResultError(f"{path}: this database is not a perfkit history; give another file")
            if version == 0:
                connection.executescript(f"BEGIN; {_TABLES} PRAGMA user_version = {_VERSION}; COMMIT;")
            yield History(connection, path)
    except sqlite3.Error as error:
        raise ResultError(f"{path}: cannot be used as a history: {error}") from None


def _figures(point: Point) -> Iterator[tuple[str, str, float]]:
    if point.throughput_per_s > 0:
        yield "throughput", "per_s", point.throughput_per_s
    for name in PERCENTILES:
        if point.times.count and (value := getattr(point.times, name)):
            yield name, "ns", float(value)
