"""Server, GPUs and generator on the requests' time axis: a column a load point, a row a quantity, whatever was sampled."""

import dataclasses
import fnmatch
import itertools
from collections.abc import Callable, Mapping, Sequence

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.ticker import MaxNLocator

from perfkit.report.plot_style import BLUE, GREEN, INK, MUTED, NS_PER_MS, NUMBERS, PURPLE, VERMILLION, WIDTH_IN
from perfkit.report.recorded import Recorded, repetitions_of
from perfkit.result.model import Point, Result
from perfkit.telemetry.series import Series
from perfkit.units import NS_PER_S

_COLUMNS, _STEPS, _LISTED_ROWS = 4, 240, 4
_GIB = 2.0**30
_SHADES = (BLUE, VERMILLION, GREEN, PURPLE, INK, MUTED)
_COUNTERS = ("_total", "_count", "_sum")


@dataclasses.dataclass(frozen=True)
class _Line:
    """One line of a row: of the series of that name, multiplied; `most` shows the greatest of each step, not the mean."""

    series: str
    label: str
    scale: float = 1.0
    most: bool = False
    rises: bool = False
    """Whether it is a counter, whose rise per second is shown."""
    holds: bool = False
    """Whether a sample stands for all the time until the next one, however long that is."""


@dataclasses.dataclass(frozen=True)
class _Row:
    title: str
    lines: tuple[_Line, ...]
    top: float | None = None


_MS = 1 / NS_PER_MS
_ROWS = (
    _Row("server, ms\na request", tuple(_Line(f"server_{name}", label, _MS) for name, label in (
        ("queue", "queue"), ("compute_infer", "infer"), ("compute_input", "input"), ("compute_output", "output"),
    ))),
    _Row("requests\nan execution", (_Line("server_mean_batch", "mean batch"),)),
    _Row("GPU busy, %", (_Line("gpu_utilization", "", 100),), 100),
    _Row("GPU power, W", (_Line("gpu_power", "", holds=True),)),
    _Row("GPU memory,\nGiB", (_Line("gpu_memory_used", "", 1 / _GIB, holds=True),)),
    _Row("SM clock,\nMHz", (_Line("gpu_sm_clock", "", holds=True),)),
    _Row("generator's\nCPU, %", (
        _Line("machine_cpu_share", "machine", 100), _Line("worker_cpu_share", "worker", 100), _Line("machine_steal_share", "steal", 100),
    ), 100),
    _Row("generator's\nloop, ms late", (_Line("event_loop_lag", "timers", _MS, most=True), _Line("gc_pause", "collections", _MS, most=True))),
    _Row("TCP segments\nsent again, /s", (_Line("tcp_retransmits_per_s", "segments"),)),
)  # fmt: skip
_OPTIONAL = ("tcp_retransmits_per_s", "machine_steal_share")  # shown where there was any
_TRIVIAL = {"server_mean_batch": 1.0}  # not shown where it never was anything else


def resource_figures(result: Result, recorded: Recorded) -> dict[str, Figure]:
    """Figures by name, of four load points each; none where nothing was sampled."""
    points = list(enumerate(result.summary))
    rows = [row for row in (*_ROWS, *_listed(result, recorded)) if any(_is_shown(line, recorded) for line in row.lines)]
    if not rows:
        return {}
    chunks = [points[start : start + _COLUMNS] for start in range(0, len(points), _COLUMNS)]
    return {
        f"resources-{number}" if number > 1 else "resources": _figure(result, recorded, rows, some) for number, some in enumerate(chunks, 1)
    }


def _figure(result: Result, recorded: Recorded, rows: Sequence[_Row], points: Sequence[tuple[int, Point]]) -> Figure:
    figure = Figure(figsize=(WIDTH_IN, 0.9 + 1.05 * (len(rows) + 1)), layout="constrained")
    panels = figure.subplots(len(rows) + 1, len(points), sharex="col", sharey="row", squeeze=False)
    for column, (index, point) in enumerate(points):
        spans, offset_s = [], 0.0
        for one in repetitions_of(result, point):
            spans.append((one.repetition or 0, offset_s, one.duration_s))
            offset_s += one.duration_s
        top = panels[0][column]
        top.set_title(f"{point.protocol}, {point.load.title}", pad=4)
        _draw_times(top, recorded, index, spans)
        for row, panel in zip(rows, panels[1:, column], strict=True):
            _draw_row(panel, row, recorded, index, spans)
        for panel in panels[:, column]:
            panel.set_xlim(0, offset_s or 1.0)
            panel.xaxis.set_major_locator(MaxNLocator(5, integer=True))
            for _, start_s, _ in spans[1:]:
                panel.axvline(start_s, color=MUTED, lw=0.8, ls=":")
        panels[-1][column].set_xlabel("seconds measured")
    for panel, title, top_value in zip(
        panels[:, 0], (f"{points[0][1].times_name},\nms", *(row.title for row in rows)), (None, *(row.top for row in rows)), strict=True
    ):
        panel.set_ylabel(title)
        highest = max((float(np.max(line.get_ydata())) for line in _lines_beside(panel)), default=0.0)
        panel.set_ylim(0, max(highest * 1.12, top_value or 0.0) or 1.0)
        panel.yaxis.set_major_locator(MaxNLocator(3, steps=[1, 2, 5, 10]))
        panel.yaxis.set_major_formatter(NUMBERS)
    for panel in panels[:, -1]:
        shown = {str(line.get_label()): line.get_color() for line in _lines_beside(panel)}
        if shown:
            keys = [Line2D([], [], color=colour, lw=2, label=label) for label, colour in shown.items()]
            panel.legend(handles=keys, loc="upper left", bbox_to_anchor=(1.0, 1.05), fontsize=7.5, handlelength=1.2, borderaxespad=0.2)
    figure.align_ylabels()
    return figure


