"""The lines of `latency.hlog`, written and read: the times of each second of each load point, as an HdrHistogram log."""

import collections
import pathlib
import re
from collections.abc import Iterator, Mapping, Sequence

from perfkit.errors import ResultError
from perfkit.figures.declaration import declared
from perfkit.input_file import open_input
from perfkit.recorder.histogram import decode, encode
from perfkit.recorder.recording import OF_ALL_LOADS
from perfkit.result.checksums import verify
from perfkit.result.model import Point, Result
from perfkit.result.rotating_log import LOG_FILE, log_files
from perfkit.stats.buckets import BucketCounts

_SECONDS = r"\d{1,10}(?:\.\d{1,9})?"
_INTERVAL = re.compile(rf"Tag=(?P<tag>[^,]{{1,100}}),(?P<start>{_SECONDS}),{_SECONDS},{_SECONDS},(?P<payload>\S{{1,500000}})")
_WINDOW = re.compile(rf"#\[Window p(?P<point>\d{{1,9}})\.r(?P<repetition>\d{{1,9}}) starts at (?P<start>{_SECONDS}) s\]")
LOG_TAGS = {one.figure.recorded: one.figure.log_tag for one in declared(Point) if one.figure.log_tag}
"""The end of an interval's tag, by the name of its times."""
_TAG = re.compile(rf"p(?P<point>\d{{1,9}})\.r(?P<repetition>\d{{1,9}})\.(?P<times>{'|'.join(LOG_TAGS.values())})")
_LONGEST_LINE_BYTES = 2**20


class MissingLogError(ResultError):
    """A result folder without a log, which some commands can do without."""


class PointLines:
    """Makes the log's lines of one load point; `started_ns` is the start of the log on the monotonic clock.

    The intervals of a mix are logged twice: those of each workload under its own tag, and all under that of the whole; `are_alike` as in
    `merge_workloads`.
    """

    def __init__(self, tag: str, started_ns: int, workloads: Sequence[str] = (), *, are_alike: bool = True) -> None:
        self._tag, self._started_ns, self._workloads, self._are_alike = tag, started_ns, workloads, are_alike

    def of_second(self, window_start_ns: int, second: int, workload: int, times: Mapping[str, BucketCounts]) -> str:
        """The lines of the times of one second, which counts from the earliest possible start of the window, and of one workload."""
        start_s = self._seconds(window_start_ns) + second
        if not self._workloads:
            return interval_lines(self._tag, start_s, times)
        common = {name: own for name, own in times.items() if self._are_alike or name in OF_ALL_LOADS}
        return interval_lines(self._workloads[workload], start_s, times) + interval_lines(self._tag, start_s, common)

    def of_window(self, window_start_ns: int, first_s: int) -> str:
        """The lines that say where the window starts, so many seconds after its earliest start."""
        start_s = self._seconds(window_start_ns) + first_s
        return "".join(f"#[Window {tag} starts at {start_s:.3f} s]\n" for tag in (self._tag, *self._workloads))

    def _seconds(self, instant_ns: int) -> float:
        return (instant_ns - self._started_ns) / 1e9


def interval_lines(tag: str, start_s: float, times: Mapping[str, BucketCounts]) -> str:
    """The log lines of a second that starts so long after the start of the log, one per kind of time that is logged."""
    return "".join(
        f"Tag={tag}.{log_tag},{start_s:.3f},1.000,{counts.max_ns / 1e6:.3f},{encode(counts)}\n"
        for name, counts in times.items()
        if (log_tag := LOG_TAGS.get(name)) is not None
    )


def read_intervals(folder: pathlib.Path) -> Iterator[tuple[str, float, BucketCounts]]:
    """The intervals of `latency.hlog`: tag, seconds since the start of the log, times. Raises ResultError."""
    for file in log_files(folder):
        for number, line in enumerate(_read_lines(file), 1):
            if match := _INTERVAL.fullmatch(line):
                try:
                    yield match["tag"], float(match["start"]), decode(match["payload"])
                except ValueError as error:
                    raise ResultError(f"{file}:{number}: {error}") from None
            elif line and line[0] not in '#"':
                raise ResultError(f"{file}:{number}: not an interval of an HdrHistogram log")


