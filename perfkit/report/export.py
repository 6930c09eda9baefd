"""Results for other programs: CSV, `.hgrm` text for HdrHistogram's plotters, and Bencher's JSON."""

import json
import pathlib
import re
from collections.abc import Mapping, Sequence

from perfkit.errors import UsageError
from perfkit.recorder.histogram import percentile_distribution
from perfkit.result.file import read_result
from perfkit.result.frames import addresses_frame, csv_text, points_frame, read_histograms

_NOT_IN_NAMES = re.compile(r"[^\w.-]+", re.ASCII)


def points_csv(folders: Sequence[pathlib.Path]) -> str:
    """The load points of several results as CSV, a row each, repetitions pooled, followed by a row for each address of targets with several.

    Those alone have an `address`, a column that is left out if there are none. The column `result` is the result folder; docs/how-to/python.md describes the other columns. Raises ResultError.
    """
    import pandas as pd

    parts = []
    for folder in folders:
        result, place = read_result(folder)
        parts.append(points_frame(result.summary).assign(result=str(place)))
        if not (addresses := addresses_frame(result.summary)).empty:
            parts.append(addresses.assign(result=str(place)))
    frame = pd.concat(parts, ignore_index=True)
    return csv_text(frame[["result", *(name for name in frame.columns if name not in ("result", "repetition"))]])


def percentile_distributions(folder: pathlib.Path) -> Mapping[str, str]:
    """The text of an `.hgrm` file for each load point, by file name.

    Repetitions are pooled; values are in milliseconds. Raises ResultError.
    """
    result, folder = read_result(folder)
    files = {}
    for point, counts in zip(result.summary, read_histograms(folder, result), strict=True):
        times = point.times_name.partition(" ")[0]
        files[f"{plain_name(f'{point.title}-{times}')}.hgrm"] = percentile_distribution(counts)
    return files


def plain_name(title: str) -> str:
    """A title of letters, digits, dots and dashes: `grpc-concurrency-16`."""
    return _NOT_IN_NAMES.sub("-", title.replace(",", ""))


def bencher_json(folders: Sequence[pathlib.Path]) -> str:
    """The figures of all valid load points as Bencher Metric Format, a benchmark each.

    A benchmark's name has the scenario's name, of several results also the name of the folder, and the load point. Source of the format:
    https://bencher.dev/docs/reference/bencher-metric-format. Raises UsageError for results of one name, and ResultError.
    """
    benchmarks: dict[str, dict[str, dict[str, float]]] = {}
    for folder in folders:
        result, place = read_result(folder)
        scenario = str(result.scenario.get("name") or "perfkit")
        name = f"{scenario}/{place.resolve().name}" if len(folders) > 1 else scenario
        for point in result.summary:
            if (title := f"{name}: {point.title}") in benchmarks:
                raise UsageError(f"--bencher {place}: {title!r} is also in another result; give results whose folders have different names")
            if point.valid:
                benchmarks[title] = {
                    measure: {
                        key: end
                        for key, end in (("value", one.value), ("lower_value", one.low), ("upper_value", one.high))
                        if end is not None
                    }
                    for measure, one in point.exported().items()
                }
    return json.dumps(benchmarks, indent=2, allow_nan=False) + "\n"
