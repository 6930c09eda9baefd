"""Server, GPUs and generator on the requests' time axis: a column per load point, a row per sampled quantity."""

import dataclasses
import fnmatch
import itertools
from collections.abc import Iterator, Sequence
from typing import TypeAlias

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.ticker import MaxNLocator

from perfkit.report.plots import (
    BLUE,
    GREEN,
    INK,
    MUTED,
    NS_PER_MS,
    NUMBERS,
    PURPLE,
    VERMILLION,
    WIDTH_IN,
    legend_key,
    plot_series,
    separate_repetition,
)
from perfkit.report.timeline import Timeline, repetitions_of
from perfkit.result.model import Point, Result
from perfkit.telemetry.series import Series
from perfkit.units import NS_PER_S

_COLUMNS, _STEPS, _LISTED_ROWS = 4, 240, 4
_GIB = 2.0**30
_COLOURS = (BLUE, VERMILLION, GREEN, PURPLE, INK, MUTED)
_COUNTERS = ("_total", "_count", "_sum")
_LINE = {"ms": 3, "lw": 1.1}
_Repetitions: TypeAlias = Sequence[tuple[Point, float]]


@dataclasses.dataclass(frozen=True)
class SeriesLine:
    """A line of a row: the series of that name, multiplied by `scale`."""

    series: str
    label: str
    scale: float = 1.0
    is_maximum: bool = False
    """Whether a step shows the maximum of its samples; otherwise their mean."""
    is_counter: bool = False
    """Whether it counts up; shown is its rise per second."""
    is_held: bool = False
    """Whether a sample holds until the next one, however long that takes."""


@dataclasses.dataclass(frozen=True)
class _Row:
    title: str
    lines: tuple[SeriesLine, ...]
    top: float | None = None
    """What the axis reaches at least."""


_MS = 1 / NS_PER_MS
_ROWS = (
    _Row("server, ms\nper request", tuple(SeriesLine(f"server_{name}", label, _MS) for name, label in (
        ("queue", "queue"), ("compute_infer", "infer"), ("compute_input", "input"), ("compute_output", "output"),
    ))),
    _Row("requests\nper execution", (SeriesLine("server_mean_batch", "mean batch"),)),
    _Row("GPU busy, %", (SeriesLine("gpu_utilization", "", 100),), 100),
    _Row("GPU power, W", (SeriesLine("gpu_power", "", is_held=True),)),
    _Row("GPU memory,\nGiB", (SeriesLine("gpu_memory_used", "", 1 / _GIB, is_held=True),)),
    _Row("SM clock,\nMHz", (SeriesLine("gpu_sm_clock", "", is_held=True),)),
    _Row("generator's\nCPU, %", (
        SeriesLine("machine_cpu_share", "machine", 100), SeriesLine("worker_cpu_share", "worker", 100),
        SeriesLine("machine_steal_share", "steal", 100),
    ), 100),
    _Row("generator's\nloop, ms late", (
        SeriesLine("event_loop_lag", "timers", _MS, is_maximum=True), SeriesLine("gc_pause", "collections", _MS, is_maximum=True),
    )),
    _Row("TCP segments\nsent again, /s", (SeriesLine("tcp_retransmits_per_s", "segments"),)),
)  # fmt: skip
_SHOWN_UNLESS_ZERO = ("tcp_retransmits_per_s", "machine_steal_share")
_TRIVIAL_VALUES = {"server_mean_batch": 1.0}  # a series that never has another value is not shown


def resource_figures(result: Result, timeline: Timeline) -> Iterator[tuple[str, Figure]]:
    """Names and figures, for four load points each; none if nothing was sampled."""
    points = list(enumerate(result.summary))
    rows = [row for row in (*_ROWS, *_listed_rows(result, timeline)) if any(_is_shown(line, timeline) for line in row.lines)]
    for number, start in enumerate(range(0, len(points) if rows else 0, _COLUMNS), 1):
        yield f"resources-{number}" if number > 1 else "resources", _figure(result, timeline, rows, points[start : start + _COLUMNS])


def _figure(result: Result, timeline: Timeline, rows: Sequence[_Row], points: Sequence[tuple[int, Point]]) -> Figure:
    figure = Figure(figsize=(WIDTH_IN, 0.9 + 1.05 * (len(rows) + 1)), layout="constrained")
    panels = figure.subplots(len(rows) + 1, len(points), sharex="col", sharey="row", squeeze=False)
    for column, (index, point) in enumerate(points):
        repetitions = repetitions_of(result, point)
        panels[0][column].set_title(point.title, pad=4)
        _draw_times(panels[0][column], timeline, index, repetitions)
        for row, panel in zip(rows, panels[1:, column], strict=True):
            _draw_row(panel, row, timeline, index, repetitions)
        for panel in panels[:, column]:
            panel.set_xlim(0, sum(one.duration_s for one, _ in repetitions) or 1.0)
            panel.xaxis.set_major_locator(MaxNLocator(5, integer=True))
        for _, start_s in repetitions:
            separate_repetition(panels[:, column], start_s)
        panels[-1][column].set_xlabel("seconds measured")
    times_row = _Row(f"{points[0][1].times_name},\nms", ())
    for panel, row in zip(panels[:, 0], (times_row, *rows), strict=True):
        panel.set_ylabel(row.title)
        highest = max((float(np.max(line.get_ydata())) for line in _lines_in_row(panel)), default=0.0)
        panel.set_ylim(0, max(highest * 1.12, row.top or 0.0) or 1.0)
        panel.yaxis.set_major_locator(MaxNLocator(3, steps=[1, 2, 5, 10]))
        panel.yaxis.set_major_formatter(NUMBERS)
    for panel in panels[:, -1]:
        colours = {str(line.get_label()): line.get_color() for line in _lines_in_row(panel)}
        if colours:
            handles = [legend_key(color=colour, lw=2, label=label) for label, colour in colours.items()]
            panel.legend(handles=handles, loc="upper left", bbox_to_anchor=(1.0, 1.05), fontsize=7.5, handlelength=1.2, borderaxespad=0.2)
    figure.align_ylabels()
    return figure


