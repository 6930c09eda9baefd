"""The intervals of a load point whose workers are processes, on disk as they come: a file for each worker.

Which of them belong in the log is known at the end: those from the window's start on, and those of lost workers under tags of their own.
"""

import io
import pathlib
from collections.abc import Iterator

from perfkit.recorder.recording import Interval
from perfkit.result.interval_log import PointLines

SPOOL_GLOB = "intervals-*.spool"


class IntervalSpool:
    """Takes intervals until they are `settled`, which raises the first OSError that there was."""

    def __init__(self, folder: pathlib.Path, tag: str, lines: PointLines) -> None:
        self._folder, self._tag, self._lines = folder, tag, lines
        self._files: dict[int, io.TextIOWrapper] = {}
        self._marks: dict[int, dict[int, int]] = {}
        self._window_start_ns: int | None = None
        self._failure: OSError | None = None
        self.lost = set[int]()
        """The workers whose requests count in no figure."""

    def add(self, worker: int, window_start_ns: int, interval: Interval) -> None:
        """Adds an interval of a worker."""
        self._window_start_ns = window_start_ns
        if self._failure is not None:
            return
        try:
            file = self._file(worker)
            for line in self._lines.of_interval(window_start_ns, interval).splitlines():
                file.write(f"{interval.index} {line}\n")
        except OSError as error:
            self._failure = error

    def mark(self, worker: int, at_ns: int) -> None:
        """Notes how long a worker's file is at a checkpoint: all its intervals before that instant have come."""
        if self._failure is None and worker in self._files:
            self._marks.setdefault(at_ns, {})[worker] = self._files[worker].tell()

    def take_marks(self, at_ns: int) -> dict[str, int]:
        """For each file the bytes that the checkpoint of an instant counts, -1 for a lost worker's; called once for each instant."""
        marks = self._marks.pop(at_ns, {})
        for passed_ns in [passed_ns for passed_ns in self._marks if passed_ns < at_ns]:
            del self._marks[passed_ns]
        return {self._path(worker).name: -1 if worker in self.lost else marks.get(worker, 0) for worker in self._files}

    def flush(self) -> list[int]:
        """Writes what is buffered, and returns the files' descriptors, for fsync."""
        for file in self._files.values():
            file.flush()
        return [file.fileno() for file in self._files.values()]

    def window_lines(self, first_s: int) -> str:
        """The lines that say where the window starts (`PointLines.of_window`); empty without any interval."""
        return "" if self._window_start_ns is None else self._lines.of_window(self._window_start_ns, first_s)

    def settled(self, first_s: int) -> Iterator[str]:
        """The lines for the log, where the window starts at second `first_s`."""
        if self._failure is not None:
            raise self._failure
        for worker, file in self._files.items():
            file.flush()
            yield from spooled_lines(self._path(worker), first_s, is_lost=worker in self.lost)
        yield self.window_lines(first_s)

    def remove(self) -> None:
        """Removes the files."""
        for worker, file in self._files.items():
            file.close()
            self._path(worker).unlink(missing_ok=True)
        self._files = {}

    def _file(self, worker: int) -> io.TextIOWrapper:
        if worker not in self._files:
            self._files[worker] = self._path(worker).open("w", encoding="ascii")
        return self._files[worker]

    def _path(self, worker: int) -> pathlib.Path:
        return self._folder / f"intervals-{self._tag}-{worker}.spool"


def spooled_lines(
    file: pathlib.Path, first_s: int, last_s: int | None = None, *, is_lost: bool = False, size: int | None = None
) -> Iterator[str]:
    """The log's lines in a spool file, of the seconds from `first_s` until before `last_s`, and of its first `size` bytes.

    Those of a lost worker come from all seconds, under tags such as `p0.r0.lost.service`. What a crash cut off at the end is left out.
    """
    read = 0
    with file.open(encoding="ascii") as stream:
        for line in stream:
            read += len(line)
            if not line.endswith("\n") or (size is not None and read > size):
                return
            index, _, text = line.partition(" ")
            if is_lost:
                tag, _, rest = text.partition(",")
                point, _, kind = tag.rpartition(".")
                yield f"{point}.lost.{kind},{rest}"
            elif int(index) >= first_s and (last_s is None or int(index) < last_s):
                yield text
