"""Whether an open loop's target has fallen so far behind that the rest of the window would only say so again."""

import math

_BEYOND_CHANCE = 4.5
_LIMITS = 3


def is_overloaded(sent: int, in_flight: int, elapsed_ns: int, limit_ns: int, dispersion: float = 2.0) -> bool:
    """Whether the backlog has grown beyond chance, and those who come now would wait three times the longest limit of an SLO.

    `sent` requests since the load began `elapsed_ns` ago, `in_flight` of them not answered. Beyond chance, as in
    `stats.overload.judge_overload`: a queue that starts empty, at a load of up to 1, holds more than z √(D·N) after N arrivals
    with a chance of 2Φ(-z) at most, 7 in a million for z = 4.5; D is `dispersion`. The wait is that of Little's law,
    what is in flight over what is answered a second. A target that is merely slow has as many in flight from the start: nothing
    is said before three times the limit has passed.
    """
    answered = sent - in_flight
    if elapsed_ns <= _LIMITS * limit_ns or in_flight <= _BEYOND_CHANCE * math.sqrt(dispersion * sent):
        return False
    return in_flight * elapsed_ns > _LIMITS * limit_ns * answered