def _lines_in_row(panel: Axes) -> list[Line2D]:
    return [line for sibling in panel.get_shared_y_axes().get_siblings(panel) for line in sibling.lines if line.get_gid()]


def _draw_times(panel: Axes, timeline: Timeline, index: int, repetitions: _Repetitions) -> None:
    for one, start_s in repetitions:
        number = one.repetition or 0
        for name, colour in (("p50", BLUE), ("p99", VERMILLION)):
            values = timeline.times_ms((index, number), name, start_s)
            plot_series(panel, values, **_LINE, color=colour, label=name, gid=f"requests-{name}-{index}-r{number}")


def _draw_row(panel: Axes, row: _Row, timeline: Timeline, index: int, repetitions: _Repetitions) -> None:
    unused = itertools.cycle(_COLOURS)
    colours: dict[str, str] = {}
    lines = [line for line in row.lines if _is_shown(line, timeline)]
    for one, start_s in repetitions:
        number = one.repetition or 0
        for line, series in itertools.product(lines, timeline.telemetry.get((index, number), ())):
            if series.name == line.series:
                label = _label(line, series)
                if label not in colours:
                    colours[label] = next(unused)
                values = [(start_s + at_s, value * line.scale) for at_s, value in step_values(series, line, one.duration_s)]
                plot_series(panel, values, **_LINE, color=colours[label], label=label, gid=f"{series.name}-{label}-{index}-r{number}")


def _label(line: SeriesLine, series: Series) -> str:
    if "gpu" in series.labels:
        return _shortened(series.labels["gpu"], 12)  # a GPU's UUID is wider than the legend
    if line.label:
        return f"{line.label} {series.labels.get('worker', '')}".strip()
    return ", ".join(f"{key} {value}" for key, value in sorted(series.labels.items()) if value) or series.name


def _shortened(text: str, length: int) -> str:
    return text if len(text) <= length else f"{text[:length]}…"


def step_values(series: Series, line: SeriesLine, window_s: float) -> list[tuple[float, float]]:
    """The series in at most 240 steps of the window: seconds since the window's start, and values."""
    times_s, values = np.array(series.times_ns) / NS_PER_S, np.array(series.values)
    if line.is_held:
        middles_s = (np.arange(_STEPS) + 0.5) * window_s / _STEPS
        indices = np.searchsorted(times_s, middles_s, "right") - 1
        return [(float(at_s), float(values[index])) for at_s, index in zip(middles_s, indices, strict=True) if index >= 0]
    if line.is_counter:
        times_s, values = times_s[1:], np.diff(values) / np.maximum(np.diff(times_s), 1e-9)
    values, times_s = values[times_s >= 0], times_s[times_s >= 0]  # a series may begin with the last sample before the window
    step_s = max(window_s / _STEPS, 1e-9)
    combine = np.max if line.is_maximum else np.mean
    steps = (times_s // step_s).astype(int)
    return [(float(times_s[steps == step].mean()), float(combine(values[steps == step]))) for step in np.unique(steps)]


def _is_shown(line: SeriesLine, timeline: Timeline) -> bool:
    values = [value for listed in timeline.telemetry.values() for series in listed if series.name == line.series for value in series.values]
    if line.series in _SHOWN_UNLESS_ZERO:
        return any(values)
    return any(value != _TRIVIAL_VALUES.get(line.series) for value in values)


def _listed_rows(result: Result, timeline: Timeline) -> list[_Row]:
    """Rows for the first of the metrics that the scenario names."""
    patterns = (result.scenario.get("metrics") or {}).get("names") or ()
    if not isinstance(patterns, Sequence):
        return []
    sampled = {series.name for listed in timeline.telemetry.values() for series in listed}
    names = [name for name in sorted(sampled) if any(fnmatch.fnmatchcase(name, str(pattern)) for pattern in patterns)]
    lines = [SeriesLine(name, "", is_counter=name.endswith(_COUNTERS)) for name in names[:_LISTED_ROWS]]
    return [_Row(f"{_shortened(line.series, 17)}{', /s' * line.is_counter}", (line,)) for line in lines]