def read_intervals_of(folder: pathlib.Path, result: Result) -> Iterator[tuple[tuple[int, int], str, float, BucketCounts]]:
    """The intervals of a result's load points: (point, repetition), kind, seconds as above, times. Raises ResultError.

    A point is an index in the summary. The kind is one of the values of `LOG_TAGS`.
    """
    for tag, start_s, times in read_intervals(folder):
        if (match := _TAG.fullmatch(tag)) and int(match["point"]) < len(result.summary):
            yield (int(match["point"]), int(match["repetition"])), match["times"], start_s, times


def read_window_starts(folder: pathlib.Path) -> dict[tuple[int, int], float]:
    """The start of each window in seconds since the start of the log, by point and repetition. Raises ResultError."""
    return {
        (int(match["point"]), int(match["repetition"])): float(match["start"])
        for file in log_files(folder)
        for line in _read_lines(file)
        if (match := _WINDOW.fullmatch(line))
    }


def read_times(folder: pathlib.Path, result: Result) -> Iterator[tuple[tuple[int, int], float, BucketCounts]]:
    """The intervals of the times that the percentiles of a result belong to: (point, repetition), seconds as above, times.

    A point is an index in the summary. Raises ResultError, at the end also if the log does not have as many times as the result.
    """
    return (
        (key, start_s, times) for key, kind, start_s, times in read_all_times(folder, result) if kind == result.summary[key[0]].times_name
    )


def read_all_times(folder: pathlib.Path, result: Result) -> Iterator[tuple[tuple[int, int], str, float, BucketCounts]]:
    """The intervals of every kind of time: (point, repetition), kind, seconds as above, times.

    The kind is a name such as `service time`, `start delay` or `response gap`. Raises ResultError like `read_times`.
    """
    kinds = {kind: name.replace("_", " ") for name, kind in LOG_TAGS.items()}
    counts = collections.Counter[tuple[int, int]]()
    for key, name, start_s, times in read_intervals_of(folder, result):
        if kinds[name] == result.summary[key[0]].times_name:
            counts[key] += times.count
        yield key, kinds[name], start_s, times
    _check_counts(folder / LOG_FILE, result, counts)


def check_log(folder: pathlib.Path, result: Result) -> None:
    """Raises ResultError if the log cannot be read, or does not have as many times as the result."""
    for _ in read_times(folder, result):
        pass


def _check_counts(file: pathlib.Path, result: Result, counts: Mapping[tuple[int, int], int]) -> None:
    index_of = {point.key: index for index, point in enumerate(result.summary)}
    expected = {(index_of[point.key], point.repetition or 0): point for point in result.points}
    if len(expected) < len(result.points):  # a search may probe a rate twice, and the log then numbers the probes
        return
    for key, point in expected.items():
        if counts.get(key, 0) != point.times.count:
            where = f"{point.title}, repetition {key[1] + 1}"
            raise ResultError(
                f"{file}: {where}: the log has {counts.get(key, 0):,} times, the result {point.times.count:,}; the log was emptied, cut or exchanged: restore it"
            )


def _read_lines(file: pathlib.Path) -> Iterator[str]:
    """One after the other: a file has up to 64 MiB. A line that is too long comes in pieces, which are no intervals."""
    try:
        with open_input(file) as opened:
            verify(file)
            while line := opened.readline(_LONGEST_LINE_BYTES):
                yield line.decode("ascii").rstrip("\r\n")
    except FileNotFoundError:
        raise MissingLogError(f"{file}: cannot be read: No such file or directory") from None
    except OSError as error:
        raise ResultError(f"{file}: cannot be read: {error.strerror}") from None
    except UnicodeDecodeError as error:
        raise ResultError(f"{file}: cannot be read: {error}") from None
