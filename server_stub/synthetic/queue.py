"""The declared queue: arrivals one by one, and when each of them departs. Whole nanoseconds and no clock, so no error adds up.

A request departs at max(arrival, the earliest free server) + service time, first come first served.
"""

import dataclasses
import hashlib
import heapq

from perfkit.errors import ErrorKind
from server_stub.synthetic.law import Law, Stall


@dataclasses.dataclass(frozen=True, slots=True)
class Passage:
    """One request's way through the queue; `failure` is what it is answered with, None where it succeeds."""

    arrived_ns: int
    started_ns: int
    departed_ns: int
    failure: ErrorKind | None = None


class DeclaredQueue:
    """A queue before `law.servers` servers."""

    def __init__(self, law: Law) -> None:
        self._law = law
        self._free_ns: list[int] = []  # when each server is free: a heap
        self._first_ns: int | None = None
        self._latest_ns = 0
        self._number = 0

    def arrive(self, arrived_ns: int, batch_size: int = 1) -> Passage:
        """Lets the next request in; raises ValueError where it would arrive before the one that came last."""
        if self._first_ns is None:
            self._first_ns = arrived_ns
            self._free_ns = [arrived_ns] * self._law.servers
        elif arrived_ns < self._latest_ns:
            raise ValueError(f"a request arrives at {arrived_ns} ns, before the last one at {self._latest_ns} ns")
        self._latest_ns = arrived_ns
        started_ns, departed_ns = self._served(arrived_ns - self._first_ns, self._free_ns[0] - self._first_ns, batch_size)
        heapq.heapreplace(self._free_ns, self._first_ns + departed_ns)
        failures = self._law.failures
        is_failure = failures is not None and uniform_share(self._law.seed, self._number, b"failure") < failures.share
        self._number += 1
        failure = failures.kind if failures is not None and is_failure else None
        return Passage(arrived_ns, self._first_ns + started_ns, self._first_ns + departed_ns, failure)

    def _served(self, arrived_ns: int, free_ns: int, batch_size: int) -> tuple[int, int]:
        """When service starts and ends; all instants are those since the first arrival, at which periods begin."""
        law = self._law
        started_ns = max(arrived_ns, free_ns)
        if law.stall is not None:
            started_ns = _outside(law.stall, started_ns)
        drawn_ns = law.service.quantile_ns(uniform_share(law.seed, self._number, b"service"), batch_size)
        service_ns = round(drawn_ns * law.pace(started_ns))
        if law.stall is None:
            return started_ns, started_ns + service_ns
        if law.stall.drains_at_once:
            # the first stall to end after the arrival ends all waiting and all service that would reach into it
            end_ns = (arrived_ns // law.stall.period_ns + 1) * law.stall.period_ns
            if started_ns + service_ns >= end_ns - law.stall.duration_ns:
                return min(started_ns, end_ns), end_ns
            return started_ns, started_ns + service_ns
        return started_ns, _instant(law.stall, _active_ns(law.stall, started_ns) + service_ns)


def uniform_share(seed: int, number: int, purpose: bytes) -> float:
    """A share above 0 and below 1, uniform, that hangs on these three alone: the n-th request's is the same in every run."""
    digest = hashlib.blake2b(number.to_bytes(8, "little"), digest_size=8, key=seed.to_bytes(8, "little"), person=purpose).digest()
    # 52 bits, so that the half which keeps it off 0 and 1 is not rounded away
    return ((int.from_bytes(digest, "little") >> 12) + 0.5) / 2**52


def _active_ns(stall: Stall, instant_ns: int) -> int:
    """How much of the time until then lay outside stalls."""
    periods, within_ns = divmod(instant_ns, stall.period_ns)
    active_ns = stall.period_ns - stall.duration_ns
    return periods * active_ns + min(within_ns, active_ns)


def _instant(stall: Stall, active_ns: int) -> int:
    """When so much time outside stalls has passed; at the end of a stall rather than at its begin."""
    periods, within_ns = divmod(active_ns, stall.period_ns - stall.duration_ns)
    return periods * stall.period_ns + within_ns


def _outside(stall: Stall, instant_ns: int) -> int:
    """The instant itself, or the end of the stall that it lies in."""
    return _instant(stall, _active_ns(stall, instant_ns))
