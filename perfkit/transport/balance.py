"""Which of several addresses gets the next request."""

import random
from collections.abc import Sequence

from perfkit.transport.options import Balance


class Balancer:
    """Chooses among addresses; `seed` is that of `random`.

    `least_in_flight` passes over addresses that just refused a connection, which would otherwise always have the fewest in flight;
    the other laws do not, so that every address gets its share. Ties go to each in turn.
    """

    def __init__(self, law: Balance, seed: int = 0) -> None:
        self._law = law
        self._random = random.Random(seed)
        self._last = -1

    def choose(self, in_flight: Sequence[int], is_down: Sequence[bool]) -> int:
        """The position of the address; the requests in flight and the state of each are given, of at least one."""
        count = len(in_flight)
        if self._law == "random":
            return self._random.randrange(count)
        in_turn = [(self._last + 1 + step) % count for step in range(count)]
        if self._law == "round_robin":
            self._last = in_turn[0]
        else:
            self._last = min(in_turn, key=lambda position: (is_down[position], in_flight[position]))
        return self._last
