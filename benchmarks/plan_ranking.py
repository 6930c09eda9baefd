"""The ranking of two servers by cost, from simulated plans: how often it calls the cheaper one cheaper, and how often the dearer one.

    python -m benchmarks.plan_ranking [--plans 150] [--out reports/plan-ranking.md]

Every plan measures the same queue, M/M/1 with service times of 10 ms, as docs/planning.md proposes: eight rates of 60 s in each of three
starts of the server, whose speeds vary by 2 % (standard deviation). Each pair of plans is compared as two configurations of a fleet for
10,000 requests a second, whose prices differ by 0 to 40 %. The servers are equal, so the truly cheaper one is that with the lower price.

Target: the second server, whose price is equal or higher, is called cheaper in at most 5 % of the pairs. Standard errors come from the
jackknife over the plans, since each plan is part of many pairs. It takes about ten minutes on one core. The exit code is 1 if the target
is missed by more than two standard errors.
"""

import dataclasses
import pathlib
import sys
import tempfile
from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from benchmarks.report import option_parser, publish, table_head, table_row, yes_no
from perfkit.plan.configuration import plan_configuration
from perfkit.plan.evidence import gather_evidence, read_sources
from perfkit.plan.inputs import PlanInputs, parse_slo
from perfkit.stats.capacity import count_replicas
from perfkit.stats.ranking import CERTAIN, probability_below
from tests.queue_results import Writer

RATES, SECONDS, RESTARTS, RESTART_SD = (20, 35, 50, 60, 70, 75, 80, 110), 60, 3, 0.02
PRICES, DEMAND_PER_S, TARGET = (1.0, 1.02, 1.05, 1.1, 1.2, 1.4), 10_000.0, 0.05
_SLO = "p99<300ms"


@dataclasses.dataclass(frozen=True, slots=True)
class Shares:
    """Shares of the pairs with each verdict, and their standard errors."""

    right: float
    """The first server, whose price is lower or equal, is called cheaper."""
    right_error: float
    wrong: float
    """The second server is called cheaper."""
    wrong_error: float


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


def compare(costs: Sequence[Sequence[float]], price: float) -> Shares:
    """The verdicts on all ordered pairs of plans; the second's replicas cost `price` times as much as the first's."""
    number = len(costs)
    right, wrong = (np.zeros((number, number), dtype=bool) for _ in range(2))
    for first in range(number):
        for second in range(number):
            if first != second:
                probability = probability_below(costs[first], [price * cost for cost in costs[second]])
                right[first, second], wrong[first, second] = probability >= CERTAIN, probability <= 1 - CERTAIN
    return Shares(*_share(right), *_share(wrong))


def _share(verdicts: npt.NDArray[np.bool_]) -> tuple[float, float]:
    """The share of the pairs, and its standard error by the jackknife over the plans."""
    number, total = len(verdicts), int(verdicts.sum())
    without = (total - verdicts.sum(axis=0) - verdicts.sum(axis=1)) / ((number - 1) * (number - 2))
    return total / (number * (number - 1)), float(np.sqrt((number - 1) / number * ((without - without.mean()) ** 2).sum()))


def main() -> int:
    """Runs the simulation; returns the exit code."""
    parser = option_parser(__doc__, out=pathlib.Path("reports/plan-ranking.md"))
    parser.add_argument("--plans", type=int, default=150)
    options = parser.parse_args()
    costs = [simulate(seed) for seed in range(options.plans)]
    planned = [one for one in costs if one]
    rows, is_met = [], True
    for price in PRICES:
        shares = compare(planned, price)
        holds = shares.wrong - 2 * shares.wrong_error <= TARGET
        is_met = is_met and holds
        texts = (
            f"{100 * share:.1f} ± {200 * error:.1f} %"
            for share, error in ((shares.right, shares.right_error), (shares.wrong, shares.wrong_error))
        )
        rows.append(table_row(f"{price - 1:.0%}", *texts, f"{1 - shares.right - shares.wrong:.0%}", yes_no(holds)))
    lines = [
        "# Rankings of simulated plans",
        "",
        (
            f"`python -m benchmarks.plan_ranking --plans {options.plans}`: {len(planned)} plans of M/M/1 with service times of 10 ms, SLO {_SLO}; "
            f"{len(RATES)} rates of {SECONDS} s and {RESTARTS} starts each, whose speed varies by {RESTART_SD:.0%}; {len(costs) - len(planned)} more were "
            "refused. Every ordered pair of plans is compared as two configurations with these prices. ± is two standard errors."
        ),
        "",
        *table_head(">second costs more by", ">first called cheaper", ">second called cheaper", ">indistinguishable", "at most 5 % wrong"),
        *rows,
        "",
    ]
    return publish(options.out, lines, is_met=is_met)


if __name__ == "__main__":
    sys.exit(main())
