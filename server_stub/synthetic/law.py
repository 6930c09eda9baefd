"""What the model `synthetic` declares: how long service takes, what holds it up, and what fails."""

import dataclasses
import functools
import math
import statistics
from typing import Protocol

from perfkit.errors import ErrorKind

NS_PER_S = 1_000_000_000


class ServiceTime(Protocol):
    """A distribution of service times, in nanoseconds."""

    def quantile_ns(self, share: float, batch_size: int) -> float:
        """The time that this share of requests, above 0 and below 1, does not exceed; at a uniform share it is a draw."""
        ...

    def mean_ns(self, batch_size: int) -> float:
        """The mean over all draws."""
        ...


@dataclasses.dataclass(frozen=True, slots=True)
class Linear:
    """The same for every request of a batch size; with `row_ns` 0 the same for all."""

    fixed_ns: int
    row_ns: int = 0

    def quantile_ns(self, share: float, batch_size: int) -> float:
        """See `ServiceTime`."""
        return self.fixed_ns + self.row_ns * batch_size

    def mean_ns(self, batch_size: int) -> float:
        """See `ServiceTime`."""
        return self.fixed_ns + self.row_ns * batch_size


@dataclasses.dataclass(frozen=True, slots=True)
class Exponential:
    """Without memory, whatever the batch size."""

    average_ns: int

    def quantile_ns(self, share: float, batch_size: int) -> float:
        """See `ServiceTime`."""
        return -math.log1p(-share) * self.average_ns

    def mean_ns(self, batch_size: int) -> float:
        """See `ServiceTime`."""
        return self.average_ns


@dataclasses.dataclass(frozen=True)
class Lognormal:
    """Whose logarithm is normal with the standard deviation `sigma`, whatever the batch size."""

    average_ns: int
    sigma: float

    @functools.cached_property
    def _logarithm(self) -> statistics.NormalDist:
        return statistics.NormalDist(math.log(self.average_ns) - self.sigma**2 / 2, self.sigma)

    def quantile_ns(self, share: float, batch_size: int) -> float:
        """See `ServiceTime`."""
        return math.exp(self._logarithm.inv_cdf(share))

    def mean_ns(self, batch_size: int) -> float:
        """See `ServiceTime`."""
        return self.average_ns


@dataclasses.dataclass(frozen=True, slots=True)
class Stall:
    """The last `duration_ns` of every `period_ns`, in which nothing departs.

    Where it `drains_at_once`, all who are there depart at its end, however long their service would have been.
    Otherwise it is a pause: what was being served goes on behind it, and the others after that.
    """

    duration_ns: int
    period_ns: int
    drains_at_once: bool = True


@dataclasses.dataclass(frozen=True, slots=True)
class Failures:
    """The share of requests that are served as long as others and then answered with an error."""

    share: float
    kind: ErrorKind


@dataclasses.dataclass(frozen=True, slots=True)
class SlowStart:
    """Service takes `factor` times as long at first; the excess falls to 1/e in every `decay_ns`."""

    factor: float
    decay_ns: int


@dataclasses.dataclass(frozen=True, slots=True)
class Batch:
    """Requests that a server takes at a time, counted in rows: all who are there up to `size`, or not before so many are there."""

    size: int
    is_awaited: bool = False


@dataclasses.dataclass(frozen=True, slots=True)
class Law:
    """All that is declared; periods, slow start and drift begin with the first request."""

    service: ServiceTime = Linear(5_000_000)
    servers: int = 1
    batch: Batch | None = None
    """None serves requests one by one, however many rows they have."""
    stall: Stall | None = None
    failures: Failures | None = None
    slow_start: SlowStart | None = None
    drift_per_s: float = 0.0
    """The share of the declared service time that is added every second."""
    seed: int = 0
    lead_ns: int = 200_000
    """How long before its departure an answer is let go, for the way through front and kernel that its client waits as well."""

    def pace(self, age_ns: int) -> float:
        """How many times longer than declared service takes that begins this long after the first request."""
        pace = 1.0
        if self.slow_start is not None:
            pace += (self.slow_start.factor - 1) * math.exp(-age_ns / self.slow_start.decay_ns)
        if self.drift_per_s:
            pace *= max(0.0, 1 + self.drift_per_s * age_ns / NS_PER_S)
        return pace
