"""Checks a sample of the answers while load is sent."""

import math
import random

from perfkit.errors import ProtocolError
from perfkit.target_client import Client
from perfkit.trace.recorded import Indices
from perfkit.transport.base import Outcome, Reply
from perfkit.units import NS_PER_S
from perfkit.workload.expectation import Expectation

_OK = Outcome.OK


class AnswerCheck:
    """Checks a random share of the OK answers; the outcome of a wrong one becomes INVALID_OUTPUT.

    It is called with every reply and returns whether it checked it. The gaps are random, so that all variants of the requests
    are checked; `at_most_per_s` limits the CPU time it takes from the load generator. An answer without a payload, such as a stream
    without a response, has nothing to check. `request_indices` are those of `WorkloadSpec`.
    """

    def __init__(
        self,
        client: Client,
        expectation: Expectation,
        *,
        share: float,
        at_most_per_s: float,
        seed: int = 0,
        request_indices: Indices | None = None,
    ) -> None:
        self._client, self._expectation, self._request_indices = client, expectation, request_indices
        self._share = share
        self._min_gap_ns = int(NS_PER_S / at_most_per_s)
        self._random = random.Random(seed)
        self._until_next = self._gap()
        self._next_ns = 0

    def __call__(self, reply: Reply) -> bool:
        """See the class."""
        if self._until_next > 1:
            self._until_next -= 1
            return False
        if not self._until_next or reply.outcome is not _OK or reply.payload is None:
            return False
        self._until_next = self._gap()
        if reply.finished_ns < self._next_ns:
            return False
        self._next_ns = reply.finished_ns + self._min_gap_ns
        if fault := self._fault(reply):
            reply.outcome, reply.error = Outcome.INVALID_OUTPUT, fault
        return True

    def _fault(self, reply: Reply) -> str:
        try:
            response = self._client.decode(reply)
        except ProtocolError as error:
            return f"the answer is broken: {error}"
        fault = self._expectation.fault(
            response, reply.variant if self._request_indices is None else int(self._request_indices[reply.variant])
        )
        return f"the answer {fault}" if fault else ""

    def _gap(self) -> int:
        """The number of answers to the next one that is checked, geometrically distributed; 0 for never."""
        if self._share in (0, 1):
            return int(self._share)
        return 1 + int(math.log(1 - self._random.random()) / math.log(1 - self._share))
