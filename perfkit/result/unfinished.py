"""Results of runs that were interrupted, killed or lost their target, which `perfkit run --resume` continues."""

import itertools
import pathlib
from collections.abc import Iterator, Mapping
from typing import Any

from perfkit.errors import ResultError
from perfkit.result.file import RESULT_FILE, read_result
from perfkit.result.fingerprint import scenario_differences
from perfkit.result.model import Result
from perfkit.result.rotating_log import log_files, log_started_at_s
from perfkit.result.telemetry_file import CSV_FILE
from perfkit.result.whole_points import UnfinishedResult, has_points, read_points


def find_unfinished(folder: pathlib.Path, scenario: Mapping[str, Any], *, adds_time: bool = False) -> UnfinishedResult | Result | str:
    """What a run of a scenario into a folder can continue: the newest of `<folder>.partial`, `<folder>.partial-2`… and the folder itself.

    Returns the result itself if it is complete, and a sentence if there is nothing to continue. With `adds_time` a search that has ended
    undecided can be continued, too. Raises ResultError if the newest cannot be read, or is of another scenario.
    """
    found = [one for one in _candidates(folder) if (one / RESULT_FILE).is_file()]
    if not found:
        return f"There is no unfinished result of {folder}; the run begins with the first load point."
    newest = max(found, key=lambda one: (one / RESULT_FILE).stat().st_mtime_ns)
    result, _ = read_result(newest)
    if differences := scenario_differences(result.scenario, scenario):
        keys = ", ".join(one.key.removeprefix("scenario.") for one in differences[:5])
        raise ResultError(
            f"--resume: {newest} is of another scenario, which differs in {keys}: give the same scenario and --set, or another --out"
        )
    is_complete = result.status == "complete" and newest == folder.resolve()
    if (adds_time or not is_complete) and has_points(newest) and (unfinished := read_unfinished(newest, result)).points:
        return unfinished
    if is_complete:
        return result
    return f"{newest} has no load point that can be continued after; the run begins with the first."


def read_unfinished(folder: pathlib.Path, result: Result) -> UnfinishedResult:
    """The load points of an unfinished result that were measured as a whole, if there are any."""
    points, problem = read_points(folder, sum(map(_size, log_files(folder))), _size(folder / CSV_FILE))
    started_at_s = log_started_at_s(folder)
    return UnfinishedResult(folder, result, started_at_s or 0.0, () if started_at_s is None else tuple(points), problem)


def _candidates(folder: pathlib.Path) -> Iterator[pathlib.Path]:
    place = folder.resolve()
    yield place
    for number in itertools.count(1):
        partial = place.with_name(f"{place.name}.partial{f'-{number}' if number > 1 else ''}")
        if not partial.is_dir():
            return
        yield partial


def _size(file: pathlib.Path) -> int:
    return file.stat().st_size if file.is_file() else 0
