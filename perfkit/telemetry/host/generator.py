"""The load generator from outside: the CPU time of its workers and of the machine, context switches, TCP, sockets, files.

Read from the system's own counters in another process, so that it costs the workers nothing.
"""

import dataclasses
from collections.abc import Callable, Mapping, Sequence

from perfkit.clock import Clock
from perfkit.errors import MeasurementWarning
from perfkit.machine.host import MachineCounters, ProcessCounters, open_file_limit, read_machine_counters, read_process_counters
from perfkit.telemetry.series import SamplerReport, Series, SeriesBuffer
from perfkit.units import NS_PER_S

_EVERY_NS = NS_PER_S // 2  # CPU times move in steps of 10 ms
_NEARLY_ALL = 0.9


@dataclasses.dataclass(frozen=True, slots=True)
class MachineFigures:
    """The generator's machine over a window; None where the system does not say, or the window was too short to tell."""

    cpu_share: float | None = None
    """Of all CPUs together."""
    steal_share: float | None = None
    worker_cpu_shares: tuple[float | None, ...] = ()
    """Of one core each, as the workers are numbered."""
    voluntary_switches: int | None = None
    """All workers' main threads together: how often they waited."""
    involuntary_switches: int | None = None
    """How often another process took their CPU."""
    tcp_segments_sent: int | None = None
    tcp_retransmits: int | None = None
    sockets_max: int | None = None
    """TCP sockets of the machine, those in TIME_WAIT among them."""
    open_files_max: int | None = None
    """Of the worker that holds most."""
    open_files_limit: int | None = None


class GeneratorSampler:
    """Follows the processes that `follow` names; see `Sampler`."""

    def __init__(
        self,
        clock: Clock,
        processes: Callable[[int], ProcessCounters | None] = read_process_counters,
        machine: Callable[[], MachineCounters] = read_machine_counters,
        file_limit: int | None = None,
    ) -> None:
        self.notes: list[str] = []
        self._clock, self._process, self._machine_now = clock, processes, machine
        self._file_limit = open_file_limit() if file_limit is None else file_limit
        self._pids: tuple[int, ...] = ()
        self._machine = {
            name: SeriesBuffer(name, "count" if name.startswith("tcp") else "s")
            for name in (field.name for field in dataclasses.fields(MachineCounters))
        }
        self._workers: list[dict[str, SeriesBuffer]] = []

    def follow(self, pids: Sequence[int]) -> None:
        """From now on these are the workers; those before are forgotten, windows of theirs have been asked for."""
        self._pids = tuple(pids)
        names = [field.name for field in dataclasses.fields(ProcessCounters)]
        self._workers = [
            {name: SeriesBuffer(name, "count", {"worker": str(number)}) for name in names} for number in range(1, len(pids) + 1)
        ]
        self.sample()

    def start(self) -> bool:
        """See `Sampler.start`."""
        self.sample()
        return True

    def sample(self) -> int:
        """See `Sampler.sample`."""
        now_ns = self._clock.now_ns()
        self._add(self._machine, now_ns, self._machine_now())
        for pid, tracks in zip(self._pids, self._workers, strict=True):
            reading = self._process(pid)
            if reading is not None:
                self._add(tracks, now_ns, reading)
        return now_ns + _EVERY_NS

    def window(self, start_ns: int, end_ns: int) -> SamplerReport[MachineFigures]:
        """See `Sampler.window`; counters are read between samples on a straight line."""
        self.sample()
        total_s = _risen(self._machine["total_s"], start_ns, end_ns)
        seconds = (end_ns - start_ns) / NS_PER_S
        shares = [_share(_risen(tracks["cpu_s"], start_ns, end_ns), seconds) for tracks in self._workers]
        figures = MachineFigures(
            cpu_share=_share(_risen(self._machine["cpu_s"], start_ns, end_ns), total_s),
            steal_share=_share(_risen(self._machine["steal_s"], start_ns, end_ns), total_s),
            worker_cpu_shares=tuple(shares),
            voluntary_switches=self._switches("voluntary_switches", start_ns, end_ns),
            involuntary_switches=self._switches("involuntary_switches", start_ns, end_ns),
            tcp_segments_sent=_whole(_risen(self._machine["tcp_segments_sent"], start_ns, end_ns)),
            tcp_retransmits=_whole(_risen(self._machine["tcp_retransmits"], start_ns, end_ns)),
            sockets_max=_most([self._machine["tcp_sockets"]], start_ns, end_ns),
            open_files_max=_most([tracks["open_files"] for tracks in self._workers], start_ns, end_ns),
            open_files_limit=self._file_limit,
        )
        observed = SamplerReport(figures, tuple(self._series(start_ns, end_ns)), tuple(self._warnings(figures)))
        for tracks in (self._machine, *self._workers):
            for track in tracks.values():
                track.forget_before(start_ns)
        return observed

    def latest(self) -> Sequence[Series]:
        """See `Sampler.latest`."""
        now_ns = self._clock.now_ns()
        return [one for series in self._series(now_ns - 3 * _EVERY_NS, now_ns) if (one := series.last())]

    def close(self) -> None:
        """See `Sampler.close`; nothing is held."""

    @staticmethod
    def _add(tracks: Mapping[str, SeriesBuffer], now_ns: int, reading: MachineCounters | ProcessCounters) -> None:
        for name, track in tracks.items():
            value = getattr(reading, name)
            if value is not None:
                track.add(now_ns, value)

    def _switches(self, name: str, start_ns: int, end_ns: int) -> int | None:
        known = [risen for tracks in self._workers if (risen := _risen(tracks[name], start_ns, end_ns)) is not None]
        return _whole(sum(known)) if known else None

    def _series(self, start_ns: int, end_ns: int) -> list[Series]:
        machine = {name: track.between(start_ns, end_ns) for name, track in self._machine.items()}
        found = [
            _quotient("machine_cpu_share", "share", machine["cpu_s"], machine["total_s"]),
            _quotient("machine_steal_share", "share", machine["steal_s"], machine["total_s"]),
            _rate("tcp_retransmits_per_s", machine["tcp_retransmits"]),
            _rate("tcp_segments_sent_per_s", machine["tcp_segments_sent"]),
            machine["tcp_sockets"],
        ]
        for tracks in self._workers:
            worker = {name: track.between(start_ns, end_ns) for name, track in tracks.items()}
            found += [
                dataclasses.replace(_rate("worker_cpu_share", worker["cpu_s"]), unit="share"),
                _rate("worker_voluntary_switches_per_s", worker["voluntary_switches"]),
                _rate("worker_involuntary_switches_per_s", worker["involuntary_switches"]),
                dataclasses.replace(worker["open_files"], name="worker_open_files"),
            ]
        return [series for series in found if series.values]

    @staticmethod
    def _warnings(figures: MachineFigures) -> list[MeasurementWarning]:
        most, limit = figures.open_files_max, figures.open_files_limit
        if most is None or limit is None or most < _NEARLY_ALL * limit:
            return []
        text = f"A worker held {most:,} open files and sockets of the {limit:,} it may have: raise the limit (ulimit -n), or take more workers."
        return [MeasurementWarning("file_limit", text)]


