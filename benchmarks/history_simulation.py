"""The steps that a history shows: how often where there is none, and how often where there is one, in simulated series.

    python -m benchmarks.history_simulation [--series 2000] [--seed 4102] [--out reports/history-simulation.md]

A series without a step may show one in at most 1 % of the cases. The exit code is 1 if a target is missed.
"""

import dataclasses
import sys

import numpy as np
import numpy.typing as npt
from scipy.signal import lfilter
from scipy.stats import binom

from benchmarks.report import Report, program_options
from perfkit.history.change_points import CORRELATION, DRIFT, SIGNIFICANCE, change_points

RESULTS = 60
NOISE = 0.03
_NEAR = 3  # results between the place that is found and the actual one
_TARGET = 0.7
_FEWER = 4  # one of so many series where a step is looked for, which takes longer


@dataclasses.dataclass(frozen=True, slots=True)
class Case:
    """Series of normal noise and a drift, with a level that is left at a place, perhaps to be restored at another."""

    name: str
    before: float
    """The share of series in which histories found a step before, by E-divisive with a permutation test: 40 to 300 series, with other seeds."""
    noise: float = NOISE
    correlation: float = 0.0
    drift: float = 0.0
    """Over the whole series."""
    step: float = 0.0
    place: int = 0
    end: int = RESULTS
    contaminated: float = 0.0
    """The share of results that are higher by an exponential amount with a mean of a tenth."""
    is_promised: bool = False
    """Whether the case must meet the target: at most 1 % without a step, else in 7 of 10 series."""

    @property
    def target(self) -> str:
        """In words; empty without one."""
        return "" if not self.is_promised else f"at least {_TARGET:.0%}" if self.step else f"at most {SIGNIFICANCE:.0%}"

    def simulate(self, rng: np.random.Generator) -> npt.NDArray[np.float64]:
        """A series of logarithms."""
        innovations = rng.standard_normal(RESULTS) * np.sqrt(1 - self.correlation**2)
        innovations[0] = rng.standard_normal()
        index = np.arange(RESULTS)
        noise = self.noise * lfilter([1.0], [1.0, -self.correlation], innovations)
        level = self.step * ((index >= self.place) & (index < self.end)) + self.drift * index / (RESULTS - 1)
        higher = (rng.random(RESULTS) < self.contaminated) * rng.exponential(0.1, RESULTS)
        return np.asarray(noise + level + higher)


CASES = (
    Case("independent noise", 0.01, is_promised=True),
    Case("AR(1) of 0.3", 0.093, correlation=0.3, is_promised=True),
    Case("AR(1) of 0.5", 0.297, correlation=0.5, is_promised=True),
    Case("AR(1) of 0.8", 0.777, correlation=0.8),
    Case("drift of 3 %", 0.23, drift=0.03, is_promised=True),
    Case("drift of 3 %, noise of 1.5 %", 0.85, noise=0.015, drift=0.03, is_promised=True),
    Case("drift of 3 %, AR(1) of 0.5", 0.55, correlation=0.5, drift=0.03),
    Case("drift of 6 %", 0.883, drift=0.06),
    Case("5 % of the results are higher by 10 % in the mean", 0.013, contaminated=0.05, is_promised=True),
    *(
        Case(f"a step of 5 % after {place}", before, step=0.05, place=place, is_promised=20 <= place <= 40)
        for place, before in ((10, 0.91), (20, 0.99), (30, 1.0), (40, 1.0), (50, 0.83))
    ),
    *(
        Case(f"a step of {100 * step:.0f} % after 30, AR(1) of {correlation:g}", before, correlation=correlation, step=step, place=30)
        for correlation, step, before in (
            (0.3, 0.05, 0.98),
            (0.3, 0.08, 1.0),
            (0.3, 0.12, 1.0),
            (0.5, 0.05, 0.97),
            (0.5, 0.08, 1.0),
            (0.5, 0.12, 1.0),
        )
    ),
    Case("a step of 10 % after 55", 0.99, step=0.1, place=55),
    Case("10 % higher from the 26th to the 40th, then as before", 0.52, step=0.1, place=25, end=40),
)


def main() -> int:
    """Simulates, and writes the report."""
    options = program_options(__doc__, out="history-simulation", series=(2000, "simulated series without a step per case"), seed=4102)
    page = Report(options.out, "Steps in simulated histories")
    few = options.series // _FEWER
    page.add(f"""\
`python -m benchmarks.history_simulation --series {options.series} --seed {options.seed}`: the share of series of {RESULTS} results in which
`perfkit history steps` shows a step, of {options.series:,} series where there is none and {few:,} where there is one; in brackets: one within {_NEAR} results of the
actual place. Noise of {NOISE:.0%} (standard deviation), normal; AR(1): the correlation of consecutive results. The test is made for
correlations up to 0.5 (the series that it simulates have {CORRELATION:g}) and drifts of up to {DRIFT * RESULTS:.0%} in {RESULTS} results. *Before*: E-divisive with a permutation test, 40 to 300 series each.

At most 1 % is met where the steps found are no more than the 95 % quantile of those at a rate of 1 %: {_most(options.series)} of {options.series:,}. The seed was not used while the test
was made. A step for which there is no target has its share in the table all the same: correlated noise hides it, and so do few results after it.
""")
    page.table("series", ">before", ">now", "target", "")
    for number, case in enumerate(CASES):
        rng, count = np.random.default_rng((options.seed, number)), few if case.step else options.series
        found = [[one.index for one in change_points(case.simulate(rng).tolist(), seed=index)] for index in range(count)]
        shown = sum(map(bool, found))
        near = sum(any(abs(index - case.place) <= _NEAR for index in one) for one in found)
        is_met = shown / count >= _TARGET if case.step else shown <= _most(count)
        page.is_met &= is_met or not case.is_promised
        now = f"{shown / count:.1%}" + (f" ({near / count:.0%})" if case.step else "")
        page.row(case.name, f"{case.before:.0%}", now, case.target, "" if not case.is_promised else "met" if is_met else "**missed**")
    page.add("", "**All targets are met.**" if page.is_met else "**Some targets are missed.**")
    return page.write()


def _most(series: int) -> int:
    return int(binom.ppf(0.95, series, SIGNIFICANCE))


if __name__ == "__main__":
    sys.exit(main())
