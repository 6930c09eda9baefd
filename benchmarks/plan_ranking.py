"""The ranking of two servers by cost, from simulated plans: how often it calls the cheaper one cheaper, and how often the dearer one.

    python -m benchmarks.plan_ranking [--plans 150] [--out reports/plan-ranking.md]

Every plan measures the same queue, M/M/1 with service times of 10 ms, as docs/concepts/planning.md proposes: eight rates of 60 s in each of three
starts of the server, whose speeds vary by 2 % (standard deviation). Each pair of plans is compared as two configurations of a fleet for
10,000 requests a second, whose prices differ by 0 to 40 %. The servers are equal, so the truly cheaper one is that with the lower price.

Targets: the second server, whose price is equal or higher, is called cheaper in at most 5 % of the pairs. Of rankings of up to ten equal
configurations, drawn from the plans, at most 5 % have any difference. Standard errors come from the jackknife over the plans, since each plan
is part of many pairs. It takes about five minutes on one core. The exit code is 1 if a target is missed, the first one by more than two
standard errors.
"""

import math
import pathlib
import sys
import tempfile
from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from benchmarks.report import Report, program_options
from perfkit.plan.capacity import count_replicas
from perfkit.plan.configuration import plan_configuration
from perfkit.plan.evidence import gather_evidence, read_sources
from perfkit.plan.inputs import PlanInputs, parse_slo
from perfkit.stats.ranking import CERTAIN, pair_confidence, probability_below
from perfkit.units import format_confidence
from tests.queue_results import Writer

_Numbers = npt.NDArray[np.float64]

RATES, SECONDS, RESTARTS, RESTART_SD = (20, 35, 50, 60, 70, 75, 80, 110), 60, 3, 0.02
PRICES, DEMAND_PER_S, TARGET = (1.0, 1.02, 1.05, 1.1, 1.2, 1.4), 10_000.0, 0.05
NUMBERS, LOWER_PRICES, _RANKINGS = (2, 3, 5, 10), (1.1, 1.2, 1.4), 4000
_SLO = "p99<300ms"


def simulate(seed: int) -> list[float]:
    """The numbers of replicas for draws of one plan's capacity, ascending; empty if the plan is refused."""
    random = np.random.default_rng([seed, 19])
    with tempfile.TemporaryDirectory() as folder:
        write = Writer(pathlib.Path(folder))
        results = [
            str(write(RATES, seed=RESTARTS * seed + start, restart=random.normal(0, RESTART_SD), seconds=SECONDS, overloaded_from=100))
            for start in range(RESTARTS)
        ]
        (evidence,) = gather_evidence(read_sources(results))
    planned = plan_configuration(evidence, PlanInputs(parse_slo([_SLO]), (DEMAND_PER_S,)), random)
    if planned.capacity is None:
        return []
    return sorted(float(count_replicas(DEMAND_PER_S, draw).replicas) for draw in planned.capacity.draws_per_s if draw > 0)


def probabilities(costs: Sequence[Sequence[float]], price: float) -> _Numbers:
    """The probability that each plan's cost is below `price` times each other plan's; NaN for a plan and itself."""
    return np.array(
        [[math.nan if one is other else probability_below(one, [price * cost for cost in other]) for other in costs] for one in costs]
    )


def false_differences(cheaper: _Numbers, number: int, needed: float, random: np.random.Generator) -> float:
    """The share of rankings of `number` plans, drawn at random, in which any is called cheaper than another."""
    found = 0
    for _ in range(_RANKINGS):
        drawn = random.choice(len(cheaper), number, replace=False)
        found += bool((cheaper[np.ix_(drawn, drawn)] >= needed).any())
    return found / _RANKINGS


def _share(verdicts: npt.NDArray[np.bool_]) -> tuple[float, float]:
    """The share of the pairs, and its standard error by the jackknife over the plans."""
    number, total = len(verdicts), int(verdicts.sum())
    without = (total - verdicts.sum(axis=0) - verdicts.sum(axis=1)) / ((number - 1) * (number - 2))
    return total / (number * (number - 1)), float(np.sqrt((number - 1) / number * ((without - without.mean()) ** 2).sum()))


def main() -> int:
    """Runs the simulation; returns the exit code."""
    options = program_options(__doc__, out="plan-ranking", plans=(150, "how many"))
    costs = [simulate(seed) for seed in range(options.plans)]
    planned = [one for one in costs if one]
    page = Report(options.out, "Rankings of simulated plans")
    page.add(
        f"`python -m benchmarks.plan_ranking --plans {options.plans}`: {len(planned)} plans of M/M/1 with service times of 10 ms, SLO {_SLO}; "
        f"{len(RATES)} rates of {SECONDS} s and {RESTARTS} starts each, whose speed varies by {RESTART_SD:.0%}; {len(costs) - len(planned)} more were "
        "refused. Every ordered pair of plans is compared as two configurations with these prices. ± is two standard errors.",
        "",
    )
    page.table(">second costs more by", ">first called cheaper", ">second called cheaper", ">indistinguishable", "at most 5 % wrong")
    for price in PRICES:
        cheaper = probabilities(planned, price)
        (right, right_error), (wrong, wrong_error) = _share(cheaper >= CERTAIN), _share(cheaper <= 1 - CERTAIN)
        texts = (f"{100 * share:.1f} ± {200 * error:.1f} %" for share, error in ((right, right_error), (wrong, wrong_error)))
        page.judged_row(wrong - 2 * wrong_error <= TARGET, f"{price - 1:.0%}", *texts, f"{1 - right - wrong:.0%}")
    page.section(
        "Several configurations",
        f"{_RANKINGS:,} rankings of as many of these plans, drawn at random, at equal prices; and the share of pairs in which a configuration is "
        "told from one that costs more. Plans use the higher probability of each number, with which all differences of a ranking are right with 95 %.",
        "",
    )
    told = (f">told, {price - 1:.0%} more" for price in LOWER_PRICES)
    page.table(">configurations", ">needed probability", ">rankings with a false difference", *told)
    random, equal = np.random.default_rng(19), probabilities(planned, 1.0)
    dearer = [probabilities(planned, price) for price in LOWER_PRICES]
    for number in (number for number in NUMBERS if number <= len(planned)):
        for needed in sorted({CERTAIN, pair_confidence(number)}):
            false = false_differences(equal, number, needed, random)
            shares = (f"{np.nanmean(np.where(np.isnan(one), np.nan, one >= needed)):.0%}" for one in dearer)
            page.row(number, format_confidence(needed), f"{false:.1%}", *shares)
        page.is_met &= false <= TARGET  # of the last, which is the confidence that plans use
    return page.write()


if __name__ == "__main__":
    sys.exit(main())
