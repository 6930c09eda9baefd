"""A target that becomes slower or faster while a search probes it: how often the search notices, and what its interval holds then.

    python -m benchmarks.search_drift [--searches 60] [--seed 1] [--processes 2] [--out reports/search-drift.md]

The searches are those of `benchmarks.slo_search_simulation`, with 1,000 requests in a probe of the usual length. All service times become longer by the
given share: little by little over the first ten minutes, or at once after five. The capacity falls by the share ÷ (1 + share). *Noticed*: the result
has a drift, whose test errs in 1 % of searches on a target that stays the same; where it is at least half of the precision (5 %), the search is undecided. *Holds*: the
interval of a search that ends with exit code 0 contains the capacity at its end. Target: at most 2 % noticed, as 95 % confidence allows, where nothing changes.
"""

import concurrent.futures
import functools
import math
import statistics
import sys
from typing import NamedTuple

from benchmarks.report import Report, percent, program_options, share
from benchmarks.simulated_search import Queue, SearchResult, search
from benchmarks.slo_search_simulation import EXIT_0, QUEUES
from perfkit.stats.probability import binomial_limits

NAMES = ("M/M/1", "M/D/1")
REQUESTS, SLOWLY_S, AT_ONCE_S, MOST_FALSE = 1_000, 600.0, 300.0, 0.02


class Change(NamedTuple):
    """How much longer all service times become, and whether at once."""

    share: float
    is_at_once: bool = False

    def at(self, elapsed_s: float) -> float:
        """The factor of the service times."""
        return 1 + self.share * (float(elapsed_s >= AT_ONCE_S) if self.is_at_once else min(elapsed_s / SLOWLY_S, 1.0))

    def __str__(self) -> str:
        return f"{self.share:+.0%} {'at once' if self.is_at_once else 'slowly'}" if self.share else "none"


CHANGES = (Change(0.0), Change(0.05), Change(-0.05), Change(0.1), Change(0.1, is_at_once=True))


def run(queue: Queue, limit: float, change: Change, seed: int) -> SearchResult:
    """One search."""
    return search(queue, limit, REQUESTS, seed, slower_at=change.at)


def holds(result: SearchResult, change: Change) -> bool:
    """Whether the interval contains the capacity at the search's end."""
    return result.low <= 1 / change.at(result.took_s) <= result.high


def main() -> int:
    """Runs the searches and writes the report."""
    options = program_options(__doc__, out="search-drift", searches=(60, "searches of each row"), seed=1, processes=2)
    page = Report(options.out, "A target that changes during a search")
    page.add(f"`python -m benchmarks.search_drift --searches {options.searches} --seed {options.seed}`, whose docstring says how.", "")
    page.table(
        "queue", "change", ">exit code 0", ">drifted", ">other ends", ">noticed", ">estimated change", ">holds, of exit code 0", ">minutes"
    )
    with concurrent.futures.ProcessPoolExecutor(options.processes) as pool:
        for name in NAMES:
            queue = QUEUES[name][0]
            limit = queue.exact_time()
            if limit is None:
                raise SystemExit(f"{name} has no closed form")
            for change in CHANGES:
                first = options.seed * 1_000_000
                results = list(pool.map(functools.partial(run, queue, limit, change), range(first, first + options.searches), chunksize=5))
                good = [one for one in results if one.reason in EXIT_0]
                drifted, noticed = (
                    sum(one.reason == "drifted" for one in results),
                    [one.slower for one in results if not math.isnan(one.slower)],
                )
                page.row(
                    name, change, percent(len(good) / len(results)), percent(drifted / len(results)),
                    percent(1 - (len(good) + drifted) / len(results)), percent(len(noticed) / len(results)),
                    f"{statistics.median(noticed):+.1%}" if noticed else "–", percent(share([holds(one, change) for one in good])),
                    f"{statistics.mean(one.took_s for one in results) / 60:.0f}",
                )  # fmt: skip
                if not change.share:
                    page.is_met &= binomial_limits(len(noticed), len(results))[0] <= MOST_FALSE
    return page.write()


if __name__ == "__main__":
    sys.exit(main())
