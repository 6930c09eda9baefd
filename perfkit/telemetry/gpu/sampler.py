"""The sampler of this machine's GPUs: asks each question as often as its answer can change, and keeps what is new.

PCIe throughput is asked once a second in a thread of its own, since the driver holds each of those calls up for some 20 ms.
"""

import collections
import contextlib
import threading
from collections.abc import Callable, Collection, Mapping, Sequence

from perfkit.clock import Clock, wall_ns
from perfkit.telemetry.gpu.figures import GpuFigures
from perfkit.telemetry.gpu.nvml import Driver, Gpu, NoDriverError, open_driver
from perfkit.telemetry.gpu.queries import Question, Stamped
from perfkit.telemetry.gpu.window import Kept, gpu_figures, gpu_warnings, holding_from, uses
from perfkit.telemetry.series import SamplerReport, Series, SeriesBuffer
from perfkit.units import NS_PER_S

_PROCESSES_EVERY_NS = NS_PER_S
_PCIE_EVERY_S = 1.0
_TRIES = 3
_AT_REST = 0.05


def _wait_s(seconds: float) -> None:
    threading.Event().wait(seconds)


class GpuSampler:
    """See `perfkit.telemetry.series.Sampler`: its summary is one `GpuFigures` a GPU.

    `start` takes `rest_ns` to measure what the GPUs draw without load. `server_pids` gives the processes of the target, none
    where they are not known. `wall_ns` and `wait_s` are replaced in simulations, along with the clock; `pcie_thread=False`
    leaves PCIe throughput to whoever calls `sample_pcie`.
    """

    def __init__(
        self,
        rate_per_s: float,
        clock: Clock,
        *,
        rest_ns: int = 0,
        server_pids: Callable[[], Collection[int]] = tuple,
        wall_ns: Callable[[], int] = wall_ns,
        wait_s: Callable[[float], None] = _wait_s,
        pcie_thread: bool = True,
    ) -> None:
        self.notes: list[str] = []
        self._tick_ns = round(NS_PER_S / rate_per_s)
        self._clock, self._wall_ns, self._wait_s = clock, wall_ns, wait_s
        self._rest_ns, self._server_pids = rest_ns, server_pids
        self._driver: Driver | None = None
        self._watched: list[_Watched] = []
        self._pcie = _PcieThread(self) if pcie_thread else None

    def start(self) -> bool:
        """Opens the driver, and takes a rest; False where there is no GPU to sample."""
        try:
            self._driver = open_driver(self._wall_ns)
        except NoDriverError as error:
            self.notes.append(str(error))
            return False
        self.notes += self._driver.notes
        self._watched = [_Watched(gpu) for gpu in self._driver.gpus]
        self.sample()
        self._server_pids()  # looking for them takes longest the first time, and there is no load yet
        if self._pcie is not None:
            self._pcie.start()
        if self._rest_ns:
            self._rest()
        return True

    def sample(self) -> int | None:
        """Asks what is due."""
        now_ns = self._sample(is_last=False)
        return now_ns + self._tick_ns if any(not watched.gpu.is_lost for watched in self._watched) else None

    def window(self, start_ns: int, end_ns: int) -> SamplerReport[tuple[GpuFigures, ...]]:
        """The GPUs' figures over that span, and their series, each beginning with the sample that held at the start."""
        self._sample(is_last=True)
        span, server_pids = (start_ns, end_ns), tuple(self._server_pids())
        used = uses([watched.processes for watched in self._watched], server_pids)
        kept = [watched.kept(start_ns, is_used) for watched, is_used in zip(self._watched, used, strict=True)]
        observed = SamplerReport(
            tuple(gpu_figures(one, span, watched.idle_w) for one, watched in zip(kept, self._watched, strict=True)),
            tuple(series.between(0, end_ns) for one in kept for series in one.series.values()),
            tuple(warning for one in kept for warning in gpu_warnings(one, span, server_pids)),
        )
        for watched in self._watched:
            watched.forget_before(end_ns)
        return observed

    def latest(self) -> Sequence[Series]:
        """The newest sample of each series."""
        return [newest for watched in self._watched for track in watched.tracks.values() if (newest := track.whole().last()) is not None]

    def sample_pcie(self) -> None:
        """Asks for PCIe throughput, which blocks; `sample` takes the answers in."""
        for watched in self._watched:
            for question in watched.gpu.slow_questions:
                answer = watched.gpu.ask(question)
                watched.slow_answers.append((question, self._clock.now_ns(), answer))

    def close(self) -> None:
        """Ends the PCIe thread and lets go of the driver."""
        if self._pcie is not None:
            self._pcie.end()
        if self._driver is not None:
            self._driver.close()
            self._driver = None

    def _sample(self, *, is_last: bool) -> int:
        now_ns = self._clock.now_ns()
        wall_to_clock_ns = self._wall_to_clock_ns()
        for watched in self._watched:
            watched.sample(now_ns, wall_to_clock_ns, self._tick_ns, is_last=is_last)
            self.notes += watched.gpu.take_notes()
        return now_ns

    def _wall_to_clock_ns(self) -> int:
        """What is added to the driver's stamps; asked anew, since the wall clock may be put right."""
        tries = []
        for _ in range(_TRIES):  # the one between whose readings the least came
            before_ns, wall_ns = self._clock.now_ns(), self._wall_ns()
            tries.append((self._clock.now_ns() - before_ns, before_ns - wall_ns))
        return min(tries)[1]

    def _rest(self) -> None:
        start_ns = self._clock.now_ns()
        while (left_ns := start_ns + self._rest_ns - self._clock.now_ns()) > 0:
            self._wait_s(min(left_ns, self._tick_ns) / NS_PER_S)
            self.sample()
        self._sample(is_last=True)
        span = (start_ns, self._clock.now_ns())
        for watched in self._watched:
            watched.rest(span)
            self.notes += watched.gpu.take_notes()