def _risen(track: SeriesBuffer, start_ns: int, end_ns: int) -> float | None:
    """By how much a counter rose, in proportion where up to half of the span was not seen; None where it was more.

    A worker's last sample may be half a second older than its end.
    """
    seen, length_ns = track.span_ns, end_ns - start_ns
    if seen is None or length_ns <= 0:
        return None
    first_ns, last_ns = max(seen[0], start_ns), min(seen[1], end_ns)
    before, after = track.at(first_ns), track.at(last_ns)
    if before is None or after is None or 2 * (last_ns - first_ns) < length_ns:
        return None
    return (after - before) * length_ns / (last_ns - first_ns)


def _share(part: float | None, whole: float | None) -> float | None:
    return part / whole if part is not None and whole else None


def _whole(value: float | None) -> int | None:
    return None if value is None else round(value)


def _most(tracks: Sequence[SeriesBuffer], start_ns: int, end_ns: int) -> int | None:
    values = [value for track in tracks for value in track.between(start_ns, end_ns).values]
    values = values or [track.latest for track in tracks if track.latest is not None]  # a window shorter than the samples are apart
    return int(max(values)) if values else None


def _rate(name: str, counter: Series) -> Series:
    """A counter's rise per second between its samples, at the later of the two."""
    times, values = counter.times_ns, counter.values
    rates = tuple((values[i] - values[i - 1]) * NS_PER_S / (times[i] - times[i - 1]) for i in range(1, len(times)))
    return Series(name, "per_s", counter.labels, times[1:], rates)


def _quotient(name: str, unit: str, part: Series, whole: Series) -> Series:
    """How much of one counter's rise is the other's, between samples; both were read together."""
    steps = [
        (part.times_ns[i], (part.values[i] - part.values[i - 1]) / (whole.values[i] - whole.values[i - 1]))
        for i in range(1, len(part.values))
        if whole.values[i] > whole.values[i - 1]
    ]
    return Series(name, unit, part.labels, tuple(time_ns for time_ns, _ in steps), tuple(value for _, value in steps))
