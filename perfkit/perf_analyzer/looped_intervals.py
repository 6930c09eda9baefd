"""The intervals of `--request-intervals` for a model with sequences: a list that lasts a whole run, in the place of a replay without sequences."""

import dataclasses
import pathlib

from perfkit.errors import UsageError
from perfkit.perf_analyzer.options import Options
from perfkit.perf_analyzer.sweep import STABILITY_WINDOWS

_MOST_ARRIVALS = 10_000_000
_US_PER_S = 1_000_000


def with_looped_intervals(options: Options, folder: pathlib.Path) -> Options:
    """The options with a file of seconds in this folder; unchanged for other loads, and for models without sequences.

    The intervals are repeated until they last for all windows of a run, and are enough for a number of requests. Raises UsageError for a
    file that has no such intervals.
    """
    if options.load_mode != "request_intervals" or not options.sequences.is_given:
        return options
    try:
        intervals_us = [int(line) for line in pathlib.Path(options.intervals_file).read_text(encoding="utf-8").split()]
    except (OSError, ValueError) as error:
        raise UsageError(
            f"--request-intervals {options.intervals_file}: expected a whole number of microseconds on each line: {error}"
        ) from None
    if not intervals_us or min(intervals_us) < 0 or not sum(intervals_us):
        raise UsageError(f"--request-intervals {options.intervals_file}: expected intervals of 0 µs or more, and one above 0")
    # a window more than are measured, since a list that ends early would end the load
    length_us = (STABILITY_WINDOWS + 1) * options.interval_ms * 1000
    fewest = max(options.request_count, options.measurement_request_count) + 1
    loops = max(length_us // sum(intervals_us), fewest // len(intervals_us)) + 1
    if loops * len(intervals_us) > _MOST_ARRIVALS:
        raise UsageError(
            f"--request-intervals: a run would have more than {_MOST_ARRIVALS:,} arrivals: give longer intervals or a shorter -p"
        )
    folder.mkdir(parents=True, exist_ok=True)
    file = folder / f"intervals-{options.request_count}.txt"
    file.write_text("".join(f"{interval_us / _US_PER_S:.6f}\n" for interval_us in intervals_us) * loops, encoding="utf-8")
    return dataclasses.replace(options, looped_intervals_file=str(file))
