"""The smallest change that a gate would find, from the noise that it met."""

import math
from collections.abc import Sequence

import numpy as np

from perfkit.stats.paired import POWER, Bounds, Rule
from perfkit.stats.signed_rank import cut_off, hodges_lehmann, lower_limit

_DRAWS = 500


def minimum_detectable_difference(rule: Rule, bounds: Sequence[Bounds], index: int, differences: Sequence[float]) -> float | None:
    """The shift of metric `index` alone that nine of ten gates find whose pairs are as noisy as these.

    Gates are drawn from the differences' residuals about their Hodges-Lehmann estimate, with signs by coins, since a pair's
    order is one; n/(n-2) makes up for what so few residuals lack in variance. A gate finds the shift where it lies beyond the
    band by more than its lower limit lies below zero, at any of its looks, at the first step of Holm's correction: whichever the other
    metrics are. An approximation, seeded: with the simulation's noise 86 to 90 of 100 gates find it, of quick ones 78 to 83
    (`benchmarks/gate_simulation.py`). None where three pairs or fewer were measured, or so few are looked at that nothing is found.
    """
    values, error = np.asarray(differences, np.float64), rule.first_step_error(bounds, index)
    cut_offs = {count: cut_off(count, error) for count in rule.looks}
    if values.size < 3 or not any(cut_offs.values()):
        return None
    rng = np.random.default_rng(0)
    residuals = (values - hodges_lehmann(values)) * math.sqrt(values.size / (values.size - 2))
    drawn = rng.choice(residuals, (_DRAWS, rule.looks[-1])) * rng.choice((-1.0, 1.0), (_DRAWS, rule.looks[-1]))
    lowest = np.max([lower_limit(drawn[:, :count], error) for count, beyond in cut_offs.items() if beyond], axis=0)
    return bounds[index].band - float(np.quantile(lowest, 1 - POWER))
