"""Results for other programs: CSV, and `.hgrm` text for HdrHistogram's plotters."""

import pathlib
import re
from collections.abc import Mapping, Sequence

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
        name = _NOT_IN_NAMES.sub("-", f"{point.title}-{times}".replace(",", ""))
        files[f"{name}.hgrm"] = percentile_distribution(counts)
    return files
