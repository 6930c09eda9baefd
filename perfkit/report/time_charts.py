"""Charts over a run's measured time: requests, server, GPUs and load generator on one axis, window after window."""

import dataclasses
import fnmatch
import itertools
from collections.abc import Callable, Iterator, Mapping, Sequence

import numpy as np

from perfkit.report.chart import GREEN, INK, MUTED, PURPLE, RED, Axis, Chart, ChartGroup, Heat, HeatColumn, Level, Line, Span
from perfkit.report.chart_rules import OTHER_COLOURS, PERCENTILE_STYLES
from perfkit.report.timeline import HEAT_BINS_PER_DECADE, Slice, Timeline
from perfkit.result.fingerprint import is_on_gpu
from perfkit.result.model import Point, Result
from perfkit.telemetry.series import Series
from perfkit.units import NS_PER_S

_STEPS, _LISTED_ROWS, _LARGEST_RATIO = 720, 4, 20
_GIB, _MS = 2.0**30, 1e-6
_COUNTERS = ("_total", "_count", "_sum")
_INCIDENTS = {"stall": "stall", "error_burst": "failures"}
_UPPER = {"p99": "p99", "p90": "p90 (p99 needs 100 samples a step)", "max": "maximum (p90 needs 10 samples a step)"}
_Values = list[tuple[float, float | None]]


@dataclasses.dataclass(frozen=True)
class SeriesLine:
    """A line of a chart: the telemetry series of that name, multiplied by `scale`."""

    series: str
    label: str
    scale: float = 1.0
    is_maximum: bool = False
    """Whether a step shows the maximum of its samples rather than their mean."""
    is_counter: bool = False
    """Whether the series is a counter, which is drawn as its rate per second."""
    is_held: bool = False
    """Whether each sample holds until the next one, however late that is."""


@dataclasses.dataclass(frozen=True)
class _Row:
    title: str
    unit: str
    lines: tuple[SeriesLine, ...]
    top: float | None = None
    """The smallest upper end of the y axis."""


@dataclasses.dataclass(frozen=True)
class _Window:
    """A window of the shared axis: a load point, or one of its repetitions, with its key in the timeline."""

    key: tuple[int, int]
    point: Point
    start_s: float
    title: str

    @property
    def end_s(self) -> float:
        return self.start_s + self.point.duration_s


_SERVER_ROWS = (
    _Row("server's time per request", "ms", tuple(SeriesLine(f"server_{name}", label, _MS) for name, label in (
        ("queue", "queue"), ("compute_infer", "infer"), ("compute_input", "input"), ("compute_output", "output"),
    ))),
    _Row("requests per execution", "", (SeriesLine("server_mean_batch", "mean batch"),)),
)  # fmt: skip
_GPU_ROWS = (
    _Row("GPU busy", "%", (SeriesLine("gpu_utilization", "", 100),), 120),  # the names of load points stand above 100 %
    _Row("GPU power", "W", (SeriesLine("gpu_power", "", is_held=True),)),
    _Row("GPU memory", "GiB", (SeriesLine("gpu_memory_used", "", 1 / _GIB, is_held=True),)),
    _Row("SM clock", "MHz", (SeriesLine("gpu_sm_clock", "", is_held=True),)),
)
_GENERATOR_ROWS = (
    _Row("generator's CPU", "%", (
        SeriesLine("machine_cpu_share", "machine", 100), SeriesLine("worker_cpu_share", "worker", 100),
        SeriesLine("machine_steal_share", "steal", 100),
    ), 100),
    _Row("generator's loop, late", "ms", (
        SeriesLine("event_loop_lag", "timers", _MS, is_maximum=True), SeriesLine("gc_pause", "collections", _MS, is_maximum=True),
    )),
    _Row("TCP segments sent again", "/s", (SeriesLine("tcp_retransmits_per_s", "segments"),)),
)  # fmt: skip
_SHOWN_UNLESS_ZERO = ("tcp_retransmits_per_s", "machine_steal_share")
_TRIVIAL_VALUES = {"server_mean_batch": 1.0}  # a series that never has another value is not shown


def time_group(result: Result, timeline: Timeline) -> ChartGroup | None:
    """Charts of all that was recorded over time, on one axis of measured seconds; None without samples.

    GPUs are left out where `gpu_group` draws them.
    """
    if not any(timeline.slices.values()):
        return None
    windows = list(_windows(result))
    x, gpu_rows = _seconds(windows), () if is_on_gpu(result) else _GPU_ROWS
    rows = (*_SERVER_ROWS, *gpu_rows, *_GENERATOR_ROWS, *_listed_rows(result, timeline))
    return _group(windows, [*_request_charts(windows, timeline, x), *_resource_charts(rows, windows, timeline, x)])


