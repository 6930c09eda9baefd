"""The result folder: written beside its place while the run goes on, put there in one step at the end, read back."""

import contextlib
import ctypes
import itertools
import json
import os
import pathlib
import re
import shutil
from collections.abc import Iterator

import pydantic

from perfkit.errors import MeasurementError, ResultError
from perfkit.recorder.histogram import Histogram
from perfkit.recorder.recording import Interval
from perfkit.result.model import SCHEMA, Result, result_document
from perfkit.result.telemetry_file import CSV_FILE, PARQUET_FILE, SampledPoint, TelemetryLog
from perfkit.telemetry.timeline import Series

RESULT_FILE, LOG_FILE = "result.json", "latency.hlog"
_RESULT_ENTRIES = {RESULT_FILE, LOG_FILE, CSV_FILE, PARQUET_FILE, "report.html", "report.md", "plots"}
_INTERVAL = re.compile(r"Tag=(?P<tag>[^,]+),(?P<start>[\d.]+),(?P<length>[\d.]+),(?P<max>[\d.]+),(?P<payload>\S+)")
_AT_FDCWD, _RENAME_EXCHANGE = -100, 2


class ResultWriter:
    """Writes a result into `<folder>.partial` (`.partial-2` where a crash left one), after every point anew, and moves it to its place in `commit`.

    Raises ResultError where the place is taken by something that is not a result.
    """

    def __init__(self, folder: pathlib.Path, started_at_s: float) -> None:
        self.folder = folder
        try:
            self._place = folder.resolve()  # a link stays, and leads to the new result
            partial = self._place.with_name(self._place.name + ".partial")
            if folder.exists() and not _may_be_replaced(folder):
                raise ResultError(f"--out {folder}: this is there already, and is no result folder; give another one")
            self._place.parent.mkdir(parents=True, exist_ok=True)
            self.partial = _new_folder(partial)
            self._log = (self.partial / LOG_FILE).open("w", encoding="ascii")
        except OSError as error:
            raise ResultError(f"--out {folder}: cannot be written: {error.strerror}") from None
        except ValueError:
            raise ResultError(f"--out {folder}: this cannot be a result folder; give another one") from None
        self._telemetry = TelemetryLog(self.partial)
        self._log.write("#[Histogram log format version 1.2]\n#[logged by perfkit; nanoseconds; Interval_Max in milliseconds]\n")
        self._log.write(f"#[StartTime: {started_at_s:.3f} (seconds since epoch)]\n")
        self._log.write('"StartTimestamp","Interval_Length","Interval_Max","Interval_Compressed_Histogram"\n')

    def log(self, lines: str) -> None:
        """Adds lines as `interval_lines` gives them."""
        with self._writing():
            self._log.write(lines)

    def interval_log(self, tag: str, started_ns: int, held_s: int) -> "IntervalLog":
        """The intervals of one load point; `started_ns` is the log's start on the clock of the recordings."""
        return IntervalLog(self, tag, started_ns, held_s)

    def log_series(self, point: SampledPoint, started_ns: int, series: tuple[Series, ...]) -> None:
        """Adds what was sampled beside a load point's window; `started_ns` as for `interval_log`."""
        with self._writing():
            self._telemetry.add(point, started_ns, series)

    def save(self, result: Result) -> None:
        """Writes `result.json` as far as the run has come, so that a crash leaves what was measured."""
        with self._writing():
            self._log.flush()
            new = self.partial / (RESULT_FILE + ".new")
            new.write_text(json.dumps(result_document(result), indent=1) + "\n", encoding="utf-8")
            new.replace(self.partial / RESULT_FILE)

    def commit(self) -> pathlib.Path:
        """Puts the folder in its place, replacing a result that is there, in one step."""
        with self._writing():
            self._log.close()
            self._telemetry.finish()
            if self._place.exists() and not _may_be_replaced(self._place):
                raise MeasurementError(f"{self._place} has become something else meanwhile; the result stays in {self.partial}")
            put_in_place(self.partial, self._place)
        return self.folder

    def abort(self) -> pathlib.Path | None:
        """Ends a run that failed: gives the folder of what was measured, or leaves nothing behind where nothing was."""
        with contextlib.suppress(OSError):
            self._log.close()
        if (self.partial / RESULT_FILE).exists():
            return self.partial
        shutil.rmtree(self.partial, ignore_errors=True)
        return None

    def discard(self) -> None:
        """Leaves nothing behind; for a run that measured nothing."""
        self._log.close()
        shutil.rmtree(self.partial, ignore_errors=True)

    @contextlib.contextmanager
    def _writing(self) -> Iterator[None]:
        try:
            yield
        except OSError as error:
            raise MeasurementError(f"{self.partial} cannot be written: {error.strerror}") from None