def _lines_beside(panel: Axes) -> list[Line2D]:
    """The lines of a panel and of those in its row."""
    return [line for one in panel.get_shared_y_axes().get_siblings(panel) for line in one.lines if line.get_gid()]


def _draw_times(panel: Axes, recorded: Recorded, index: int, spans: Sequence[tuple[int, float, float]]) -> None:
    for repetition, offset_s, _ in spans:
        slices = recorded.slices.get((index, repetition), ())
        for name, colour in (("p50", BLUE), ("p99", VERMILLION)):
            known = [(offset_s + one.start_s + recorded.slice_s / 2, one.times[name] / NS_PER_MS) for one in slices if name in one.times]
            _plot(panel, known, colour, name, f"requests-{name}-{index}-r{repetition}")


def _draw_row(panel: Axes, row: _Row, recorded: Recorded, index: int, spans: Sequence[tuple[int, float, float]]) -> None:
    colours: dict[str, str] = {}
    shades = itertools.cycle(_SHADES)
    for repetition, offset_s, length_s in spans:
        sampled = recorded.telemetry.get((index, repetition), ())
        for line in row.lines:
            for series in sampled:
                if series.name == line.series and _is_shown(line, recorded):
                    label = _label(line, series)
                    if label not in colours:
                        colours[label] = next(shades)
                    known = [(offset_s + at_s, value * line.scale) for at_s, value in _stepped(series, line, length_s)]
                    _plot(panel, known, colours[label], label, f"{series.name}-{label}-{index}-r{repetition}")


def _plot(panel: Axes, known: Sequence[tuple[float, float]], colour: str, label: str, gid: str) -> None:
    if known:
        panel.plot(*zip(*known, strict=True), color=colour, marker="o" if len(known) == 1 else None, ms=3, lw=1.1, label=label, gid=gid)


def _label(line: _Line, series: Series) -> str:
    if "gpu" in series.labels:
        return _short(series.labels["gpu"])
    if line.label:
        return f"{line.label} {series.labels.get('worker', '')}".strip()
    return ", ".join(f"{key} {value}" for key, value in sorted(series.labels.items()) if value) or series.name


def _short(uuid: str) -> str:
    """A GPU's UUID is longer than a legend is wide."""
    return uuid if len(uuid) <= 12 else f"{uuid[:12]}…"


def _stepped(series: Series, line: _Line, length_s: float) -> list[tuple[float, float]]:
    """Samples in some 240 steps of the window at most, in seconds from its start."""
    times_s, values = np.array(series.times_ns) / NS_PER_S, np.array(series.values)
    if line.holds:
        middles_s = (np.arange(_STEPS) + 0.5) * length_s / _STEPS
        held = np.searchsorted(times_s, middles_s, "right") - 1
        return [(float(at_s), float(values[index])) for at_s, index in zip(middles_s, held, strict=True) if index >= 0]
    if line.rises:
        times_s, values = times_s[1:], np.diff(values) / np.maximum(np.diff(times_s), 1e-9)
    values, times_s = values[times_s >= 0], times_s[times_s >= 0]  # a series may begin with what held at the start
    step_s = max(length_s / _STEPS, 1e-9)
    take: Callable[[np.ndarray], float] = (lambda some: float(some.max())) if line.most else (lambda some: float(some.mean()))
    steps = (times_s // step_s).astype(int)
    return [(float(times_s[steps == step].mean()), take(values[steps == step])) for step in np.unique(steps)]


def _is_shown(line: _Line, recorded: Recorded) -> bool:
    values = [value for some in recorded.telemetry.values() for series in some if series.name == line.series for value in series.values]
    if line.series in _OPTIONAL:
        return any(values)
    return any(value != _TRIVIAL.get(line.series) for value in values)


def _listed(result: Result, recorded: Recorded) -> list[_Row]:
    """Rows for the metrics that the scenario lists by name, a few of them."""
    asked = (result.scenario.get("metrics") or {}).get("names") or ()
    if not isinstance(asked, Sequence) or not asked:
        return []
    names = {series.name for some in recorded.telemetry.values() for series in some}
    known: Mapping[str, None] = dict.fromkeys(
        name for name in sorted(names) if any(fnmatch.fnmatchcase(name, str(pattern)) for pattern in asked)
    )
    rows = []
    for name in list(known)[:_LISTED_ROWS]:
        rises = name.endswith(_COUNTERS)
        title = name if len(name) <= 18 else f"{name[:17]}…"
        rows.append(_Row(f"{title}{', /s' if rises else ''}", (_Line(name, "", rises=rises),)))
    return rows
