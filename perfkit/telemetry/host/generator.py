"""The sampler of the load generator: CPU time of its workers and its machine, context switches, TCP, sockets, open files.

It reads the system's counters from another process, so that it costs the workers nothing.
"""

import dataclasses
import gc
from collections.abc import Callable, Iterable, Mapping, Sequence
from types import TracebackType
from typing import Any, Self

from perfkit.clock import Clock
from perfkit.errors import MeasurementWarning
from perfkit.figures.resources import EVENT_LOOP_LAG, GC_PAUSE, MachineFigures
from perfkit.machine.limits import raise_open_file_limit
from perfkit.machine.readings import MachineCounters, ProcessCounters, read_machine_counters, read_process_counters
from perfkit.override import override
from perfkit.telemetry.host.other_processes import OtherProcessesMeter
from perfkit.telemetry.series import Sampler, SamplerReport, Series, SeriesBuffer
from perfkit.units import NS_PER_S

_TICK_NS = NS_PER_S // 20
_MOST_SAMPLES = 12_000


class EventLoopMonitor:
    """Records garbage collections while its `with` block lasts, and late timers while `measure_lag` runs."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._lag, self._pauses = SeriesBuffer(EVENT_LOOP_LAG, "ns"), SeriesBuffer(GC_PAUSE, "ns")
        self._collection_start_ns = 0

    def __enter__(self) -> Self:
        gc.callbacks.append(self._on_collection)
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None) -> None:
        gc.callbacks.remove(self._on_collection)

    async def measure_lag(self, from_ns: int) -> None:
        """Records how late timers fire, from an instant on until it is cancelled; asyncio's timers have a precision of 1 ms."""
        due_ns, interval_ns = from_ns, _TICK_NS
        while True:
            await self._clock.sleep_until_ns(due_ns)
            now_ns = self._clock.now_ns()
            self._lag.add(now_ns, now_ns - due_ns)
            if self._lag.size >= _MOST_SAMPLES:
                self._lag.drop_every_second()
                interval_ns *= 2
            due_ns = now_ns + interval_ns

    def series(self, worker: int) -> tuple[Series, ...]:
        """The series with samples, labelled with the worker's number from 1; `worker` counts from 0."""
        labels = {"worker": str(worker + 1)}
        recorded = (buffer.whole() for buffer in (self._lag, self._pauses))
        return tuple(Series(series.name, series.unit, labels, series.times_ns, series.values) for series in recorded if series.values)

    def _on_collection(self, phase: str, _: dict[str, Any]) -> None:
        now_ns = self._clock.now_ns()
        if phase == "start":
            self._collection_start_ns = now_ns
        else:
            self._pauses.add(now_ns, now_ns - self._collection_start_ns)


_INTERVAL_NS = NS_PER_S // 2  # CPU times have steps of 10 ms
_NEAR_LIMIT_SHARE = 0.9