def gpu_group(result: Result, timeline: Timeline) -> ChartGroup | None:
    """Charts of the GPUs of a run that a GPU served, on the same axis; None without samples of them."""
    windows = list(_windows(result))
    if not windows or not is_on_gpu(result):
        return None
    charts = list(_resource_charts(_GPU_ROWS, windows, timeline, _seconds(windows)))
    return _group(windows, charts) if charts else None


def _seconds(windows: Sequence[_Window]) -> Axis:
    return Axis("seconds measured", "s", low=0.0, high=max(windows[-1].end_s, 1e-3))


def _group(windows: Sequence[_Window], charts: Sequence[Chart]) -> ChartGroup:
    """The charts with marks where load points begin, and backgrounds of incidents and load points that are not valid."""
    spans = tuple(Span(window.start_s, window.end_s, "not valid", is_bad=True) for window in windows if not window.point.valid)
    spans += tuple(_incident_spans(windows))
    starts = tuple(Level(window.start_s, window.title, is_vertical=True, colour=MUTED) for window in windows)
    # only the first chart names the load points, and it and the second the incidents
    unnamed = tuple(dataclasses.replace(level, label="") for level in starts)
    unlabelled = tuple(dataclasses.replace(span, label="") for span in spans)
    charts = [
        dataclasses.replace(chart, spans=unlabelled if number > 1 else spans, levels=(unnamed if number else starts)[len(starts) == 1 :])
        for number, chart in enumerate(charts)
    ]
    named = {span.label: span for span in (*_named_windows(windows), *_named_incidents(windows))}
    return ChartGroup(tuple(charts), is_synchronised=True, axis="seconds measured", windows=tuple(named.values()) if len(named) > 1 else ())


def _windows(result: Result) -> Iterator[_Window]:
    """The windows in the order in which they were measured."""
    index_of = {point.key: index for index, point in enumerate(result.summary)}
    several, start_s = any(point.repetition for point in result.points), 0.0
    for point in result.points:
        if point.workload is not None and not point.alone:
            continue  # a part of the mix, in the same seconds
        if (index := index_of.get(point.key)) is not None:
            repetition = point.repetition or 0
            yield _Window((index, repetition), point, start_s, f"{point.title}, {repetition + 1}" if several else point.title)
            start_s += point.duration_s


def _incident_spans(windows: Sequence[_Window]) -> Iterator[Span]:
    for window in windows:
        for one in window.point.incidents:
            yield Span(window.start_s + one.start_s, min(window.start_s + one.end_s, window.end_s), _INCIDENTS[one.kind])


def _named_incidents(windows: Sequence[_Window]) -> Iterator[Span]:
    """The incidents with as much of their window before and after them, for the choice of what to zoom to."""
    for window in windows:
        for one in window.point.incidents:
            low, high = (window.start_s + at_s for at_s in (one.start_s - one.length_s, one.end_s + one.length_s))
            label = f"{window.title}: {_INCIDENTS[one.kind]} at {one.start_s:.0f} s"
            yield Span(max(low, window.start_s), min(high, window.end_s), label)


def _named_windows(windows: Sequence[_Window]) -> Iterator[Span]:
    return (Span(window.start_s, window.end_s, window.title, is_bad=not window.point.valid) for window in windows)


