"""The facts that measurements stand on, read from the system and watched for a moment."""

import asyncio
import contextlib
import dataclasses
import pathlib
import resource

from perfkit.clock import Clock
from perfkit.machine.host import BusyMeter, cpu_cgroups, usable_cpus
from perfkit.units import NS_PER_S

_SLEEP_NS = NS_PER_S // 1000


@dataclasses.dataclass(frozen=True, slots=True)
class MachineFacts:
    """What is so; None where the system does not say."""

    cpus: int
    """Logical CPUs that this process may use."""
    cores: int
    """Physical cores behind them."""
    quota_cpus: float | None
    """A control group's limit, in CPUs."""
    governors: frozenset[str]
    can_boost: bool | None
    clock_source: str | None
    memory_available_bytes: int | None
    swap_used_bytes: int
    open_files: int
    """How many files and sockets this process may have open."""
    ephemeral_ports: int | None
    time_wait_sockets: int | None


@dataclasses.dataclass(frozen=True, slots=True)
class IdleObservation:
    """What went on in a moment in which perfkit did nothing but sleep; shares of the whole machine."""

    busy_share: float
    steal_share: float
    throttled_share: float
    late_p50_ns: int
    """How much later than asked for a sleep of 1 ms ended."""
    late_p99_ns: int


def read_machine_facts(root: pathlib.Path = pathlib.Path("/")) -> MachineFacts:
    """The facts, from the files below `root` and from the limits of this process."""
    cpus = usable_cpus()
    devices = root / "sys/devices/system/cpu"
    siblings = {_text(devices / f"cpu{cpu}/topology/thread_siblings_list") or str(cpu) for cpu in cpus}
    governors = {_text(devices / f"cpu{cpu}/cpufreq/scaling_governor") for cpu in cpus}
    hard_limit = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    ports = (_text(root / "proc/sys/net/ipv4/ip_local_port_range") or "").split()
    memory = _memory_bytes(root)
    return MachineFacts(
        cpus=len(cpus),
        cores=len(siblings),
        quota_cpus=_quota_cpus(root),
        governors=frozenset(one for one in governors if one),
        can_boost=_can_boost(devices),
        clock_source=_text(root / "sys/devices/system/clocksource/clocksource0/current_clocksource"),
        memory_available_bytes=memory.get("MemAvailable"),
        swap_used_bytes=memory.get("SwapTotal", 0) - memory.get("SwapFree", 0),
        open_files=1 << 20 if hard_limit == resource.RLIM_INFINITY else hard_limit,
        ephemeral_ports=int(ports[1]) - int(ports[0]) + 1 if len(ports) == 2 else None,
        time_wait_sockets=_time_wait_sockets(root),
    )


async def observe_idle(clock: Clock, seconds: float, root: pathlib.Path = pathlib.Path("/")) -> IdleObservation:
    """Sleeps in steps of 1 ms for so long, and says how that went and what else the machine did."""
    meter = BusyMeter(clock)
    idle, total = _idle_and_total(root)
    late_ns: list[int] = []
    end_ns = clock.now_ns() + round(seconds * NS_PER_S)
    while (now_ns := clock.now_ns()) < end_ns or not late_ns:
        await asyncio.sleep(_SLEEP_NS / NS_PER_S)
        late_ns.append(max(clock.now_ns() - now_ns - _SLEEP_NS, 0))
    late_ns.sort()
    shares = meter.read()
    idle_now, total_now = _idle_and_total(root)
    return IdleObservation(
        busy_share=1 - (idle_now - idle) / (total_now - total) if total_now > total else 0.0,
        steal_share=shares.steal,
        throttled_share=shares.throttled,
        late_p50_ns=late_ns[len(late_ns) // 2],
        late_p99_ns=late_ns[len(late_ns) * 99 // 100],
    )


def _text(path: pathlib.Path) -> str | None:
    with contextlib.suppress(OSError, UnicodeDecodeError):
        return path.read_text(encoding="utf-8").strip()
    return None


def _memory_bytes(root: pathlib.Path) -> dict[str, int]:
    found = {}
    for line in (_text(root / "proc/meminfo") or "").splitlines():
        name, _, amount = line.partition(":")
        if amount.endswith(" kB"):
            found[name] = int(amount.removesuffix(" kB")) * 1024
    return found


def _idle_and_total(root: pathlib.Path) -> tuple[int, int]:
    """Ticks since the start, all CPUs added: those idle or waiting for a disk, and all; guests stand in other columns as well."""
    first = (_text(root / "proc/stat") or "").partition("\n")[0].split()
    ticks = [int(word) for word in first[1:9]]
    return sum(ticks[3:5]), sum(ticks)


def _quota_cpus(root: pathlib.Path) -> float | None:
    """The narrowest limit of the groups that this process is in, of either version of control groups."""
    limits = []
    for folder in cpu_cgroups(root):
        quota, period = (_text(folder / "cpu.max") or "").split() or (None, None)
        if quota is None:
            quota, period = _text(folder / "cpu.cfs_quota_us"), _text(folder / "cpu.cfs_period_us")
        with contextlib.suppress(TypeError, ValueError, ZeroDivisionError):
            cpus = int(quota or "") / int(period or "")
            limits += [cpus] if cpus > 0 else []  # -1 is none
    return min(limits, default=None)


def _can_boost(devices: pathlib.Path) -> bool | None:
    if (boost := _text(devices / "cpufreq/boost")) is not None:
        return boost == "1"
    no_turbo = _text(devices / "intel_pstate/no_turbo")
    return None if no_turbo is None else no_turbo == "0"


def _time_wait_sockets(root: pathlib.Path) -> int | None:
    """Ended connections that still hold their port."""
    words = (_text(root / "proc/net/sockstat") or "").split()
    with contextlib.suppress(ValueError, IndexError):
        return int(words[words.index("tw") + 1])
    return None