class GeneratorSampler(Sampler[MachineFigures]):
    """A `Sampler` of the machine, and of the worker processes named by `follow`."""

    def __init__(
        self,
        clock: Clock,
        read_process: Callable[[int], ProcessCounters | None] = read_process_counters,
        read_machine: Callable[[], MachineCounters] = read_machine_counters,
        file_limit: int | None = None,
        others: OtherProcessesMeter | None = None,
    ) -> None:
        super().__init__()
        self._clock, self._read_process, self._read_machine = clock, read_process, read_machine
        self._file_limit = raise_open_file_limit() if file_limit is None else file_limit
        self._others = OtherProcessesMeter() if others is None else others
        self._pids: tuple[int, ...] = ()
        names = [field.name for field in dataclasses.fields(MachineCounters)]
        self._machine = {name: SeriesBuffer(name, "count" if name.startswith("tcp") else "s") for name in names}
        self._workers: list[dict[str, SeriesBuffer]] = []

    def follow(self, pids: Sequence[int]) -> None:
        """Samples these worker processes from now on, instead of those before, whose windows have been reported."""
        self._pids = tuple(pids)
        names = [field.name for field in dataclasses.fields(ProcessCounters)]
        self._workers = [
            {name: SeriesBuffer(name, "count", {"worker": str(number)}) for name in names} for number in range(1, len(pids) + 1)
        ]
        self.sample()
        self._others.begin(self._clock.now_ns(), self._machine["cpu_s"].latest or 0.0)

    @override
    def start(self) -> bool:
        self._others.find_target()
        return super().start()

    @override
    def sample(self) -> int:
        now_ns = self._clock.now_ns()
        self._add(self._machine, now_ns, self._read_machine())
        for pid, buffers in zip(self._pids, self._workers, strict=True):
            if (counters := self._read_process(pid)) is not None:
                self._add(buffers, now_ns, counters)
        return now_ns + _INTERVAL_NS

    @override
    def window(self, start_ns: int, end_ns: int) -> SamplerReport[MachineFigures]:
        """Counters are linear between samples."""
        self.sample()
        machine, *workers = (
            {name: _increase(buffer, start_ns, end_ns) for name, buffer in buffers.items()} for buffers in (self._machine, *self._workers)
        )
        figures = MachineFigures(
            cpu_share=_share(machine["cpu_s"], machine["total_s"]),
            steal_share=_share(machine["steal_s"], machine["total_s"]),
            worker_cpu_shares=tuple(_share(worker["cpu_s"], (end_ns - start_ns) / NS_PER_S) for worker in workers),
            voluntary_switches=_rounded_sum(worker["voluntary_switches"] for worker in workers),
            involuntary_switches=_rounded_sum(worker["involuntary_switches"] for worker in workers),
            tcp_segments_sent=_rounded_sum([machine["tcp_segments_sent"]]),
            tcp_retransmits=_rounded_sum([machine["tcp_retransmits"]]),
            sockets_max=_maximum([self._machine["tcp_sockets"]], start_ns, end_ns),
            open_files_max=_maximum([buffers["open_files"] for buffers in self._workers], start_ns, end_ns),
            open_files_limit=self._file_limit,
            others=self._others.end(self._clock.now_ns(), self._machine["cpu_s"].latest or 0.0),
        )
        report = SamplerReport(figures, tuple(self._series(start_ns, end_ns)), tuple(self._warnings(figures)))
        for buffers in (self._machine, *self._workers):
            for buffer in buffers.values():
                buffer.forget_before(start_ns)
        return report

    @override
    def latest(self) -> Sequence[Series]:
        now_ns = self._clock.now_ns()
        return [series.effective_from(series.times_ns[-1]) for series in self._series(now_ns - 3 * _INTERVAL_NS, now_ns)]

    @staticmethod
    def _add(buffers: Mapping[str, SeriesBuffer], now_ns: int, counters: MachineCounters | ProcessCounters) -> None:
        for name, buffer in buffers.items():
            if (value := getattr(counters, name)) is not None:
                buffer.add(now_ns, value)

    def _series(self, start_ns: int, end_ns: int) -> list[Series]:
        """Rates and shares between the samples of a span, without empty series."""
        machine = {name: buffer.between(start_ns, end_ns) for name, buffer in self._machine.items()}
        all_series = [
            _ratio("machine_cpu_share", machine["cpu_s"], machine["total_s"]),
            _ratio("machine_steal_share", machine["steal_s"], machine["total_s"]),
            _rate("tcp_retransmits_per_s", machine["tcp_retransmits"]),
            _rate("tcp_segments_sent_per_s", machine["tcp_segments_sent"]),
            machine["tcp_sockets"],
        ]
        for buffers in self._workers:
            worker = {name: buffer.between(start_ns, end_ns) for name, buffer in buffers.items()}
            all_series += [
                dataclasses.replace(_rate("worker_cpu_share", worker["cpu_s"]), unit="share"),
                _rate("worker_voluntary_switches_per_s", worker["voluntary_switches"]),
                _rate("worker_involuntary_switches_per_s", worker["involuntary_switches"]),
                dataclasses.replace(worker["open_files"], name="worker_open_files"),
            ]
        return [series for series in all_series if series.values]

    @staticmethod
    def _warnings(figures: MachineFigures) -> list[MeasurementWarning]:
        open_files, limit = figures.open_files_max, figures.open_files_limit
        if open_files is None or limit is None or open_files < _NEAR_LIMIT_SHARE * limit:
            return []
        message = (
            f"A worker held {open_files:,} open files and sockets, close to its limit of {limit:,}: raise the limit (ulimit -n), or "
            "increase measure.workers."
        )
        return [MeasurementWarning("file_limit", message)]


def _increase(counter: SeriesBuffer, start_ns: int, end_ns: int) -> float | None:
    """How much a counter grew over a span, extrapolated if at least half the span was sampled; None otherwise.

    A worker's last sample may be half a second older than its end.
    """
    span_ns, length_ns = counter.span_ns, end_ns - start_ns
    if span_ns is None or length_ns <= 0:
        return None
    first_ns, last_ns = max(span_ns[0], start_ns), min(span_ns[1], end_ns)
    before, after = counter.at(first_ns), counter.at(last_ns)
    if before is None or after is None or 2 * (last_ns - first_ns) < length_ns:
        return None
    return (after - before) * length_ns / (last_ns - first_ns)


def _share(part: float | None, whole: float | None) -> float | None:
    return part / whole if part is not None and whole else None


def _rounded_sum(increases: Iterable[float | None]) -> int | None:
    """The sum of the known increases; None without any."""
    known = [increase for increase in increases if increase is not None]
    return round(sum(known)) if known else None


def _maximum(buffers: Sequence[SeriesBuffer], start_ns: int, end_ns: int) -> int | None:
    values = [value for buffer in buffers for value in buffer.between(start_ns, end_ns).values]
    # a window may be shorter than the interval between samples
    values = values or [buffer.latest for buffer in buffers if buffer.latest is not None]
    return int(max(values)) if values else None


def _rate(name: str, counter: Series) -> Series:
    """A counter's increase per second between samples, at the later sample."""
    times, values = counter.times_ns, counter.values
    rates = tuple((values[i] - values[i - 1]) * NS_PER_S / (times[i] - times[i - 1]) for i in range(1, len(times)))
    return Series(name, "per_s", counter.labels, times[1:], rates)


def _ratio(name: str, part: Series, whole: Series) -> Series:
    """One counter's increase as a share of another's, between samples, which both counters have in common."""
    steps = [
        (part.times_ns[i], (part.values[i] - part.values[i - 1]) / (whole.values[i] - whole.values[i - 1]))
        for i in range(1, len(part.values))
        if whole.values[i] > whole.values[i - 1]
    ]
    return Series(name, "share", part.labels, tuple(time_ns for time_ns, _ in steps), tuple(value for _, value in steps))