class _Watched:
    """A GPU under watch: its series as they grow, and when each question is due."""

    def __init__(self, gpu: Gpu) -> None:
        self.gpu = gpu
        self.idle_w: float | None = None
        labels = {"gpu": gpu.uuid, "index": str(gpu.index)}
        self.tracks = {
            question.name: SeriesBuffer(question.name, question.unit, labels) for question in (*gpu.questions, *gpu.slow_questions)
        }
        self.slow_answers: collections.deque[tuple[Question, int, Sequence[Stamped]]] = collections.deque()
        self.processes: dict[int, int | None] | None = None
        self._due_ns: dict[str, int] = {}
        self._lost_ns: int | None = None

    def sample(self, now_ns: int, wall_to_clock_ns: int, tick_ns: int, *, is_last: bool) -> None:
        """Asks what is due, and everything at a window's end: buffers have its last part only then."""
        for question in self.gpu.questions:
            way = question.way
            if way is None or (self._due_ns.get(question.name, now_ns) > now_ns + tick_ns // 2 and not is_last):
                continue
            self._take(question, now_ns, wall_to_clock_ns, self.gpu.ask(question))
            self._due_ns[question.name] = now_ns + max(way.every_ns, tick_ns)
        if self._due_ns.get("processes", now_ns) <= now_ns or is_last:
            self._due_ns["processes"] = now_ns + _PROCESSES_EVERY_NS
            self._take_processes(self.gpu.processes())
        while self.slow_answers:
            question, asked_ns, answer = self.slow_answers.popleft()
            self._take(question, asked_ns, wall_to_clock_ns, answer)
        if self.gpu.is_lost and self._lost_ns is None:
            self._lost_ns = now_ns

    def rest(self, span: tuple[int, int]) -> None:
        """Takes the span for one without load."""
        kept = self.kept(span[0], None)
        energy, utilization = kept.energy(span), kept.mean("gpu_utilization", span)
        self.idle_w = None if energy is None else energy.joules * NS_PER_S / (span[1] - span[0])
        if utilization is not None and utilization > _AT_REST:
            self.gpu.notes.append(
                f"{self.gpu.title} was not at rest before the run, with a utilisation of {utilization:.0%}: "
                "its power without load is less than was measured, and its energy above that more."
            )
        self.processes = None if self.processes is None else {}

    def kept(self, start_ns: int, used: bool | None) -> Kept:
        """What there is from then on, with the samples that held at that instant."""
        ways = {question.name: question.way for question in self.gpu.questions}
        power = ways.get("gpu_power")
        return Kept(
            gpu=self.gpu,
            series={name: holding_from(track.whole(), start_ns) for name, track in self.tracks.items() if track.latest is not None},
            precedes=frozenset(name for name, way in ways.items() if way and way.precedes),
            power_source=power.name if power else "",
            lost_ns=self._lost_ns,
            processes=self.processes,
            used=used,
        )

    def forget_before(self, instant_ns: int) -> None:
        """Lets go of what no later window needs."""
        for track in self.tracks.values():
            track.forget_before(instant_ns)
        self.processes = None if self.processes is None else {}

    def _take_processes(self, found: Mapping[int, int | None] | None) -> None:
        if found is None:
            return
        self.processes = self.processes or {}
        for pid, size in found.items():
            self.processes[pid] = max(size or 0, self.processes.get(pid) or 0) or None

    def _take(self, question: Question, now_ns: int, wall_to_clock_ns: int, answer: Sequence[Stamped]) -> None:
        track, is_mean = self.tracks[question.name], question.way is not None and question.way.precedes
        for stamp_us, value in answer:
            if is_mean or value != track.latest:  # what is as it was is not new
                track.add(now_ns if stamp_us is None else stamp_us * 1000 + wall_to_clock_ns, value)


class _PcieThread:
    """Calls `sample_pcie` once a second until it is ended."""

    def __init__(self, sampler: GpuSampler) -> None:
        self._sampler, self._over = sampler, threading.Event()
        self._thread = threading.Thread(target=self._go, name="perfkit-pcie", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def end(self) -> None:
        self._over.set()
        with contextlib.suppress(RuntimeError):  # it was never started
            self._thread.join()

    def _go(self) -> None:
        while not self._over.is_set():
            self._sampler.sample_pcie()
            self._over.wait(_PCIE_EVERY_S)
