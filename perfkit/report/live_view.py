"""The live view of a run, which the sampler process draws on the terminal once a second."""

import collections
import io
import math
from collections.abc import Callable, Iterable, Iterator, Sequence

import numpy as np
from rich.cells import cell_len
from rich.console import Console
from rich.text import Text

from perfkit.clock import Clock
from perfkit.recorder.recent import LiveFigures
from perfkit.recorder.series import Instants
from perfkit.report.point_state import NOT_VALID, OK, point_state
from perfkit.report.screen import Screen
from perfkit.telemetry.messages import EndedPoint, LiveMessage, PointBegins, ScreenLines
from perfkit.telemetry.series import Series
from perfkit.text import bounded, one_line, safe_lines
from perfkit.units import NS_PER_S, format_bytes, format_duration_ns, format_rate_per_s

_BARS = "▁▂▃▄▅▆▇█"
_DRAW_EVERY_NS = 9 * NS_PER_S // 10
_MOST_SECONDS, _MOST_GPUS = 120, 4
_COUNTED = {"responses": "responses", "tokens": "output_tokens"}
"""What some loads count besides requests: its label, and the total in `LiveFigures`."""
_LABEL_WIDTH, _VALUE_WIDTH, _LONGEST_BAR = 12, 12, 24
_FEWEST_FOR_P99 = 100
_MISSING = "–"
_MARKS = {"good": ("✓", "green"), "open": ("!", "yellow"), "bad": ("✗", "red")}
_SHORTEST_TITLE = 20
_P50, _P99, _REPETITIONS, _STATE = 2, 3, 4, 5
"""Columns of the lines of ended load points."""


def sparkline(values: Sequence[float | None], width: int) -> str:
    """The newest `width` values as bars, scaled from zero to their maximum; a missing value is a space."""
    newest = values[-width:] if width > 0 else ()
    highest = max((value for value in newest if value is not None), default=0.0)
    top = len(_BARS) - 1
    if highest <= 0:
        return "".join(" " if value is None else _BARS[0] for value in newest)
    return "".join(" " if value is None else _BARS[min(max(math.ceil(top * value / highest), 0), top)] for value in newest)


def ended_lines(points: Sequence[EndedPoint], width: int) -> list[Text]:
    """A line for each load point that has ended, in columns: its state as a mark with a colour, its figures, and what its state is if not ok.

    Where the columns are wider than `width`, the number of repetitions is left out, then p50, then p99.
    """
    rows, styles = list[list[str]](), list[str]()
    for point in points:
        state = point_state(is_valid=point.is_valid, codes=point.codes)
        failed = f"{point.failed_share:.2%} failed" if point.failed_share else ""
        mark, style = _MARKS["bad" if state == NOT_VALID or failed else "good" if state == OK else "open"]
        figures = [format_rate_per_s(point.throughput_per_s), *map(_time, (point.p50_ns, point.p99_ns))]
        times = f"×{point.repetitions}" if point.repetitions > 1 else ""
        rows.append(
            [
                f"{mark} {one_line(point.title, max(width // 2, _SHORTEST_TITLE))}",
                *figures,
                times,
                ", ".join(filter(None, ("" if state == OK else state, failed))),
            ]
        )
        styles.append(style)
    labels = ["", "", "p50 ", "p99 ", "", ""]
    widths = [max(map(cell_len, cells), default=0) for cells in zip(*rows, strict=True)]
    kept = [index for index, cells in enumerate(zip(*rows, strict=True)) if set(cells) - {"", _MISSING}]
    for index in (_REPETITIONS, _P50, _P99):
        if sum(len(labels[one]) + widths[one] + 2 for one in kept) - 2 > width and index in kept:
            kept.remove(index)
    lines = []
    for row, style in zip(rows, styles, strict=True):
        parts = list[tuple[str, str]]()
        for index in kept:
            space = " " * (widths[index] - cell_len(row[index]))
            text = f"{row[index]}{space}" if index in (0, _STATE) else f"{space}{row[index]}"
            parts += [("  " * bool(parts), ""), (labels[index], "dim"), (text, style if index in (0, _STATE) else "")]
        lines.append(Text.assemble(*parts))
    return lines


