"""The views that stand in a result folder, drawn from its own files alone."""

import math
import pathlib

from perfkit.errors import ResultError
from perfkit.recorder.histogram import Histogram
from perfkit.report.html import render_html
from perfkit.report.markdown import render_markdown
from perfkit.report.plots import draw_plots
from perfkit.report.recorded import Recorded, Slice
from perfkit.result.atomic_write import write_whole
from perfkit.result.distribution import QUANTILES
from perfkit.result.file import read_result
from perfkit.result.interval_log import read_times
from perfkit.result.model import Result
from perfkit.result.telemetry_file import read_telemetry
from perfkit.stats.sample_size import is_withheld

_SLICES = 240  # about what a panel of the timeline can show


def write_reports(folder: pathlib.Path) -> list[pathlib.Path]:
    """Writes `report.html`, `report.md` and `plots/*.svg` into a result folder, each in one step; raises ResultError."""
    result, folder = read_result(folder)
    plots = draw_plots(result, read_recorded(folder, result))
    texts = {folder / "plots" / f"{name}.svg": svg for name, svg in plots.items()}
    texts[folder / "report.md"] = render_markdown(result)
    texts[folder / "report.html"] = render_html(result, plots)
    try:
        if plots:
            (folder / "plots").mkdir(exist_ok=True)
        for file, text in texts.items():
            write_whole(file, text)
        for left in set(folder.glob("plots/*.svg")) - set(texts):  # of an earlier perfkit, which drew others
            left.unlink()
    except OSError as error:
        raise ResultError(f"{folder}: the report cannot be written there: {error.strerror}") from None
    return list(texts)


def read_recorded(folder: pathlib.Path, result: Result) -> Recorded:
    """The log of a result: each point's histogram, and its slices in time; raises ResultError.

    Seconds are kept encoded and added up into slices afterwards, so that a long run fits into memory.
    """
    index_of = {(point.protocol, point.load): index for index, point in enumerate(result.summary)}
    window_s = {
        (index_of[load], one.repetition or 0): one.duration_s for one in result.points if (load := (one.protocol, one.load)) in index_of
    }
    pooled = tuple(Histogram() for _ in result.summary)
    seconds: dict[tuple[int, int], dict[float, list[str]]] = {key: {} for key in window_s}
    for key, start_s, histogram in read_times(folder, result):
        if key in window_s:  # what was logged of a point that never ended has no place in the result either
            pooled[key[0]].add(histogram)
            seconds[key].setdefault(start_s, []).append(histogram.encode())
    longest_s = max((sum(length for key, length in window_s.items() if key[0] == index) for index in range(len(pooled))), default=0.0)
    slice_s = max(1, math.ceil(longest_s / _SLICES))
    telemetry = {key: series for key, series in read_telemetry(folder).items() if key in window_s}
    return Recorded(pooled, {key: _slices(some, slice_s) for key, some in seconds.items()}, slice_s, telemetry)


def _slices(seconds: dict[float, list[str]], slice_s: int) -> tuple[Slice, ...]:
    """Slices of so many seconds; the first second with samples is taken for the window's first."""
    parts: dict[int, list[str]] = {}
    for start_s, texts in seconds.items():
        parts.setdefault(round(start_s - min(seconds)) // slice_s, []).extend(texts)
    return tuple(_slice(number * slice_s, texts) for number, texts in sorted(parts.items()))


def _slice(start_s: int, texts: list[str]) -> Slice:
    histogram = Histogram()
    for text in texts:
        histogram.add(Histogram.decode(text))
    names = [name for name in ("p50", "p90", "p99") if not is_withheld(QUANTILES[name], histogram.count)]
    values = histogram.values_at([QUANTILES[name] for name in names])
    return Slice(
        start_s, {**{name: min(value, histogram.max_ns) for name, value in zip(names, values, strict=True)}, "max": histogram.max_ns}
    )