class IntervalLog:
    """Logs a load point's intervals, and holds back those of the first `held_s` seconds: they may turn out to be warm-up."""

    def __init__(self, writer: ResultWriter, tag: str, started_ns: int, held_s: int) -> None:
        self._writer, self._tag, self._started_ns, self._held_s = writer, tag, started_ns, held_s
        self._held: list[tuple[int, str]] = []  # as lines: they take a tenth of the intervals

    def add(self, window_start_ns: int, interval: Interval) -> None:
        """Takes an interval, counted from the earliest start of the window."""
        lines = interval_lines(self._tag, self._seconds(window_start_ns), interval)
        if interval.index < self._held_s:
            self._held.append((interval.index, lines))
        else:
            self._writer.log(lines)

    def add_lost(self, window_start_ns: int, interval: Interval) -> None:
        """Takes an interval of requests that stand in no figure: it is logged under a tag of its own, `….lost.service` and so on."""
        self._writer.log(interval_lines(f"{self._tag}.lost", self._seconds(window_start_ns), interval))

    def settle(self, first_s: int) -> None:
        """Logs those held back that belong to the window, which begins so many seconds later."""
        for index, lines in self._held:
            if index >= first_s:
                self._writer.log(lines)
        self._held = []

    def _seconds(self, instant_ns: int) -> float:
        return (instant_ns - self._started_ns) / 1e9


def interval_lines(tag: str, window_start_s: float, interval: Interval) -> str:
    """One interval in the log's form, a line for each of its times; `window_start_s` is counted from the log's start."""
    lines = []
    for kind, packed in (("service", interval.service_time), ("response", interval.response_time), ("delay", interval.start_delay)):
        if packed is not None:
            histogram = Histogram.unpacked(packed)
            start_s, max_ms = window_start_s + interval.index, histogram.max_ns / 1e6
            lines.append(f"Tag={tag}.{kind},{start_s:.3f},1.000,{max_ms:.3f},{histogram.encode()}\n")
    return "".join(lines)


def read_result(path: pathlib.Path) -> tuple[Result, pathlib.Path]:
    """The result in a folder, or in a `result.json`, and its folder; raises ResultError."""
    file = path / RESULT_FILE if path.is_dir() else path
    try:
        document = json.loads(file.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise ResultError(f"{path}: there is no {RESULT_FILE}; give a folder that `perfkit run` wrote") from None
    except (OSError, ValueError, RecursionError) as error:
        raise ResultError(f"{file}: cannot be read: {error}") from None
    schema = document.get("schema") if isinstance(document, dict) else None
    if schema != SCHEMA:
        raise ResultError(f"{file}: this perfkit reads {SCHEMA}, found {schema!r}: a newer perfkit may read it")
    try:
        return Result.model_validate(document), file.parent
    except pydantic.ValidationError as error:
        first = error.errors()[0]
        raise ResultError(f"{file}: {'.'.join(map(str, first['loc']))}: {first['msg']}") from None


def read_intervals(folder: pathlib.Path) -> Iterator[tuple[str, float, Histogram]]:
    """The intervals of `latency.hlog`: tag, start in seconds since the log's start, histogram. Raises ResultError."""
    file = folder / LOG_FILE
    try:
        lines = file.read_text(encoding="ascii").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise ResultError(f"{file}: cannot be read: {error}") from None
    for number, line in enumerate(lines, 1):
        found = _INTERVAL.fullmatch(line)
        if found:
            try:
                yield found["tag"], float(found["start"]), Histogram.decode(found["payload"])
            except ValueError as error:
                raise ResultError(f"{file}:{number}: {error}") from None
        elif line and line[0] not in '#"':
            raise ResultError(f"{file}:{number}: not an interval of an HdrHistogram log")


def _may_be_replaced(folder: pathlib.Path) -> bool:
    """Whether a folder is empty, or a result with nothing else beside it."""
    names = {entry.name for entry in folder.iterdir()} if folder.is_dir() else {""}
    return not names or (RESULT_FILE in names and names <= _RESULT_ENTRIES)


def _new_folder(path: pathlib.Path) -> pathlib.Path:
    """A folder that was not there: what a crash left, or another run writes, is not ours."""
    for number in itertools.count(1):
        new = path if number == 1 else path.with_name(f"{path.name}-{number}")
        with contextlib.suppress(FileExistsError):
            new.mkdir()
            return new
    raise AssertionError  # the count has no end


def put_in_place(new: pathlib.Path, place: pathlib.Path) -> None:
    """Moves a folder to its place, replacing the one that is there, in one step where the system can; raises OSError."""
    if not place.exists():
        new.rename(place)
    elif _exchange(new, place):
        shutil.rmtree(new)
    else:
        shutil.rmtree(place)
        new.rename(place)


def _exchange(first: pathlib.Path, second: pathlib.Path) -> bool:
    """Swaps two folders in one step; False where the system has no such call."""
    try:
        rename = ctypes.CDLL(None, use_errno=True).renameat2
    except (AttributeError, OSError):
        return False
    return bool(rename(_AT_FDCWD, os.fsencode(first), _AT_FDCWD, os.fsencode(second), _RENAME_EXCHANGE) == 0)
