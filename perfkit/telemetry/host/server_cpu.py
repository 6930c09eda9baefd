"""The sampler of the CPU time that the server's processes use, read from another process, so that it costs neither side's requests anything."""

from collections.abc import Callable, Sequence

from perfkit.clock import Clock
from perfkit.figures.resources import ServerCpuUse
from perfkit.machine.instruction_counter import EventCounter, NotCountedError
from perfkit.machine.process_tree import ProcessTree, TreeCpuTime
from perfkit.override import override
from perfkit.telemetry.host.other_processes import TargetProcesses
from perfkit.telemetry.series import Sampler, SamplerReport, SeriesBuffer, Span
from perfkit.units import NS_PER_S, format_duration_ns

_INTERVAL_NS, _LONGEST_INTERVAL_NS = NS_PER_S // 50, NS_PER_S // 5
_READING_SHARE = 200  # the reading takes at most this part of a CPU
_FIND_EVERY_NS = NS_PER_S
_EXACT_WITHIN_NS, _ATTEMPTS = NS_PER_S // 1000, 3
_COARSEST_SHARE = 0.005


class ServerCpuSampler(Sampler[ServerCpuUse]):
    """A `Sampler` of a process and of all that it started, as long as `listeners`, those at the target's addresses, are among them.

    With `count` it also samples their instructions.
    """

    def __init__(
        self,
        tree: ProcessTree,
        listeners: TargetProcesses,
        clock: Clock,
        count: Callable[[Sequence[int]], EventCounter] | None = None,
    ) -> None:
        super().__init__()
        self._tree, self._listeners, self._clock, self._count = tree, listeners, clock, count
        self._counter: EventCounter | None = None
        self._find_ns = 0
        self._series = {name: SeriesBuffer(name, "ns") for name in ("cpu_ns", "ended_ns", "lost_ns", "step_ns", "instructions")}

    @override
    def start(self) -> bool:
        if self._tree.find() is None:
            self.notes.append("The server's CPU time is not measured: this system does not show its process (/proc of Linux).")
            return False
        if not self._listeners() & set(self._tree.pids) or self._listeners.may_be_hidden:
            self.notes.append(
                "The server's CPU time is not measured: the processes that listen at its address are not those that perfkit started, as with a "
                "command that starts a container."
            )
            return False
        if self._count is not None:
            try:
                self._counter = self._count(self._tree.pids)
            except NotCountedError as error:
                self.notes.append(f"The server's instructions are not counted: {error}.")
        self.sample()
        return True

    @override
    def sample(self) -> int | None:
        """The instant of a sample is known to a millisecond, unless the machine is too busy for that."""
        if (now_ns := self._clock.now_ns()) >= self._find_ns:
            self._tree.find()
            self._find_ns = now_ns + _FIND_EVERY_NS
        attempts = 0
        while True:
            began_ns, times = self._clock.now_ns(), self._tree.read()
            instructions = None if self._counter is None else self._counter.read()
            ended_ns, attempts = self._clock.now_ns(), attempts + 1
            if times is None:  # it has ended, of which the run hears elsewhere
                return None
            if ended_ns - began_ns <= _EXACT_WITHIN_NS or attempts == _ATTEMPTS:
                break
        self._add((began_ns + ended_ns) // 2, times, instructions)
        return ended_ns + min(max(_INTERVAL_NS, _READING_SHARE * (ended_ns - began_ns)), _LONGEST_INTERVAL_NS)

    @override
    def window(self, start_ns: int, end_ns: int) -> SamplerReport[ServerCpuUse]:
        """What lies between the ends and the first and last sample within is taken at the rate between those two.

        After the end the load is gone, so that a later sample would say nothing of it.
        """
        span_ns = self._sampled_span(start_ns, end_ns)
        use = None if span_ns is None else self._use(span_ns, end_ns - start_ns)
        for buffer in self._series.values():
            buffer.forget_before(start_ns)
        return SamplerReport(use)

    @override
    def close(self) -> None:
        if self._counter is not None:
            self._counter.close()

    def _add(self, time_ns: int, times: TreeCpuTime, instructions: int | None) -> None:
        for name in ("cpu_ns", "ended_ns", "lost_ns", "step_ns"):
            self._series[name].add(time_ns, getattr(times, name))
        if instructions is not None:
            self._series["instructions"].add(time_ns, instructions)

    def _sampled_span(self, start_ns: int, end_ns: int) -> Span | None:
        """The instants of the first and the last sample of a window; None if less than half of it lies between them."""
        times_ns = self._series["cpu_ns"].between(start_ns, end_ns).times_ns
        return (times_ns[0], times_ns[-1]) if times_ns and 2 * (times_ns[-1] - times_ns[0]) >= end_ns - start_ns > 0 else None

    def _use(self, span_ns: Span, length_ns: int) -> ServerCpuUse | None:
        sampled_ns = span_ns[1] - span_ns[0]
        growth = {name: self._growth(name, span_ns) for name in ("cpu_ns", "ended_ns", "lost_ns", "instructions")}
        cpu_ns, step_ns = growth["cpu_ns"] or 0.0, self._series["step_ns"].at(span_ns[1]) or 0.0
        if growth["lost_ns"]:
            self.notes.append(
                "The server's CPU time is unknown: a process of the server ended without its parent waiting for it, and took its times with it."
            )
            return None
        if growth["ended_ns"] and step_ns > _COARSEST_SHARE * cpu_ns:
            self.notes.append(
                f"The server's CPU time is unknown: processes of the server ended, whose times the kernel tells to {format_duration_ns(step_ns)} "
                f"only, more than {_COARSEST_SHARE:.1%} of the {format_duration_ns(cpu_ns)} used; measure longer (measure.duration)."
            )
            return None
        instructions = growth["instructions"]
        scale = length_ns / sampled_ns
        return ServerCpuUse(round(cpu_ns * scale), None if instructions is None else round(instructions * scale))

    def _growth(self, name: str, span_ns: Span) -> float | None:
        buffer = self._series[name]
        if buffer.span_ns is None or buffer.span_ns[0] > span_ns[0]:
            return None
        before, after = buffer.at(span_ns[0]), buffer.at(span_ns[1])
        return None if before is None or after is None else after - before
