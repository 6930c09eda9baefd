"""The sampler of this machine's GPUs: reads each query as often as its value can change, and keeps new values.

PCIe throughput is read once a second in a thread of its own, because each of those calls blocks for about 20 ms.
"""

import collections
import os
import threading
from collections.abc import Callable, Collection, Mapping, Sequence

from perfkit.clock import Clock, wall_ns
from perfkit.figures.resources import GpuFigures
from perfkit.override import override
from perfkit.telemetry.gpu.nvml import Gpu, NoDriverError, NvmlDriver, open_driver
from perfkit.telemetry.gpu.queries import NvmlQuery, StampedValue
from perfkit.telemetry.gpu.window import GpuWindow, gpu_figures, gpu_warnings, used_by_server
from perfkit.telemetry.series import Sampler, SamplerReport, Series, SeriesBuffer, Span, newest, rate_integral
from perfkit.units import NS_PER_S

_PROCESSES_INTERVAL_NS = NS_PER_S
_PCIE_INTERVAL_S = 1.0
_CLOCK_READINGS = 3
_IDLE_UTILIZATION = 0.05


class GpuSampler(Sampler[tuple[GpuFigures, ...]]):
    """A `Sampler` whose summary is one `GpuFigures` per GPU and MIG instance.

    `start` measures the power without load for `idle_ns`. `server_pids` returns the target's processes, empty if unknown.
    Simulations replace `wall_ns` and `wait_s` along with the clock, and set `pcie_thread=False` to call `sample_pcie` themselves.
    """

    def __init__(
        self,
        rate_per_s: float,
        clock: Clock,
        *,
        idle_ns: int = 0,
        server_pids: Callable[[], Collection[int]] = tuple,
        wall_ns: Callable[[], int] = wall_ns,
        wait_s: Callable[[float], object] | None = None,
        pcie_thread: bool = True,
    ) -> None:
        super().__init__()
        self._interval_ns = round(NS_PER_S / rate_per_s)
        self._closed = threading.Event()
        self._clock, self._wall_ns, self._wait_s = clock, wall_ns, wait_s or self._closed.wait
        self._idle_ns, self._server_pids = idle_ns, server_pids
        self._driver: NvmlDriver | None = None
        self._gpus: list[_GpuSamples] = []
        self._pcie_thread = threading.Thread(target=self._run_pcie, name="perfkit-pcie", daemon=True) if pcie_thread else None

    @override
    def start(self) -> bool:
        """Opens the driver and measures idle power; False if there is no GPU to sample."""
        try:
            self._driver = open_driver(self._wall_ns)
        except NoDriverError as error:
            self.notes.append(str(error))
            return False
        self.notes += self._driver.notes
        self._gpus = [_GpuSamples(gpu) for gpu in self._driver.gpus]
        self.sample()
        self._server_pids()  # the first search takes longest, and there is no load yet
        if self._pcie_thread is not None:
            self._pcie_thread.start()
        if self._idle_ns:
            self._measure_idle()
        return True

    @override
    def sample(self) -> int | None:
        """Reads the queries that are due."""
        now_ns = self._sample(is_last=False)
        return now_ns + self._interval_ns if any(not samples.gpu.is_lost for samples in self._gpus) else None

    @override
    def window(self, start_ns: int, end_ns: int) -> SamplerReport[tuple[GpuFigures, ...]]:
        """The GPUs' figures over a span, and their series, each beginning with the sample in effect at its start."""
        self._sample(is_last=True)
        span, server_pids = (start_ns, end_ns), tuple(self._server_pids()) if self._gpus else ()
        used = used_by_server([samples.processes for samples in self._gpus], server_pids)
        windows = [samples.window(start_ns, is_used) for samples, is_used in zip(self._gpus, used, strict=True)]
        report = SamplerReport(
            tuple(gpu_figures(window, span, samples.idle_power_w) for window, samples in zip(windows, self._gpus, strict=True)),
            tuple(series.between(0, end_ns) for window in windows for series in window.series.values()),
            tuple(warning for window in windows for warning in gpu_warnings(window, span, server_pids)),
        )
        for samples in self._gpus:
            samples.forget_before(end_ns)
        return report

    @override
    def latest(self) -> Sequence[Series]:
        return newest(buffer for samples in self._gpus for buffer in samples.buffers.values())

    def sample_pcie(self) -> None:
        """Reads PCIe throughput, which blocks; the next `sample` stores the values."""
        for samples in self._gpus:
            for query in samples.gpu.slow_queries:
                values = samples.gpu.read(query)
                samples.slow_values.append((query, self._clock.now_ns(), values))

    @override
    def close(self) -> None:
        """Ends the PCIe thread and closes the driver."""
        self._closed.set()
        if self._pcie_thread is not None and self._pcie_thread.ident is not None:
            self._pcie_thread.join()
        if self._driver is not None:
            self._driver.close()
            self._driver = None

    def _run_pcie(self) -> None:
        while not self._closed.is_set():
            self.sample_pcie()
            self._closed.wait(_PCIE_INTERVAL_S)

    def _sample(self, *, is_last: bool) -> int:
        now_ns, wall_to_clock_ns = self._clock.now_ns(), self._wall_to_clock_ns()
        for samples in self._gpus:
            samples.sample(now_ns, wall_to_clock_ns, self._interval_ns, is_last=is_last)
            self.notes += samples.gpu.take_notes()
        return now_ns

    def _wall_to_clock_ns(self) -> int:
        """The offset from the driver's timestamps to the clock; measured each time, since the wall clock may be adjusted."""
        readings = []
        for _ in range(_CLOCK_READINGS):  # the fastest pair of readings is the most exact
            before_ns, wall_ns = self._clock.now_ns(), self._wall_ns()
            readings.append((self._clock.now_ns() - before_ns, before_ns - wall_ns))
        return min(readings)[1]

    def _measure_idle(self) -> None:
        start_ns = self._clock.now_ns()
        while (left_ns := start_ns + self._idle_ns - self._clock.now_ns()) > 0:
            self._wait_s(min(left_ns, self._interval_ns) / NS_PER_S)
            self.sample()
        self._sample(is_last=True)
        span = (start_ns, self._clock.now_ns())
        for samples in self._gpus:
            samples.take_idle(span)
            self.notes += samples.gpu.take_notes()


