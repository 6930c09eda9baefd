"""The dispersion of counts at several rates where no curve fits: how many requests exceed a limit together."""

import itertools
from collections.abc import Sequence

from perfkit.search.share_curve import CountAt, LimitCount


def dispersion_of(counts: Sequence[CountAt]) -> float:
    """The variance of a count divided by its mean, at least 1: within the windows, or between them if that is more.

    Between them, counts may differ because their rates do; what a curve that rises with the rate explains is no dispersion.
    """
    beyond = sum(one.counted.beyond for one in counts)
    if not beyond:
        return 1.0
    within = sum(one.counted.dispersion * one.counted.beyond for one in counts) / beyond
    return max(within, _between_windows(counts), 1.0)


def _between_windows(counts: Sequence[CountAt]) -> float:
    """Pearson's χ² about the best curve that never falls, per degree of freedom: 0 if the shares rise with the rate."""
    pools: list[list[LimitCount]] = []  # neighbours whose shares fall are pooled (M. Ayer et al., Ann. Math. Statist. 26, 1955)
    for _, same in itertools.groupby(sorted(counts, key=_rate), key=_rate):
        pools.append([one.counted for one in same if one.counted.count])
        while len(pools) > 1 and _share(pools[-2]) >= _share(pools[-1]):
            pools[-2:] = [pools[-2] + pools[-1]]
    terms = [(one.beyond - share * one.count) ** 2 / (share * one.count) for pool in pools if (share := _share(pool)) > 0 for one in pool]
    return sum(terms) / max(len(counts) - len(pools), 1)


def _rate(one: CountAt) -> float:
    return one.rate_per_s


def _share(pool: Sequence[LimitCount]) -> float:
    count = sum(one.count for one in pool)
    return sum(one.beyond for one in pool) / count if count else 0.0
