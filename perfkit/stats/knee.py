"""The knee of a closed loop: the requests in flight with the highest throughput ÷ service time, with a range."""

import dataclasses
import math
from collections.abc import Sequence

_REACH = 2.6
"""Standard errors of a difference that chance reaches in one of a hundred steps."""


@dataclasses.dataclass(frozen=True, slots=True)
class LoadStep:
    """The throughput and the mean service time at a number of requests in flight; `counts` are answers in equal parts of the step, one after the other."""

    throughput_per_s: float
    mean_s: float
    counts: Sequence[float]

    @property
    def power(self) -> float:
        """Throughput ÷ service time."""
        return self.throughput_per_s / self.mean_s if self.mean_s else 0.0

    @property
    def power_error(self) -> float:
        """Its standard error, which is twice that of the throughput: in a closed loop the service time is the requests in flight ÷ throughput.

        From differences of neighbouring parts (J. von Neumann, 1941), since the throughput may rise within the step.
        """
        parts, total = len(self.counts), sum(self.counts)
        if parts < 2 or not total:
            return 0.0
        squares = sum((after - before) ** 2 for before, after in zip(self.counts, self.counts[1:], strict=False))
        return 2 * self.power * math.sqrt(squares / (2 * (parts - 1)) * parts) / total


def knee_steps(steps: Sequence[LoadStep]) -> tuple[int, int, int] | None:
    """The step with the highest throughput ÷ service time, and the first and the last that are not shown to have less; None without answers.

    The maximum of X/R, or X²/N, is L. Kleinrock's knee (1979): below it more requests in flight raise the throughput by more than they
    delay each other. With c servers and no other limit it is at c. Assumption: the errors of the steps are independent and about normal.
    """
    best = max(range(len(steps)), key=lambda index: steps[index].power, default=None)
    if best is None or not steps[best].power:
        return None
    top = steps[best]
    alike = [index for index, one in enumerate(steps) if top.power - one.power <= _REACH * math.hypot(top.power_error, one.power_error)]
    return best, alike[0], alike[-1]
