"""Whether the target fell behind the arrivals of an open loop."""

import dataclasses
import math
import statistics
from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

ANSWERED_SHARE = 0.98
_SIGNIFICANCE = 0.01
_SECOND_HALF_SHARE = 0.25


@dataclasses.dataclass(frozen=True, slots=True)
class Overload:
    """The verdict and its evidence, in requests over the whole window."""

    is_overloaded: bool
    scheduled: int
    answered: int
    grown: int
    """The growth of the backlog: requests scheduled in the window minus requests answered in it."""
    grown_in_second_half: int
    allowed: float
    """The largest growth at which the target does not count as overloaded."""

    @property
    def sentence(self) -> str:
        """The verdict as a sentence."""
        share = self.answered / self.scheduled if self.scheduled else 1.0
        figures = f"{share:.1%} of {self.scheduled:,} requests answered within the window"
        if self.is_overloaded:
            return f"The target was overloaded: {figures}, and the backlog grew until its end, so the percentiles depend on the length of the window."
        return f"The target kept up: {figures}."


def judge_overload(
    scheduled: Sequence[int] | npt.NDArray[np.int64], answered: Sequence[int] | npt.NDArray[np.int64], dispersion: float = 2.0
) -> Overload:
    """Whether the backlog of an open loop grew throughout the window, and by more than chance.

    Both series have one element per interval of the window. `scheduled` counts the arrivals, including dropped ones. `answered` counts
    the requests that were answered in the interval, whenever they were sent. Requests that timed out or did not finish are
    never answered, so a backlog that only the time limit clears counts as one. Rejections are answers: they show in the error rate.

    The growth is Σscheduled - Σanswered: the change of the number in flight, plus all dropped requests. A point is overloaded
    if the growth exceeds 2 % of the scheduled requests and exceeds chance, and at least a quarter of it occurred in the
    second half of the window (steady growth has a half there, and an early stall has none).

    Chance: in heavy traffic, a queue that starts empty and has a load of up to 1 holds at most |N(0, D·N)| requests after N
    arrivals (reflected Brownian motion; J. F. C. Kingman 1962, D. L. Iglehart & W. Whitt 1970). Growth beyond z √(D·N),
    z = 2.576, thus has a probability below 1 %. D, the `dispersion`, is the squared coefficient of variation of the interarrival times
    plus that of the service times: 2 for Poisson arrivals and exponential service. A smaller one makes the verdict stricter.
    Simulated with M/M/1 at dispersion 2, the verdict is "overloaded" at a load of 0.95 in 0 of 2,000 windows, at 1 in 0.75 %, at
    1.05 in 57 % after 6,000 arrivals and 99 % after 30,000, and at 1.1 in 98 % after 6,000. Assumption: independent times; the
    bursts of a trace need a larger dispersion.

    If the load generator fell behind, the backlog says nothing about the target: judge the generator first. Raises ValueError for
    series of different lengths.
    """
    if len(scheduled) != len(answered):
        raise ValueError(f"arrivals and answers must be counted in the same intervals, found {len(scheduled)} and {len(answered)}")
    growth = np.asarray(scheduled, dtype=np.int64) - np.asarray(answered, dtype=np.int64)
    total, grown = int(np.sum(scheduled, dtype=np.int64)), int(growth.sum())
    second_half = int(growth[growth.size // 2 :].sum())
    chance = statistics.NormalDist().inv_cdf(1 - _SIGNIFICANCE / 2) * math.sqrt(dispersion * total)
    allowed = max((1 - ANSWERED_SHARE) * total, chance)
    return Overload(
        is_overloaded=grown > allowed and second_half >= _SECOND_HALF_SHARE * grown,
        scheduled=total,
        answered=total - grown,
        grown=grown,
        grown_in_second_half=second_half,
        allowed=allowed,
    )