def _request_charts(windows: Sequence[_Window], timeline: Timeline, x: Axis) -> Iterator[Chart]:
    name, upper = windows[0].point.times_name, upper_percentile(timeline)
    p50, high = (
        Line.of(label, _slice_values(windows, timeline.slices, one), INK, PERCENTILE_STYLES[one])
        for one, label in (("p50", "p50"), (upper, _UPPER[upper]))
    )
    step = f", in steps of {timeline.slice_s} s" if timeline.slice_s > 1 else ""
    heat = Heat(HEAT_BINS_PER_DECADE, tuple(_heat_columns(windows, timeline.slices)))
    yield Chart(f"{name}{step}", x, Axis(name, "ms", "log"), (p50, high), heat=heat, height_px=300)
    rates = Line.of("ok answers", _joined(windows, lambda window: _ok_per_s(window.point, timeline.slice_s)), GREEN)
    failures = Line.of("failed requests", _joined(windows, lambda window: _failed_per_s(window.point, timeline.slice_s)), RED)
    rate_lines = (rates, *([failures] if any(failures.ys) else []))
    yield Chart("throughput and errors", x, *_on_a_rate_axis(rate_lines), height_px=180)
    if any(window.point.retries for window in windows):
        lines = (
            Line.of("attempts", _joined(windows, lambda window: _sent_per_s(window.point, timeline.slice_s, retries=True)), PURPLE),
            Line.of("requests", _joined(windows, lambda window: _sent_per_s(window.point, timeline.slice_s, retries=False)), INK),
        )
        yield Chart("attempts and requests", x, *_on_a_rate_axis(lines), height_px=180)
    if any(timeline.service_slices.values()):
        pair = tuple(
            Line.of(f"{kind}, {one}", _slice_values(windows, slices, one), colour, PERCENTILE_STYLES[one])
            for one in ("p50", upper)
            for kind, slices, colour in (("response time", timeline.slices, INK), ("service time", timeline.service_slices, GREEN))
        )
        yield Chart("response time against service time", x, Axis("time", "ms", "log"), pair, height_px=200)
    if any(timeline.delay_slices.values()):
        delays = tuple(
            Line.of(one, [(at_s, y or None) for at_s, y in _slice_values(windows, timeline.delay_slices, one)], INK, PERCENTILE_STYLES[one])
            for one in ("p50", "max")
        )
        yield Chart("start delay: how late requests were sent", x, Axis("start delay", "ms", "log"), delays, height_px=160)


