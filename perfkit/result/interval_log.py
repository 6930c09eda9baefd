"""`latency.hlog`: each point's times by the second, in the form of an HdrHistogram log; written, held back, read back."""

import pathlib
import re
from collections.abc import Callable, Iterator

from perfkit.errors import ResultError
from perfkit.recorder.histogram import Histogram
from perfkit.recorder.recording import Interval
from perfkit.result.model import Result

LOG_FILE = "latency.hlog"
_INTERVAL = re.compile(r"Tag=(?P<tag>[^,]+),(?P<start>[\d.]+),(?P<length>[\d.]+),(?P<max>[\d.]+),(?P<payload>\S+)")
_WINDOW = re.compile(r"#\[Window p(?P<point>\d+)\.r(?P<repetition>\d+) starts at (?P<start>[\d.]+) s\]")
_TAG = re.compile(r"p(?P<point>\d+)\.r(?P<repetition>\d+)\.(?P<times>service|response)")


class IntervalLog:
    """Logs a load point's intervals, and holds back those of the first `held_s` seconds: they may turn out to be warm-up."""

    def __init__(self, write: Callable[[str], None], tag: str, started_ns: int, held_s: int) -> None:
        self._write, self._tag, self._started_ns, self._held_s = write, tag, started_ns, held_s
        self._held: list[tuple[int, str]] = []  # as lines: they take a tenth of the intervals
        self._window_start_ns: int | None = None

    def add(self, window_start_ns: int, interval: Interval) -> None:
        """Takes an interval, counted from the earliest start of the window."""
        self._window_start_ns = window_start_ns
        lines = interval_lines(self._tag, self._seconds(window_start_ns), interval)
        if interval.index < self._held_s:
            self._held.append((interval.index, lines))
        else:
            self._write(lines)

    def add_lost(self, window_start_ns: int, interval: Interval) -> None:
        """Takes an interval of requests that stand in no figure: it is logged under a tag of its own, `….lost.service` and so on."""
        self._write(interval_lines(f"{self._tag}.lost", self._seconds(window_start_ns), interval))

    def settle(self, first_s: int) -> None:
        """Logs those held back that belong to the window, which begins so many seconds later."""
        for index, lines in self._held:
            if index >= first_s:
                self._write(lines)
        self._held = []
        if self._window_start_ns is not None:
            self._write(f"#[Window {self._tag} starts at {self._seconds(self._window_start_ns) + first_s:.3f} s]\n")

    def _seconds(self, instant_ns: int) -> float:
        return (instant_ns - self._started_ns) / 1e9


def interval_lines(tag: str, window_start_s: float, interval: Interval) -> str:
    """One interval in the log's form, a line for each of its times; `window_start_s` is counted from the log's start."""
    lines = []
    for kind, packed in (("service", interval.service_time), ("response", interval.response_time), ("delay", interval.start_delay)):
        if packed is not None:
            histogram = Histogram.from_counts(packed)
            start_s, max_ms = window_start_s + interval.index, histogram.max_ns / 1e6
            lines.append(f"Tag={tag}.{kind},{start_s:.3f},1.000,{max_ms:.3f},{histogram.encode()}\n")
    return "".join(lines)


def read_intervals(folder: pathlib.Path) -> Iterator[tuple[str, float, Histogram]]:
    """The intervals of `latency.hlog`: tag, start in seconds since the log's start, histogram. Raises ResultError."""
    file = folder / LOG_FILE
    for number, line in enumerate(_read_lines(file), 1):
        found = _INTERVAL.fullmatch(line)
        if found:
            try:
                yield found["tag"], float(found["start"]), Histogram.decode(found["payload"])
            except ValueError as error:
                raise ResultError(f"{file}:{number}: {error}") from None
        elif line and line[0] not in '#"':
            raise ResultError(f"{file}:{number}: not an interval of an HdrHistogram log")


def read_window_starts(folder: pathlib.Path) -> dict[tuple[int, int], float]:
    """The start of each window in seconds since the log's start, by point and repetition; earlier logs do not hold it. Raises ResultError."""
    return {
        (int(match["point"]), int(match["repetition"])): float(match["start"])
        for line in _read_lines(folder / LOG_FILE)
        if (match := _WINDOW.fullmatch(line))
    }


def read_times(folder: pathlib.Path, result: Result) -> Iterator[tuple[tuple[int, int], float, Histogram]]:
    """The intervals of the times that the result's percentiles are of: (point, repetition), start as above, histogram; raises ResultError.

    A point is a place in the summary.
    """
    wanted = {index: point.times_name.split()[0] for index, point in enumerate(result.summary)}
    for tag, start_s, histogram in read_intervals(folder):
        found = _TAG.fullmatch(tag)
        if found and wanted.get(int(found["point"])) == found["times"]:
            yield (int(found["point"]), int(found["repetition"])), start_s, histogram


def _read_lines(file: pathlib.Path) -> list[str]:
    try:
        return file.read_text(encoding="ascii").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise ResultError(f"{file}: cannot be read: {error}") from None
