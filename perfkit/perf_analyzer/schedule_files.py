"""Schedules that become files: the requests of `--warmup-request-count`, the rest of a replay, and intervals repeated for a whole run."""

import dataclasses
import json
import pathlib

from perfkit.errors import UsageError
from perfkit.perf_analyzer.options import Options
from perfkit.perf_analyzer.windows import STABILITY_WINDOWS


def warm_up_and_rest(options: Options, folder: pathlib.Path) -> tuple[Options, Options]:
    """The command whose requests are the warm-up, and the one that is measured after it.

    Of a fixed schedule the first entries are the warm-up, and those of several files are joined by their times. All entries keep their times
    since the start, and become files in the folder.
    """
    first = options.warmup_request_count
    warm_up = dataclasses.replace(options, request_count=first)
    if options.load_mode != "fixed_schedule" or (not first and len(options.input_data) == 1):
        return warm_up, options
    folder.mkdir(parents=True)
    entries = [entry for name in options.input_data for entry in json.loads(pathlib.Path(name).read_bytes())["data"]]
    if len(options.input_data) > 1:
        entries.sort(key=_time_ms)
    parts = {folder / "warm_up.json": (warm_up, entries[:first]), folder / "rest.json": (options, entries[first:])}
    for file, (_, part) in parts.items():
        file.write_text(json.dumps({"data": part}))
    made = [dataclasses.replace(one, input_data=(str(file),)) for file, (one, _) in parts.items()]
    return made[0], made[1]


def _time_ms(entry: object) -> float:
    """The time of an entry; one without a time comes first, where reading it as a schedule complains."""
    match entry:
        case {"timestamp": [int() | float() as time_ms]} | {"timestamp": int() | float() as time_ms}:
            return time_ms
    return -1.0


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
