"""The load of a load point as the result names it: its kind, its level and its title."""

import math
from typing import Annotated, ClassVar, Literal

from pydantic import Field

from perfkit.result.part import Part
from perfkit.units import NS_PER_S, write_duration_ns


class ClosedLoad(Part):
    """The load of a closed loop: a fixed number of requests in flight."""

    quantity: ClassVar[str] = "concurrency"
    """What the level is, in words."""
    kind: Literal["closed"] = "closed"
    concurrency: int

    @property
    def level(self) -> float:
        """The number that distinguishes load points, for axes and sorting."""
        return self.concurrency

    @property
    def amount(self) -> str:
        """The level as text."""
        return f"{self.concurrency:,}"

    @property
    def title(self) -> str:
        """The load in a few words."""
        return f"concurrency {self.amount}"


class RampLoad(Part):
    """The load of a scan: a closed loop whose requests in flight rise steadily over the window."""

    quantity: ClassVar[str] = "scan of concurrency"
    kind: Literal["ramp"] = "ramp"
    start: int
    """The requests in flight at first."""
    concurrency: int
    """The requests in flight in the end."""
    over_s: float

    @property
    def level(self) -> float:
        """See `ClosedLoad.level`."""
        return self.concurrency

    @property
    def amount(self) -> str:
        """See `ClosedLoad.amount`."""
        return f"{self.start:,} to {self.concurrency:,}"

    @property
    def title(self) -> str:
        """See `ClosedLoad.title`."""
        return f"scan of concurrency {self.amount}"

    def concurrency_at(self, instant_s: float) -> int:
        """The requests in flight so many seconds after the window's start."""
        return min(self.start + math.floor((self.concurrency - self.start + 1) * instant_s / self.over_s), self.concurrency)


class SurgeLoad(Part):
    """An overload within an open loop; instants count from the window's start."""

    rate_per_s: float
    start_s: float
    end_s: float


class OpenLoad(Part):
    """The load of an open loop: arrivals at a rate, independent of earlier requests."""

    quantity: ClassVar[str] = "rate"
    kind: Literal["open"] = "open"
    rate_per_s: float
    arrivals: str
    burstiness: float | None = None
    """The standard deviation of the gaps between gamma arrivals, divided by their mean; None for other arrivals."""
    max_in_flight: int | None = None
    """The number of requests in flight above which arrivals are dropped and counted."""
    speed: float | None = None
    """How many times as fast as recorded the trace of a replay was sent; None for other arrivals."""
    surge: SurgeLoad | None = None
    """The overload within the window; None for other loads."""

    @property
    def gap_variation(self) -> float:
        """Standard deviation of the gaps divided by their mean, at most: that of a Poisson process unless the law has a burstiness."""
        return self.burstiness or 1.0

    @property
    def level(self) -> float:
        """See `ClosedLoad.level`."""
        return self.rate_per_s

    @property
    def amount(self) -> str:
        """See `ClosedLoad.amount`."""
        return f"{self.rate_per_s:,.6g}/s"

    @property
    def title(self) -> str:
        """See `ClosedLoad.title`."""
        surge = self.surge and f", surge of {self.surge.rate_per_s:,.6g}/s for {self.surge.end_s - self.surge.start_s:g} s"
        return f"{self.amount} {self.arrivals}{'' if self.speed in (None, 1) else f' at speed {self.speed:g}'}{surge or ''}"


class IdleLoad(Part):
    """The load of one request in flight with idle gaps: after each gap one request, then `then` more."""

    quantity: ClassVar[str] = "idle gap"
    kind: Literal["idle"] = "idle"
    gap_s: float
    then: int

    @property
    def level(self) -> float:
        """See `ClosedLoad.level`."""
        return self.gap_s

    @property
    def amount(self) -> str:
        """See `ClosedLoad.amount`."""
        return write_duration_ns(round(self.gap_s * NS_PER_S))

    @property
    def title(self) -> str:
        """See `ClosedLoad.title`."""
        return f"idle gap {self.amount}"


class ColdStartLoad(Part):
    """Starts of the model or the server, each followed by requests one after the other."""

    quantity: ClassVar[str] = "start by"
    kind: Literal["cold_start"] = "cold_start"
    by: Literal["reload", "restart"]
    requests: int

    @property
    def level(self) -> float:
        """See `ClosedLoad.level`."""
        return self.requests

    @property
    def amount(self) -> str:
        """See `ClosedLoad.amount`."""
        return self.by

    @property
    def title(self) -> str:
        """See `ClosedLoad.title`."""
        return f"cold start by {self.by}"


class MixedLoad(Part):
    """The load of a whole mix of which some workloads have closed and others open loops: the sums of each."""

    quantity: ClassVar[str] = "load"
    kind: Literal["mixed"] = "mixed"
    concurrency: int
    """The requests in flight of the closed loops."""
    rate_per_s: float
    """The arrivals per second of the open loops."""

    @property
    def level(self) -> float:
        """See `ClosedLoad.level`."""
        return self.concurrency + self.rate_per_s

    @property
    def amount(self) -> str:
        """See `ClosedLoad.amount`."""
        return f"{self.concurrency:,} in flight + {self.rate_per_s:,.6g}/s"

    @property
    def title(self) -> str:
        """See `ClosedLoad.title`."""
        return self.amount


Load = Annotated[ClosedLoad | RampLoad | OpenLoad | IdleLoad | ColdStartLoad | MixedLoad, Field(discriminator="kind")]
