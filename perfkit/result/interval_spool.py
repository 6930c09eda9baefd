"""The intervals of a load point, on disk as they come: a file for each worker.

Which of them belong in the log is known at the end: those from the window's start on. Of a lost worker only those count that its
checkpoints count; the others go to a file of their own, and are logged under tags of their own.
"""

import contextlib
import io
import pathlib
from collections.abc import Iterator, Sequence

from perfkit.recorder.recording import Interval
from perfkit.result.interval_log import PointLines
from perfkit.units import NS_PER_S

SPOOL_GLOB = "intervals-*.spool"
_VOID = -1
"""In place of the second, in a line that does not count."""


class IntervalSpool:
    """Takes intervals until they are `settled`, which raises the first OSError that there was."""

    def __init__(self, folder: pathlib.Path, tag: str, lines: PointLines) -> None:
        self._folder, self._tag, self._lines = folder, tag, lines
        self._files: dict[int, io.TextIOWrapper] = {}
        self._marks: dict[int, dict[int, int]] = {}
        self._counted: dict[int, tuple[int, int]] = {}
        """How many bytes of a worker's file its checkpoints count, as far as the lines are of seconds before the second number."""
        self._lost = set[pathlib.Path]()
        """The files with what lost workers sent and no figure counts."""
        self._window_start_ns: int | None = None
        self._failure: OSError | None = None

    def add(self, worker: int, window_start_ns: int, interval: Interval) -> None:
        """Adds an interval of a worker."""
        self._window_start_ns = window_start_ns
        if self._failure is not None:
            return
        try:
            file = self._file(worker)
            file.writelines(self._spooled(window_start_ns, interval))
        except OSError as error:
            self._failure = error

    def mark(self, worker: int, at_ns: int) -> None:
        """Notes how long a worker's file is at a checkpoint: all its intervals before that instant have come."""
        if self._failure is None and worker in self._files:
            self._marks.setdefault(at_ns, {})[worker] = self._files[worker].tell()

    def count_until(self, at_ns: int | None) -> None:
        """Notes that all workers that are left have reached the checkpoint of an instant, which therefore counts; None for no new one."""
        if at_ns is None or self._window_start_ns is None:
            return
        end = (at_ns - self._window_start_ns) // NS_PER_S
        self._counted |= {worker: (size, end) for worker, size in self._marks.get(at_ns, {}).items()}
        self._marks = {later_ns: marks for later_ns, marks in self._marks.items() if later_ns > at_ns}

    def lose(self, worker: int) -> None:
        """Leaves in a lost worker's file only what its checkpoints count."""
        for marks in self._marks.values():
            marks.pop(worker, None)
        self._void(worker, self._counted.get(worker, (0, 0)), keeps_apart=True)

    def replace(self, worker: int, window_start_ns: int, intervals: Sequence[Interval], lost: Sequence[Interval]) -> None:
        """Replaces a worker's intervals since its last checkpoint; those of `lost` count in no figure."""
        last_ns = max((at_ns for at_ns, marks in self._marks.items() if worker in marks), default=None)
        newest = self._counted.get(worker, (0, 0))
        if last_ns is not None:
            newest = self._marks[last_ns][worker], (last_ns - window_start_ns) // NS_PER_S
        self._void(worker, newest, keeps_apart=False)
        for interval in intervals:
            self.add(worker, window_start_ns, interval)
        if lost and self._failure is None:
            try:
                with self._lost_file(worker) as left:
                    for interval in lost:
                        left.writelines(self._spooled(window_start_ns, interval))
            except OSError as error:
                self._failure = error

    def _void(self, worker: int, counted: tuple[int, int], *, keeps_apart: bool) -> None:
        """Makes void what is in a worker's file besides the lines that are counted, in their place, because checkpoints count bytes."""
        if self._failure is not None or worker not in self._files:
            return
        size, end = counted
        try:
            with self._path(worker).open("r+b") as lines, self._lost_file(worker) if keeps_apart else contextlib.nullcontext() as left:
                read = 0
                while line := lines.readline():
                    start, read = read, read + len(line)
                    index = int(line.partition(b" ")[0])
                    if index == _VOID or (read <= size and index < end):
                        continue
                    if left is not None:
                        left.write(line.decode("ascii"))
                    lines.seek(start)
                    lines.write(f"{_VOID} ".encode().ljust(len(line) - 1) + b"\n")
                    lines.seek(read)
        except OSError as error:
            self._failure = error

    def counted_sizes(self) -> dict[str, int]:
        """For each file the bytes that the newest checkpoint counts, -1 for what lost workers had sent besides."""
        counted = {self._path(worker).name: self._counted.get(worker, (0, 0))[0] for worker in self._files}
        return counted | {path.name: -1 for path in self._lost}

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
            yield from spooled_lines(self._path(worker), first_s)
        for path in sorted(self._lost):
            yield from spooled_lines(path, first_s, is_lost=True)
        yield self.window_lines(first_s)

    def close(self) -> None:
        """Closes the files, which stay."""
        for file in self._files.values():
            file.close()

    def remove(self) -> None:
        """Removes the files."""
        self.close()
        for worker in self._files:
            self._path(worker).unlink(missing_ok=True)
        for path in self._lost:
            path.unlink(missing_ok=True)
        self._files, self._lost = {}, set()

    def _file(self, worker: int) -> io.TextIOWrapper:
        if worker not in self._files:
            self._files[worker] = self._path(worker).open("w", buffering=1, encoding="ascii")  # a killed run has written each line
        return self._files[worker]

    def _spooled(self, window_start_ns: int, interval: Interval) -> list[str]:
        return [f"{interval.index} {line}\n" for line in self._lines.of_interval(window_start_ns, interval).splitlines()]

    def _lost_file(self, worker: int) -> io.TextIOWrapper:
        path = self._folder / f"intervals-{self._tag}-{worker}.lost.spool"
        self._lost.add(path)
        return path.open("a", encoding="ascii")

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
