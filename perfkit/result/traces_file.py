"""The traced requests of a run, one row per request: `traces.csv`."""

import csv
import pathlib
from collections.abc import Iterable, Sequence

TRACES_FILE = "traces.csv"


def write_traces(folder: pathlib.Path, parts: Sequence[str], rows: Iterable[tuple[str | int | float, ...]]) -> None:
    """Writes the file; a row has the columns below, then the parts of the total in nanoseconds. Raises OSError.

    `window_s` is the request's start, in an open loop the intended one, since the start of the window.
    """
    with (folder / TRACES_FILE).open("w", encoding="utf-8", newline="") as stream:
        writer = csv.writer(stream, lineterminator="\n")
        writer.writerow(
            ("workload", "protocol", "load", "repetition", "trace_id", "window_s", "total_ns", *(f"{part}_ns" for part in parts))
        )
        writer.writerows(rows)
