"""A sample of the answers, read while the load goes on."""

import math
import random

from perfkit.errors import ProtocolError
from perfkit.transport.base import Outcome, Reply, Transport
from perfkit.units import NS_PER_S
from perfkit.workload.expectation import Expectation

_OK = Outcome.OK


class AnswerCheck:
    """Reads a share of the ok answers, and makes those that are wrong `INVALID_OUTPUT`.

    Called with every reply, it says whether it read it. The gaps between those that it reads are random, so that they fall
    on all variants of the requests; `at_most_per_s` bounds the time it takes from the load, whatever the share.
    """

    def __init__(self, transport: Transport, expectation: Expectation, *, share: float, at_most_per_s: float, seed: int = 0) -> None:
        self._transport, self._expectation = transport, expectation
        self._share = share
        self._pause_ns = int(NS_PER_S / at_most_per_s)
        self._random = random.Random(seed)
        self._left = self._gap()
        self._next_ns = 0

    def __call__(self, reply: Reply) -> bool:
        """See the class."""
        if self._left > 1:
            self._left -= 1
            return False
        if not self._left or reply.outcome is not _OK:
            return False
        self._left = self._gap()
        if reply.finished_ns < self._next_ns:
            return False
        self._next_ns = reply.finished_ns + self._pause_ns
        if wrong := self._fault(reply):
            reply.outcome, reply.error = Outcome.INVALID_OUTPUT, wrong
        return True

    def _fault(self, reply: Reply) -> str:
        try:
            response = self._transport.decode(reply)
        except ProtocolError as error:
            return f"the answer is broken: {error}"
        wrong = self._expectation.fault(response, reply.variant)
        return f"the answer {wrong}" if wrong else ""

    def _gap(self) -> int:
        """The number of answers up to the next one that is read, geometric, so that each is read with that chance; 0 for never."""
        if self._share in (0, 1):
            return int(self._share)
        return 1 + int(math.log(1 - self._random.random()) / math.log(1 - self._share))
