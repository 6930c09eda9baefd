"""The objectives of a tune: the value of a window, which a tune maximizes, the load that is sent, and the words of the answer. Pure."""

import dataclasses
import math
from collections.abc import Callable, Sequence

from perfkit.gate.tune.folder import Window
from perfkit.scenario.load import LoadSpec, closed_loop, poisson
from perfkit.scenario.measure import ObjectiveName
from perfkit.stats.overload import ANSWERED_SHARE
from perfkit.units import NS_PER_S, format_duration_ns, format_rate_per_s

_UNMET = ", which the present configuration meets at no load"
_LEAST_AT_A_RATE = 400
"""The number of requests in the shortest windows whose p99 is used."""
_CHANCE = 2.576 * math.sqrt(2)
"""Times the square root of the arrivals: by how much a queue that keeps up with Poisson arrivals may grow, as in `stats/overload`."""


@dataclasses.dataclass(frozen=True, slots=True)
class Objective:
    """An objective; of two configurations, the one with the larger value is better."""

    figure: str
    """What is compared, in words: `the throughput`."""
    value: Callable[[Window], float]
    """Computes the value of a window; 0 if it is not known."""
    text: Callable[[float], str]
    """Writes a value in words."""
    unmet: str
    """What is said of a present configuration that has no value, after that of the best one."""
    rate_per_s: float | None = None
    """The rate of the arrivals; None for a closed loop, whose concurrency is scanned."""
    is_time: bool = False
    """Whether the figure that is shown is 1 ÷ value, so that smaller is better."""

    def load(self, concurrency: int) -> LoadSpec:
        """The load at a step of the ladder."""
        return closed_loop(concurrency) if self.rate_per_s is None else poisson(self.rate_per_s)

    @property
    def least_window_s(self) -> float:
        """The length of the shortest windows that have a value."""
        return 0.0 if self.rate_per_s is None else _LEAST_AT_A_RATE / self.rate_per_s

    def shortfall(self, windows: Sequence[Window]) -> str:
        """Why the windows together do not have the load that is asked for, a sentence; empty if they do."""
        if self.rate_per_s is None:
            return ""
        arrived, answered = sum(one.scheduled for one in windows), sum(one.throughput_per_s * one.length_s for one in windows)
        if arrived - answered <= max((1 - ANSWERED_SHARE) * arrived, _CHANCE * math.sqrt(arrived)):
            return ""
        return f"the rate is not delivered: {answered:,.0f} of {arrived:,} requests were answered within the windows"

    def figures(self, ratio: float, interval: tuple[float, float]) -> tuple[float, tuple[float, float]]:
        """The ratio of figures, and its interval, from those of values."""
        return (1 / ratio, (1 / interval[1], 1 / interval[0])) if self.is_time else (ratio, interval)

    def ratio_text(self, ratio: float, interval: tuple[float, float], under: str) -> str:
        """A ratio of figures in words; `under` names the limits."""
        amount = f"{self.figure} {ratio:.2f} times the present one's" if self.is_time else f"{ratio:.2f} times {self.figure}"
        return f"{amount}{under} [{interval[0]:.2f}, {interval[1]:.2f}]"


def objective_of(name: ObjectiveName, rate_per_s: float | None) -> Objective:
    """The objective; only `latency` has a rate."""
    if name == "latency":
        assert rate_per_s is not None
        return Objective(
            f"p99 at {format_rate_per_s(rate_per_s)}",
            lambda window: NS_PER_S / window.p99_ns if window.p99_ns else 0.0,
            lambda value: f"p99 at {format_rate_per_s(rate_per_s)} {format_duration_ns(NS_PER_S / value)}",
            "; the present configuration does not sustain that load within the limits",
            rate_per_s,
            is_time=True,
        )
    if name == "cost":
        return Objective(
            "the throughput per CPU in use",
            lambda window: window.throughput_per_s / window.server_cpus if window.server_cpus else 0.0,
            lambda value: f"{format_rate_per_s(value)} per CPU in use",
            _UNMET,
        )
    return Objective("the throughput", lambda window: window.throughput_per_s, format_rate_per_s, _UNMET)


GOODPUT = objective_of("goodput", None)
