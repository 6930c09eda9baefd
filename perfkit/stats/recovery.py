"""When an SLO holds again after an overload, in one repetition and with an interval over several."""

import math
from collections.abc import Sequence

from perfkit.stats.probability import binomial_cdf, student_t_quantile
from perfkit.stats.ratio_interval import Estimate

_CHANCE = 1e-4
"""How often a period of requests that just meet the SLO counts as missing it."""
_PERIOD_S = 1.0
_FEWEST_REPETITIONS = 3


def recovery_s(scheduled: Sequence[int], beyond: Sequence[int], slot_s: float, allowed_share: float) -> float | None:
    """The time from the end of an overload until the SLO holds again and keeps holding; None if it does not within the slots.

    The slots of `slot_s` seconds follow the overload. Requests belong to the slot of their intended start, so that late sending cannot
    shorten the time; `beyond` counts those of them that failed or were slower than the SLO's limit, of which it allows `allowed_share`.
    The SLO is missed in a slot with such requests if there are more in the second up to the slot's end than the allowed share explains
    (binomial test, error 0.0001). It holds again after the last slot in which it is missed. Within that slot the requests beyond the
    limit are taken to come first if all of the slot before were beyond it. Otherwise fewer and fewer are, and they are taken to be spread over the slot:
    the last of k is expected at k ÷ (k + 1) of it. Assumption: requests of a target that meets the SLO are beyond the limit independently.
    """
    period = max(round(_PERIOD_S / slot_s), 1)
    for slot in reversed(range(len(scheduled))):
        part = slice(max(slot + 1 - period, 0), slot + 1)
        if beyond[slot] and _is_missed(sum(beyond[part]), sum(scheduled[part]), allowed_share):
            is_last = slot == max((one for one, count in enumerate(scheduled) if count), default=0)
            share = beyond[slot] / scheduled[slot]
            if slot and beyond[slot - 1] < scheduled[slot - 1]:
                share = max(share, beyond[slot] / (beyond[slot] + 1))
            return None if is_last else slot_s * (slot + share)
    return 0.0


def _is_missed(beyond: int, scheduled: int, allowed_share: float) -> bool:
    return beyond > allowed_share * scheduled and 1 - binomial_cdf(beyond - 1, scheduled, allowed_share) < _CHANCE


def mean_over_repetitions(values: Sequence[float]) -> Estimate | None:
    """The mean of one figure of each repetition with its 95 % interval by Student's t, not below 0; the ends are None for fewer than three.

    Assumption: repetitions are independent, and their figures about normal. None without any.
    """
    if not values:
        return None
    mean, count = sum(values) / len(values), len(values)
    if count < _FEWEST_REPETITIONS:
        return Estimate(mean, None, None)
    error = math.sqrt(sum((one - mean) ** 2 for one in values) / (count - 1) / count)
    reach = student_t_quantile(0.975, count - 1) * error
    return Estimate(mean, max(mean - reach, 0.0), mean + reach)