class LiveView:
    """Draws the run's progress, and the current load point's figures over time; `latest` returns the newest samples."""

    def __init__(self, screen: Screen, clock: Clock, latest: Callable[[], Iterable[Series]], *, has_colour: bool) -> None:
        self._screen, self._clock, self._latest, self._has_colour = screen, clock, latest, has_colour
        self._run_began_ns = self._began_ns = clock.now_ns()
        self._point: PointBegins | None = None
        self._second_ended_ns = 0
        self._newest: Sequence[Series] = ()
        self._forget()

    def show(self, message: LiveMessage) -> None:
        """Handles a message of the run."""
        match message:
            case PointBegins():
                self.begin(message)
            case LiveFigures():
                self.add(message)
            case ScreenLines(texts, left_out):
                self.print_lines(texts, left_out)

    def begin(self, point: PointBegins) -> None:
        """Starts the view of a load point."""
        now_ns = self._clock.now_ns()
        if self._point is None:
            self._run_began_ns = now_ns
        self._point, self._began_ns = point, now_ns
        self._forget()
        self._refresh(now_ns)

    def add(self, figures: LiveFigures) -> None:
        """Adds one worker's figures, and draws once a second."""
        before = self._workers.get(figures.worker)
        elapsed_ns = NS_PER_S if before is None else max(figures.at_ns - before.at_ns, 1)
        replies, failed = (0, 0) if before is None else (before.replies, before.failed)
        for name, rates in self._counted_rates.items():
            key = _COUNTED[name]
            if (total := getattr(figures, key)) is not None:
                rates[figures.worker] = (total - (getattr(before, key, None) or 0)) * NS_PER_S / elapsed_ns
        answered = figures.replies - figures.failed - (replies - failed)
        self._workers[figures.worker] = figures
        self._rates[figures.worker] = answered * NS_PER_S / elapsed_ns
        self._failed += figures.failed - failed
        self._times.append(figures.times_ns)
        self._delays.append(figures.delays_ns)
        if figures.first_ns is not None:
            self._first.append(figures.first_ns)
        now_ns = self._clock.now_ns()
        if now_ns - self._second_ended_ns >= _DRAW_EVERY_NS:
            self._end_second()
            self._refresh(now_ns)

    def print_lines(self, texts: Sequence[str], left_out: int = 0) -> None:
        """Prints lines that stay above the view, after a remark on those left out."""
        remark = (f"(left out: {left_out:,} lines before these)",) if left_out else ()
        self._screen.print_above([safe_lines(bounded(text)) for text in (*remark, *texts)])
        self.draw()

    def _refresh(self, now_ns: int) -> None:
        """Draws the view with the samplers' newest samples, once a second: lines that are printed in between do not ask for them."""
        self._second_ended_ns = now_ns
        self._newest = [series for series in self._latest() if series.values]
        self.draw()

    def draw(self) -> None:
        """Redraws the view."""
        if self._point is None:
            return
        columns, rows = self._screen.size
        width = max(columns - 1, 1)  # a character in the last column would move the cursor on some terminals
        texts = list(self._lines(width))[: max(rows - 1, 1)]
        if room := rows - 1 - len(texts):
            texts = [*ended_lines(self._point.ended, width)[-room:], *texts]
        for text in texts:
            text.truncate(width)
        self._screen.draw([(self._styled(text), text.cell_len) for text in texts])

    def close(self) -> None:
        """Removes the view."""
        self._screen.close()

    def _forget(self) -> None:
        """Clears the figures of the previous load point."""
        self._workers: dict[int, LiveFigures] = {}
        self._rates: dict[int, float] = {}
        self._counted_rates: dict[str, dict[int, float]] = {name: {} for name in _COUNTED}
        self._failed = 0
        self._times: list[Instants] = []
        self._delays: list[Instants] = []
        self._first: list[Instants] = []
        names = ("throughput", *self._counted_rates, "first p50", "p50", "p99", "errors", "in flight", "start delay p99")
        self._series = {name: collections.deque[float | None](maxlen=_MOST_SECONDS) for name in names}

    def _end_second(self) -> None:
        times, delays = np.concatenate(self._times), np.concatenate(self._delays)
        figures: dict[str, float | None] = {
            "throughput": sum(self._rates.values()),
            **{name: sum(rates.values()) if rates else None for name, rates in self._counted_rates.items()},
            "first p50": _percentile(np.concatenate(self._first), 50, 1) if self._first else None,
            "p50": _percentile(times, 50, 1),
            "p99": _percentile(times, 99, _FEWEST_FOR_P99),
            "errors": self._failed,
            "in flight": sum(worker.in_flight for worker in self._workers.values()),
            "start delay p99": _percentile(delays, 99, 1),
        }
        for name, value in figures.items():
            self._series[name].append(value)
        self._times, self._delays, self._first, self._failed = [], [], [], 0

    def _lines(self, width: int) -> Iterator[Text]:
        point = self._point
        assert point is not None
        elapsed_s = (self._clock.now_ns() - self._began_ns) / NS_PER_S
        yield Text()
        yield Text.assemble((f"load point {point.number} of {point.total}  ", "bold"), (one_line(point.title), "bold cyan"))
        yield self._progress(point, elapsed_s, width)
        failed = sum(worker.failed for worker in self._workers.values())
        is_open = point.times_name == "response time"
        yield self._figure("throughput", format_rate_per_s, width)
        for name in (name for name, rates in self._counted_rates.items() if rates):
            yield self._figure(name, format_rate_per_s, width)
        if any(value is not None for value in self._series["first p50"]):
            yield self._figure("first p50", format_duration_ns, width)
        yield self._figure("p50", format_duration_ns, width)
        yield self._figure("p99", format_duration_ns, width)
        yield self._figure("errors", lambda _: f"{failed:,}", width, "red" if failed else "")
        yield self._figure("in flight", lambda value: f"{value:,.0f}", width)
        if is_open:
            yield self._figure("start delay p99", format_duration_ns, width)
        yield from self._samples(width)

    def _progress(self, point: PointBegins, elapsed_s: float, width: int) -> Text:
        if point.seconds is not None and elapsed_s > point.seconds + 1:
            this = "awaits outstanding answers"
        else:
            this = f"{elapsed_s:.0f} s" if point.seconds is None else f"{min(elapsed_s, point.seconds):.0f} of {point.seconds:.0f} s"
        if point.seconds_left is None:
            return Text.assemble(("this point  ", "dim"), this)
        left_s = max(point.seconds_left - elapsed_s, 0.0)
        run_s = (self._clock.now_ns() - self._run_began_ns) / NS_PER_S
        share = run_s / (run_s + left_s) if run_s + left_s else 0.0
        told = f" {share:.0%}, about {_rough(left_s)} left; "
        length = min(_LONGEST_BAR, width - len(told) - len(this) - _LABEL_WIDTH - len("this point "))
        if length < 0:  # a narrow terminal
            return Text.assemble(told.lstrip(), this)
        full = round(share * length)
        bar = ("━" * full, "green"), ("━" * (length - full), "dim")
        return Text.assemble(("whole run".ljust(_LABEL_WIDTH), "dim"), *bar, told, ("this point ", "dim"), this)

    def _figure(self, name: str, show: Callable[[float], str], width: int, style: str = "") -> Text:
        series = list(self._series[name])
        value = series[-1] if series else None
        label = name if len(name) < _LABEL_WIDTH else name.replace("start delay", "delay")
        shown = (_MISSING if value is None else show(value)).ljust(_VALUE_WIDTH)
        bars = sparkline(series, width - _LABEL_WIDTH - _VALUE_WIDTH)
        return Text.assemble((label.ljust(_LABEL_WIDTH), "dim"), (shown, f"bold {style}".strip()), (bars, style or "cyan"))

    def _samples(self, width: int) -> Iterator[Text]:
        """Lines about the server, the GPUs and the load generator, from their newest samples."""
        newest = self._newest
        server = {series.name.removeprefix("server_"): series.values[-1] for series in newest if series.name.startswith("server_")}
        parts = [
            f"{label} {format_duration_ns(server[key]) if server[key] else '0'}" for key, label in _SERVER_TIMES.items() if key in server
        ]
        parts += [f"batch {server['mean_batch']:.2f}"] if "mean_batch" in server else []
        if parts:
            yield _labelled("server", parts, width)
        gpus: dict[str, dict[str, float]] = {}
        for series in newest:
            if series.name.startswith("gpu_"):
                gpus.setdefault(series.labels.get("gpu", ""), {})[series.name.removeprefix("gpu_")] = series.values[-1]
        for number, figures in enumerate(list(gpus.values())[:_MOST_GPUS]):
            yield _labelled(f"GPU {number}", [show(figures[key]) for key, show in _GPU_FIGURES.items() if key in figures], width)
        workers = [series.values[-1] for series in newest if series.name == "worker_cpu_share"]
        machine = [series.values[-1] for series in newest if series.name == "machine_cpu_share"]
        parts = [f"busiest worker {max(workers):.0%} of a CPU"] if workers else []
        parts += [f"machine {machine[0]:.0%} busy"] if machine else []
        if parts:
            yield _labelled("generator", parts, width)

    def _styled(self, text: Text) -> str:
        written = io.StringIO()
        console = Console(file=written, force_terminal=True, color_system="standard" if self._has_colour else None, width=10_000)
        console.print(text, end="", soft_wrap=True, highlight=False)
        return written.getvalue()


