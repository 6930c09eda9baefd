"""Evidence from few differences that are alike: two runs of equal servers hardly ever differ by the same amount several times.

Assumption: a difference is D = X - Y of independent X and Y with one law, whatever it is, and differences are independent.

Of three values, the largest difference is the sum of the other two, so not all three can lie in one band [d, 2d): the graph that joins
values whose difference does has no triangle, and by Mantel's theorem (W. Mantel, Wiskundige Opgaven 10, 1907) at most half of its edges.
So D lies in a band with a probability of at most 1/4, which two equally likely modes reach, and n differences with at most 4^-n. The
band is not fixed beforehand, but begins at the smallest difference. For bands of that kind, up to 1.5 times as wide as they begin, the
worst law found by a numerical search over laws with two to seven modes has 1.03 · 4^-n; for [d, 2d) it is 2.0 · 4^-n.
"""

import numpy as np

from perfkit.stats.signed_rank import Array


def are_alike(values: Array, ratio: float) -> np.ndarray:
    """Whether all values along the last axis are above zero, and the largest is less than `ratio` times the smallest."""
    smallest = values.min(axis=-1)
    return np.asarray((smallest > 0) & (values.max(axis=-1) < ratio * smallest))


def alike_limits(values: Array, ratio: float) -> tuple[Array, Array]:
    """Confidence limits of the shift of the values: those shifts that a test by `are_alike` does not reject, on either side.

    They are the smallest value less the range of the values ÷ (`ratio` - 1), and the largest value plus as much.
    """
    low, high = values.min(axis=-1), values.max(axis=-1)
    reach = (high - low) / (ratio - 1)
    return np.asarray(low - reach), np.asarray(high + reach)
