"""The files of the interval log: the next one begins when one has reached its largest size, while a run writes them."""

import os
import pathlib
import re

LOG_FILE = "latency.hlog"
LARGEST_PART_BYTES = 64 * 2**20
"""What a file of the log has at most; the next one then begins with the same head, so that each can be read by itself."""
_START_TIME = re.compile(rb"#\[StartTime: (\d{1,10}\.\d{3}) ")
_HEAD_BYTES = 1000


class RotatingLog:
    """Writes `latency.hlog`, then `latency-2.hlog` and so on, into a folder; raises OSError."""

    def __init__(
        self, folder: pathlib.Path, started_at_s: float, largest_bytes: int = LARGEST_PART_BYTES, *, continues: bool = False
    ) -> None:
        self._folder, self._largest_bytes, self._number = folder, largest_bytes, 0
        self._head = (
            "#[Histogram log format version 1.2]\n#[logged by perfkit; nanoseconds; Interval_Max in milliseconds]\n"
            f"#[StartTime: {started_at_s:.3f} (seconds since epoch)]\n"
            '"StartTimestamp","Interval_Length","Interval_Max","Interval_Compressed_Histogram"\n'
        )
        if continues:
            self._number = len(log_files(folder))
            self._file = (folder / log_name(self._number)).open("a", encoding="ascii")
            self._bytes = self._file.tell()
        else:
            self._open_next()

    def write(self, lines: str) -> None:
        """Adds whole lines."""
        if self._bytes + len(lines) > self._largest_bytes and self._bytes > len(self._head):
            os.fsync(self.flush())
            self._file.close()
            self._open_next()
        self._file.write(lines)
        self._bytes += len(lines)

    def sizes(self) -> dict[str, int]:
        """The names and sizes in bytes of all files, as far as they were written."""
        return {log_name(number): (self._folder / log_name(number)).stat().st_size for number in range(1, self._number + 1)}

    def flush(self) -> int:
        """Writes what is buffered, and returns the last file's descriptor, for fsync; the other files are on the disk already."""
        self._file.flush()
        return self._file.fileno()

    def close(self) -> None:
        """Ends the last file."""
        self._file.close()

    def _open_next(self) -> None:
        self._number += 1
        self._file = (self._folder / log_name(self._number)).open("w", encoding="ascii")
        self._file.write(self._head)
        self._bytes = len(self._head)


def log_started_at_s(folder: pathlib.Path) -> float | None:
    """The start of a folder's log in seconds of Unix time, from which it counts; None if there is no log that says it."""
    try:
        with (folder / LOG_FILE).open("rb") as stream:
            found = _START_TIME.search(stream.read(_HEAD_BYTES))
    except OSError:
        return None
    return float(found[1]) if found else None


def cut_log(folder: pathlib.Path, size: int) -> None:
    """Cuts a folder's log after so many bytes of all its files together; raises OSError."""
    for file in log_files(folder):
        has = file.stat().st_size
        if size <= 0 and file.name != log_name(1):
            file.unlink()
        elif has > size:
            os.truncate(file, size)
        size -= has


def log_files(folder: pathlib.Path) -> list[pathlib.Path]:
    """The files of a folder's log, in their order; the first is always named, the others where they exist."""
    files = [folder / LOG_FILE]
    while (following := folder / log_name(len(files) + 1)).exists():
        files.append(following)
    return files


def log_name(number: int) -> str:
    """The name of the log's files by number, from 1: `latency.hlog`, `latency-2.hlog` and so on."""
    return LOG_FILE if number == 1 else f"latency-{number}.hlog"
