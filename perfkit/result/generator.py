"""How the load generator and its machine fared during a load point."""

from typing import Annotated

from perfkit.figures.declaration import Figure
from perfkit.figures.resources import OtherProcesses
from perfkit.result.distribution import Distribution
from perfkit.result.part import Part


class GcPauses(Part):
    """Pauses of the workers' event loops for Python's garbage collection."""

    count: int
    total_ns: int
    max_ns: int


class Stops(Part):
    """Spans of at least 4 ms in which a worker did not run: stopped by a signal, a quota, the host, or other processes."""

    count: int
    total_ns: int
    max_ns: int
    touched_requests: int
    """Requests that were in flight or due in a stop, or were delayed by its consequences."""


class ContextSwitches(Part):
    """Context switches of the workers' main threads: voluntary ones to wait, involuntary ones for other processes."""

    voluntary: int
    """Because the thread waited."""
    involuntary: int
    """Because another process took the CPU."""


class Tcp(Part):
    """TCP segments sent by all processes of the generator's machine, and retransmits."""

    segments_sent: int
    retransmits: int


class Generator(Part):
    """The load generator itself: its busy share of one core, and the share of the machine that others took."""

    workers: int = 1
    """The number of processes that sent the load; for pooled repetitions, the largest."""
    cpu_share: Annotated[float, Figure("generator CPU", "share", "generator", column="generator_cpu_share")]
    """The share of one core that the busiest worker used."""
    event_loop_lag_ns: Annotated[Distribution | None, Figure("event loop lag", "ns")] = None
    """How late timers of the workers' event loops fired."""
    pacing_delay_ns: Annotated[Distribution | None, Figure("pacing delay", "ns", recorded="pacing_delay")] = None
    """Open loops only: how late the generator came to send each request, without waiting for a connection."""
    steal_share: float
    """The share of the machine's CPU time that its host took."""
    throttled_share: float = 0.0
    """The share of the window in which a CPU quota stopped the generator."""
    stops: Stops | None = None
    """Spans in which workers did not run."""
    transport_ns: int | None = None
    """What transport and wake-up of both sides take of a service time, from this machine's calibration; None without one for such a load."""
    suspended_ns: int = 0
    """How long its machine was suspended, while the clock of all times stood still."""
    worker_cpu_shares: tuple[float | None, ...] = ()
    """Each worker's share of one core; for pooled repetitions, the mean."""
    machine_cpu_share: float | None = None
    """The utilisation of its machine, over all CPUs and processes."""
    gc_pauses: GcPauses | None = None
    context_switches: ContextSwitches | None = None
    tcp: Tcp | None = None
    sockets_max: int | None = None
    """TCP sockets of its machine, including those in TIME_WAIT."""
    open_files_max: int | None = None
    """Open files and sockets of the worker with the most."""
    open_files_limit: int | None = None
    others: OtherProcesses | None = None
    """What processes besides perfkit and the target used on its machine; None if the system lists no processes."""