_SERVER_TIMES = {"queue": "queue", "compute_infer": "infer", "compute_input": "input", "compute_output": "output"}
_GPU_FIGURES: dict[str, Callable[[float], str]] = {
    "utilization": lambda share: f"{share:.0%} busy",
    "memory_used": lambda size: format_bytes(round(size)),
    "power": lambda power_w: f"{power_w:.0f} W",
    "sm_clock": lambda mhz: f"{mhz:,.0f} MHz",
    "temperature": lambda celsius: f"{celsius:.0f} °C",
}


def _labelled(label: str, parts: Sequence[str], width: int) -> Text:
    """A labelled line with the first parts that fit; a figure is left out whole, never cut."""
    while len(parts) > 1 and _LABEL_WIDTH + len(", ".join(parts)) > width:
        parts = parts[:-1]
    return Text.assemble((label.ljust(_LABEL_WIDTH), "dim"), ", ".join(parts))


def _time(value_ns: float | None) -> str:
    return _MISSING if value_ns is None else format_duration_ns(value_ns)


def _percentile(values: Instants, percent: float, fewest: int) -> float | None:
    return float(np.percentile(values, percent, method="inverted_cdf")) if values.size >= fewest else None


def _rough(seconds: float) -> str:
    if seconds < 90:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 5400 else f"{seconds / 3600:.1f} h"