class _GpuSamples:
    """The samples of one GPU, and when each of its queries is due."""

    def __init__(self, gpu: Gpu) -> None:
        self.gpu = gpu
        self.idle_power_w: float | None = None
        labels = {"gpu": gpu.uuid, "index": str(gpu.index)}
        self.buffers = {query.name: SeriesBuffer(query.name, query.unit, labels) for query in (*gpu.fast_queries, *gpu.slow_queries)}
        self.slow_values: collections.deque[tuple[NvmlQuery, int, Sequence[StampedValue]]] = collections.deque()
        self.processes: dict[int, int | None] | None = None
        self._due_ns: dict[str, int] = {}
        self._lost_ns: int | None = None

    def sample(self, now_ns: int, wall_to_clock_ns: int, interval_ns: int, *, is_last: bool) -> None:
        """Reads the queries that are due; all of them at a window's end, when buffers are read to their end."""
        for query in self.gpu.fast_queries:
            method = query.method
            if method is None or (self._due_ns.get(query.name, now_ns) > now_ns + interval_ns // 2 and not is_last):
                continue
            self._add(query, now_ns, wall_to_clock_ns, self.gpu.read(query))
            self._due_ns[query.name] = now_ns + max(method.interval_ns, interval_ns)
        if self._due_ns.get("processes", now_ns) <= now_ns or is_last:
            self._due_ns["processes"] = now_ns + _PROCESSES_INTERVAL_NS
            self._add_processes(self.gpu.processes())
        while self.slow_values:
            query, read_ns, values = self.slow_values.popleft()
            self._add(query, read_ns, wall_to_clock_ns, values)
        if self.gpu.is_lost and self._lost_ns is None:
            self._lost_ns = now_ns

    def take_idle(self, span: Span) -> None:
        """Takes idle power from a span without load."""
        window = self.window(span[0], None)
        (energy_j, _), utilization = window.energy_j(span), window.mean("gpu_utilization", span)
        self.idle_power_w = None if energy_j is None else energy_j / rate_integral(1.0, span)
        if utilization is not None and utilization > _IDLE_UTILIZATION:
            self.gpu.notes.append(
                f"{self.gpu.title} was not idle before the run (utilisation {utilization:.0%}): the measured idle power is too high, "
                "and the energy above idle too low."
            )
        self.processes = None if self.processes is None else {}

    def window(self, start_ns: int, is_used: bool | None) -> GpuWindow:
        """The samples in effect from an instant on."""
        methods = {query.name: query.method for query in self.gpu.fast_queries}
        power = methods.get("gpu_power")
        return GpuWindow(
            gpu=self.gpu,
            series={name: buffer.whole().effective_from(start_ns) for name, buffer in self.buffers.items() if buffer.latest is not None},
            preceding_means=frozenset(name for name, method in methods.items() if method and method.is_preceding_mean),
            power_source=power.name if power else "",
            lost_ns=self._lost_ns,
            processes=self.processes,
            used_by_server=is_used,
        )

    def forget_before(self, instant_ns: int) -> None:
        """Drops the samples that no later window needs."""
        for buffer in self.buffers.values():
            buffer.forget_before(instant_ns)
        self.processes = None if self.processes is None else {}

    def _add_processes(self, processes: Mapping[int, int | None] | None) -> None:
        if processes is not None:
            # the run, whose child this process is, may share memory with the server there
            processes = {pid: size for pid, size in processes.items() if pid != os.getppid()}
            before = self.processes or {}
            self.processes = before | {pid: max(size or 0, before.get(pid) or 0) or None for pid, size in processes.items()}

    def _add(self, query: NvmlQuery, now_ns: int, wall_to_clock_ns: int, values: Sequence[StampedValue]) -> None:
        buffer, is_mean = self.buffers[query.name], query.method is not None and query.method.is_preceding_mean
        for stamp_us, value in values:
            if is_mean or value != buffer.latest:  # an unchanged value is not a new sample
                buffer.add(now_ns if stamp_us is None else stamp_us * 1000 + wall_to_clock_ns, value)
