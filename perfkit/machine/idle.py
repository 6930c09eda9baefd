"""How the machine behaves while perfkit only sleeps."""

import asyncio
import dataclasses
from collections.abc import Callable

from perfkit.clock import Clock
from perfkit.machine.readings import BusyMeter, CpuTimes, read_cpu_times
from perfkit.units import NS_PER_S

_SLEEP_NS = NS_PER_S // 1000


@dataclasses.dataclass(frozen=True, slots=True)
class IdleObservation:
    """How the machine behaved while perfkit only slept; shares of the whole machine."""

    busy_share: float
    steal_share: float
    throttled_share: float
    late_p50_ns: int
    """How much later than requested sleeps of 1 ms ended."""
    late_p99_ns: int


async def observe_idle(clock: Clock, seconds: float, read_times: Callable[[], CpuTimes] = read_cpu_times) -> IdleObservation:
    """Sleeps in steps of 1 ms for some seconds, and reports how late the sleeps ended and what else the machine did."""
    meter, before = BusyMeter(clock), read_times()
    late_ns: list[int] = []
    end_ns = clock.now_ns() + round(seconds * NS_PER_S)
    while (now_ns := clock.now_ns()) < end_ns or not late_ns:
        await asyncio.sleep(_SLEEP_NS / NS_PER_S)
        late_ns.append(max(clock.now_ns() - now_ns - _SLEEP_NS, 0))
    late_ns.sort()
    shares, after = meter.read(), read_times()
    idle_s, total_s = after.idle_s - before.idle_s, after.total_s - before.total_s
    return IdleObservation(
        busy_share=1 - idle_s / total_s if total_s > 0 else 0.0,
        steal_share=shares.steal,
        throttled_share=shares.throttled,
        late_p50_ns=late_ns[len(late_ns) // 2],
        late_p99_ns=late_ns[len(late_ns) * 99 // 100],
    )
