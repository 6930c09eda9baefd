"""Whether the requests to several addresses differ more in number than chance explains."""

from collections.abc import Sequence

from perfkit.stats.distributions import binomial_cdf

ERROR_RATE = 0.001
"""The largest probability with which even choices are called uneven."""


def imbalance_p_value(counts: Sequence[int]) -> float:
    """An upper bound of the probability that choices with equal probabilities differ as much as these counts; 1 for fewer than two.

    The exact two-sided binomial test of each count, with the smallest p-value multiplied by the number of counts (Bonferroni): for
    independent choices it is below p with a probability of at most p, whatever their number. Round-robin choices, and
    choices of the address with the fewest requests in flight, vary less, so that they are called uneven even more rarely.
    """
    total, addresses = sum(counts), len(counts)
    if addresses < 2 or not total:
        return 1.0
    share = 1 / addresses
    tails = [min(binomial_cdf(count, total, share), binomial_cdf(total - count, total, 1 - share)) for count in counts]
    return min(2 * addresses * min(tails), 1.0)
