"""The history file: figures of many results, in SQLite."""

import contextlib
import dataclasses
import json
import pathlib
import sqlite3
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from perfkit.errors import ResultError
from perfkit.history.series import HistoryEntry, HistoryRecord, Series, Unit
from perfkit.history.trend import Trend
from perfkit.result.checks import HIGHEST_RATE_PER_S, timestamp_problems
from perfkit.result.json_file import DEEPEST
from perfkit.stats.buckets import LONGEST_TIME_NS

_VERSION = 2
_BUSY_S = 120.0  # how long a process waits for the others that write
_HIGHEST = {"per_s": HIGHEST_RATE_PER_S, "ns": float(LONGEST_TIME_NS), "share": 100.0}
_UNITS: Mapping[str, Unit] = {"per_s": "per_s", "ns": "ns", "share": "share"}
_TEXTS = "scenario, kind, branch, machine, model, payload"
_ENTRY = "started_at, commit_id, host_id, fingerprint, source"
# results store their start in UTC and in one format, so the texts sort by time
_TABLES = (
    """CREATE TABLE result (
  id INTEGER PRIMARY KEY, scenario TEXT NOT NULL, kind TEXT NOT NULL, branch TEXT NOT NULL, machine TEXT NOT NULL, model TEXT NOT NULL,
  payload TEXT NOT NULL, started_at TEXT NOT NULL, commit_id TEXT NOT NULL, host_id TEXT NOT NULL, status TEXT NOT NULL,
  fingerprint TEXT NOT NULL, source TEXT NOT NULL, UNIQUE (scenario, started_at, host_id)
)""",
    """CREATE TABLE figure (
  result_id INTEGER NOT NULL REFERENCES result ON DELETE CASCADE, load_point TEXT NOT NULL, metric TEXT NOT NULL, unit TEXT NOT NULL,
  value REAL NOT NULL, valid INTEGER NOT NULL, PRIMARY KEY (result_id, load_point, metric)
) WITHOUT ROWID""",
    "CREATE TABLE branch (name TEXT PRIMARY KEY, start_from TEXT NOT NULL) WITHOUT ROWID",
    f"PRAGMA user_version = {_VERSION}",
)


@dataclasses.dataclass(frozen=True, slots=True)
class Choice:
    """Which series of a history are meant; None for any."""

    scenario: str | None = None
    branch: str | None = None
    machine: str | None = None
    model: str | None = None
    payload: str | None = None
    load_point: str | None = None
    metrics: tuple[str, ...] = ()

    def has(self, series: Series) -> bool:
        """Whether a series is meant."""
        names = ("scenario", "branch", "machine", "model", "payload")
        return all(getattr(self, name) in (None, getattr(series, name)) for name in names)

    def has_trend(self, trend: Trend) -> bool:
        """Whether a trend is meant."""
        is_point = self.load_point in (None, trend.load_point)
        return self.has(trend.series) and is_point and trend.metric in (self.metrics or (trend.metric,))


EVERYTHING = Choice()