def _on_a_rate_axis(lines: tuple[Line, ...]) -> tuple[Axis, tuple[Line, ...]]:
    """An axis from zero; a logarithmic one, on which zeros are gaps, if low rates could not be seen beside the highest."""
    rates = sorted(rate for line in lines for rate in line.ys if rate)
    if not rates or rates[-1] <= _LARGEST_RATIO * rates[len(rates) // 2]:
        return Axis("requests", "/s"), lines
    return Axis("requests", "/s", "log"), tuple(dataclasses.replace(line, ys=tuple(rate or None for rate in line.ys)) for line in lines)


def _joined(windows: Sequence[_Window], values_of: Callable[[_Window], Sequence[tuple[float, float]]]) -> _Values:
    """The values of all windows on the shared axis, with a gap after each; `values_of` counts from the window's start."""
    joined: _Values = []
    for window in windows:
        joined += [(window.start_s + at_s, value) for at_s, value in values_of(window)]
        joined.append((window.end_s, None))
    return joined


def _slice_values(windows: Sequence[_Window], slices: Mapping[tuple[int, int], Sequence[Slice]], name: str) -> _Values:
    return _joined(
        windows,
        lambda window: [(part.middle_s, part.times_ns[name] * _MS) for part in slices.get(window.key, ()) if name in part.times_ns],
    )


def _heat_columns(windows: Sequence[_Window], slices: Mapping[tuple[int, int], Sequence[Slice]]) -> Iterator[HeatColumn]:
    """The columns of the heat map, with bins of milliseconds."""
    shift = 6 * HEAT_BINS_PER_DECADE  # from nanoseconds
    for window in windows:
        for part in slices.get(window.key, ()):
            if part.bins:
                first, last = min(part.bins), max(part.bins)
                counts = tuple(part.bins.get(number, 0) for number in range(first, last + 1))
                start_s = window.start_s + part.start_s
                yield HeatColumn(start_s, start_s + part.length_s, first - shift, counts)


def _ok_per_s(point: Point, slice_s: int) -> list[tuple[float, float]]:
    return _rates(point.throughput_series_per_s or (), point.duration_s, slice_s)


def _failed_per_s(point: Point, slice_s: int) -> list[tuple[float, float]]:
    return _rates(point.failed_series_per_s or (), point.duration_s, slice_s)


def _sent_per_s(point: Point, slice_s: int, *, retries: bool) -> list[tuple[float, float]]:
    """The attempts sent, with or without those that were retries."""
    if (one := point.retries) is None:
        return []
    attempts, again = one.attempts_series_per_s or (), one.retries_series_per_s or ()
    sent = attempts if retries else [count - few for count, few in zip(attempts, again, strict=True)]
    return _rates(sent, point.duration_s, slice_s)


def _rates(series: Sequence[int], window_s: float, slice_s: int) -> list[tuple[float, float]]:
    """Counts of seconds as rates at the middle of each slice; a last slice too short for a rate is left out."""
    rates = []
    for start_s in range(0, len(series), slice_s):
        length_s = min(float(slice_s), window_s - start_s)
        if length_s >= slice_s / 2 or (not start_s and length_s > 0):
            rates.append((start_s + length_s / 2, sum(series[start_s : start_s + slice_s]) / length_s))
    return rates


def upper_percentile(timeline: Timeline) -> str:
    """The percentile drawn over time: p99, or p90 if too few slices have the samples for p99; `max` if too few have them for p90."""
    slices = list(itertools.chain.from_iterable(timeline.slices.values()))
    return next((name for name in ("p99", "p90") if sum(name in part.times_ns for part in slices) >= 0.9 * len(slices)), "max")


def _resource_charts(rows: Sequence[_Row], windows: Sequence[_Window], timeline: Timeline, x: Axis) -> Iterator[Chart]:
    """A chart for each sampled quantity, with a line for each GPU, worker or set of labels."""
    total_s = sum(window.point.duration_s for window in windows)
    for row in rows:
        lines: dict[str, _Values] = {}
        for window in windows:
            steps = min(max(round(_STEPS * window.point.duration_s / total_s), 2), 240) if total_s else 2
            for line, series in itertools.product(row.lines, timeline.telemetry.get(window.key, ())):
                if series.name == line.series and _is_shown(line, timeline):
                    values = step_values(series, line, window.point.duration_s, steps)
                    own = lines.setdefault(_label(line, series), [])
                    own += [(window.start_s + at_s, value * line.scale) for at_s, value in values]
                    own.append((window.end_s, None))
        if lines:
            drawn = tuple(
                Line.of(label, values, colour)
                for (label, values), colour in zip(lines.items(), itertools.cycle(OTHER_COLOURS), strict=False)
            )
            yield Chart(row.title, x, Axis(row.title, row.unit, high=row.top), drawn, height_px=150)


def _label(line: SeriesLine, series: Series) -> str:
    if "gpu" in series.labels:
        return _shortened(series.labels["gpu"], 12)  # a GPU's UUID is wider than the legend
    if line.label:
        return f"{line.label} {series.labels.get('worker', '')}".strip()
    return ", ".join(f"{key} {value}" for key, value in sorted(series.labels.items()) if value) or series.name


def _shortened(text: str, length: int) -> str:
    return text if len(text) <= length else f"{text[:length]}…"


def step_values(series: Series, line: SeriesLine, window_s: float, most: int) -> list[tuple[float, float]]:
    """A series in at most `most` steps of a window: seconds since the window's start, and values."""
    times_s, values = np.array(series.times_ns) / NS_PER_S, np.array(series.values)
    if line.is_held:
        middles_s = (np.arange(most) + 0.5) * window_s / most
        indices = np.searchsorted(times_s, middles_s, "right") - 1
        return [(float(at_s), float(values[index])) for at_s, index in zip(middles_s, indices, strict=True) if index >= 0]
    if line.is_counter:
        times_s, values = times_s[1:], np.diff(values) / np.maximum(np.diff(times_s), 1e-9)
    values, times_s = values[times_s >= 0], times_s[times_s >= 0]  # a series may begin with the last sample before the window
    step_s = max(window_s / most, 1e-9)
    combine = np.max if line.is_maximum else np.mean
    steps = (times_s // step_s).astype(int)
    return [(float(times_s[steps == step].mean()), float(combine(values[steps == step]))) for step in np.unique(steps)]


def _is_shown(line: SeriesLine, timeline: Timeline) -> bool:
    values = [value for listed in timeline.telemetry.values() for series in listed if series.name == line.series for value in series.values]
    if line.series in _SHOWN_UNLESS_ZERO:
        return any(values)
    return any(value != _TRIVIAL_VALUES.get(line.series) for value in values)


def _listed_rows(result: Result, timeline: Timeline) -> list[_Row]:
    """Rows for the first few of the metrics that the scenario names."""
    patterns = (result.scenario.get("metrics") or {}).get("names") or ()
    if not isinstance(patterns, Sequence):
        return []
    sampled = {series.name for listed in timeline.telemetry.values() for series in listed}
    names = [name for name in sorted(sampled) if any(fnmatch.fnmatchcase(name, str(pattern)) for pattern in patterns)]
    lines = [SeriesLine(name, "", is_counter=name.endswith(_COUNTERS)) for name in names[:_LISTED_ROWS]]
    return [_Row(_shortened(line.series, 40), "/s" if line.is_counter else "", (line,)) for line in lines]