class History:
    """An open history file; see `open_history`."""

    def __init__(self, connection: sqlite3.Connection, path: pathlib.Path) -> None:
        self._connection, self._path = connection, path

    def add(self, records: Sequence[HistoryRecord], start_from: str | None = None) -> list[bool]:
        """Add results, all or none; False for one that the history has already.

        `start_from` is the branch whose level their branches start from; None leaves it as it is.
        """
        with write_transaction(self._connection):
            added = [self._add(record) for record in records]
            if start_from is not None:
                for branch in dict.fromkeys(record.series.branch for record in records):
                    self._connection.execute("INSERT OR REPLACE INTO branch VALUES (?, ?)", (branch, start_from))
        return added

    def _add(self, record: HistoryRecord) -> bool:
        series, entry = record.series, record.entry
        row = (
            *dataclasses.astuple(series),
            entry.started_at,
            entry.commit,
            entry.host_id,
            json.dumps(entry.fingerprint, sort_keys=True),
            entry.source,
        )
        names = ", ".join(field.name for field in dataclasses.fields(Series))
        added = self._connection.execute(
            f"INSERT OR IGNORE INTO result ({names}, {_ENTRY}, status) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)",  # noqa: S608 - constants
            (*row, record.status),
        )
        if added.rowcount != 1:
            return False
        figures = [(added.lastrowid, one.load_point, one.metric, one.unit, one.value, one.is_valid) for one in record.figures]
        self._connection.executemany("INSERT INTO figure VALUES (?, ?, ?, ?, ?, ?)", figures)
        return True

    def entries(self, choice: Choice = EVERYTHING) -> list[tuple[Series, str, HistoryEntry]]:
        """Series, status and entry of every result, ordered by time; raises ResultError for rows that no result gave."""
        rows = self._connection.execute(f"SELECT {_TEXTS}, status, {_ENTRY} FROM result ORDER BY started_at, id")  # noqa: S608 - constants
        listed = ((self._series(row[:6]), self._text(row[6]), row[7:]) for row in rows)
        return [(series, status, self._entry(*rest)) for series, status, rest in listed if choice.has(series)]

    def starts(self) -> Mapping[str, str]:
        """The branch that each branch starts from, of those that start from another."""
        rows = self._connection.execute("SELECT name, start_from FROM branch")
        return {self._text(name): self._text(start_from) for name, start_from in rows}

    def trends(self, choice: Choice = EVERYTHING) -> list[Trend]:
        """The matching trends, of valid figures only, sorted by series, load point and metric; raises ResultError as `entries`."""
        rows = self._connection.execute(
            f"SELECT {_TEXTS}, load_point, metric, unit, value, {_ENTRY} FROM figure JOIN result ON result.id = figure.result_id "  # noqa: S608 - constants
            "WHERE valid ORDER BY started_at, result.id"
        )
        grouped: dict[tuple[Series, str, str, str], list[tuple[HistoryEntry, float]]] = {}
        for row in rows:
            series, (point, metric, unit), value = self._series(row[:6]), map(self._text, row[6:9]), row[9]
            grouped.setdefault((series, point, metric, unit), []).append((self._entry(*row[10:]), self._value(value, unit)))
        trends = [
            Trend(series, point, metric, _UNITS[unit], tuple(entry for entry, _ in values), tuple(value for _, value in values))
            for (series, point, metric, unit), values in sorted(grouped.items())
        ]
        return [trend for trend in trends if choice.has_trend(trend)]

    def _series(self, row: Sequence[Any]) -> Series:
        scenario, kind, branch, machine, model, payload = map(self._text, row)
        if kind not in ("result", "canary"):
            raise ResultError(f"{self._path}: result.kind: expected result or canary, found {kind[:50]!r}")
        return Series(scenario, "canary" if kind == "canary" else "result", branch, machine, model, payload)

    def _entry(self, started_at: Any, commit: Any, host_id: Any, fingerprint_json: Any, source: Any) -> HistoryEntry:
        for _, problem in timestamp_problems("started_at", self._text(started_at)):
            raise ResultError(f"{self._path}: result.started_at: {problem}")
        facts = _read_facts(self._text(fingerprint_json))
        if facts is None:
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
    """Open a history file for the length of the block; raises ResultError if it is missing, not a history, or of another version.

    With `create` a missing file is created. Otherwise the file is only read, and one without tables yet is an empty history. Several processes may do so at once: each waits for the others.
    """
    if not create and not path.is_file():
        raise ResultError(f"{path}: this history does not exist; `perfkit history add RESULT --file {path}` creates it")
    try:
        with contextlib.ExitStack() as stack:
            # transactions are begun explicitly: one that read first and wrote later could not wait for another writer
            connection = stack.enter_context(contextlib.closing(sqlite3.connect(path, timeout=_BUSY_S, isolation_level=None)))
            with write_transaction(connection) if create else contextlib.nullcontext():
                is_empty = _is_empty(connection, path)
                if is_empty and not create:  # another process has created the file, and has not made its tables yet
                    connection = stack.enter_context(contextlib.closing(sqlite3.connect(":memory:", isolation_level=None)))
                for statement in _TABLES if is_empty else ():
                    connection.execute(statement)
            connection.execute("PRAGMA foreign_keys = ON")
            yield History(connection, path)
    except sqlite3.Error as error:
        raise ResultError(f"{path}: cannot be used as a history: {error}") from None


@contextlib.contextmanager
def write_transaction(connection: sqlite3.Connection) -> Iterator[None]:
    """A transaction that writes: it waits for other writers before it reads anything."""
    connection.execute("BEGIN IMMEDIATE")
    try:
        yield
    except BaseException:
        connection.execute("ROLLBACK")
        raise
    connection.execute("COMMIT")


def _is_empty(connection: sqlite3.Connection, path: pathlib.Path) -> bool:
    """Whether a file has no tables; raises ResultError if they are not those of a history, or of another version."""
    version = int(connection.execute("PRAGMA user_version").fetchone()[0])
    tables = connection.execute("SELECT count(*) FROM sqlite_master").fetchone()[0]
    others = connection.execute("SELECT count(*) FROM sqlite_master WHERE type NOT IN ('table', 'index')").fetchone()[0]
    if version not in (0, _VERSION):
        advice = "a newer perfkit may read it" if version > _VERSION else "give another file"
        raise ResultError(f"{path}: this perfkit reads version {_VERSION}, found {version}: {advice}")
    if others or (version == 0 and tables):
        raise ResultError(f"{path}: this database is not a perfkit history; give another file")
    return version == 0


def _read_facts(text: str) -> dict[str, Any] | None:
    """A stored fingerprint; None if it cannot be one."""
    try:
        facts = json.loads(text)
    except (ValueError, RecursionError):
        return None
    is_plausible = isinstance(facts, dict) and text.count("[") + text.count("{") <= DEEPEST * DEEPEST
    return facts if is_plausible else None
