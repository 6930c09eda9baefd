"""Checks the answers while load is sent: of each what can be seen without decoding it, of a sample everything."""

import math
import random
from collections.abc import Callable

from perfkit.errors import AnswerTooLargeError, ProtocolError
from perfkit.protocol.message import InferResponse
from perfkit.target_client import Client
from perfkit.trace.recorded import Indices
from perfkit.transport.base import SEEN_BYTES, AnswerSigns, Outcome, Reply
from perfkit.transport.streamed_answer import WITHOUT_RESPONSE
from perfkit.units import NS_PER_S
from perfkit.workload.expectation import Expectation

_OK = Outcome.OK
_UNKNOWN, _NONE = AnswerSigns(b"\xff" * SEEN_BYTES * 2, None), AnswerSigns(b"", None)
_MOST_RELEARNED = 100  # sound answers that differ from the one before are the server's way, and are left to the sample


class AnswerCheck:
    """Checks the OK answers; the outcome of a wrong one becomes INVALID_OUTPUT.

    It is called with every reply and returns whether it was one of the sample: a random share, of which outputs are compared with what is
    expected. Each other answer is only searched for what a sound one has, such as the model's name as the server writes it; one that lacks
    it is decoded and, if it is wrong, not part of the sample either. The gaps are random, so that all variants of the requests
    are checked; `at_most_per_s` limits the CPU time it takes from the load generator. An answer without a payload, that
    of a stream without a response, is wrong only if there must be one, and a stream with several if there must be no more than one. Which outputs an answer has
    is seen in the sample only, since they are known once it is decoded. `request_indices` are those of `WorkloadSpec`.
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
        self._has_one_response = expectation.has_one_response
        self._share = share
        self._min_gap_ns = int(NS_PER_S / at_most_per_s)
        self._random = random.Random(seed)
        self._until_next = self._gap()
        self._next_ns = 0
        self._received = client.transport.received
        self._signs = _UNKNOWN
        self._present = b""
        self._place, self._size = slice(0), -1  # of the last sound answer: where it has its sign, and its size if it was seen whole
        self._relearned = 0

    def __call__(self, reply: Reply) -> bool:
        """See the class."""
        if reply.outcome is not _OK:
            return False
        if reply.payload is None:
            if self._expectation.needs_response:
                reply.outcome, reply.error = Outcome.INVALID_OUTPUT, WITHOUT_RESPONSE
            return False
        if self._has_one_response and len(reply.responses_ns) > 1:
            reply.outcome = Outcome.INVALID_OUTPUT
            reply.error = f"the request had {len(reply.responses_ns):,} responses, where the model's configuration says one"
            return False
        received = self._received  # by way of a local (docs/architecture.md)
        start = received(reply)
        is_alike = len(start) == self._size and start[self._place] == self._present
        if not is_alike and not self._looks_sound(start) and self._judge_and_relearn(reply):
            return False
        self._until_next = left = self._until_next - 1
        return not left and self._judge_of_sample(reply)

    def _judge_of_sample(self, reply: Reply) -> bool:
        """Judges an answer of the sample, and chooses the next one; False if the last one was judged too recently."""
        self._until_next = self._gap()
        if reply.finished_ns < self._next_ns:
            return False
        self._next_ns = reply.finished_ns + self._min_gap_ns
        self._judge(reply, lambda response: self._expectation.fault(response, self._request_of(reply)))
        return True

    def _looks_sound(self, start: bytes) -> bool:
        """Whether an answer has the sign of a sound one, and none of an error; one more like it need not be searched."""
        present, absent, latest = self._signs
        place = start.find(present, 0, min(latest + len(present), SEEN_BYTES))
        if place < 0 or (absent is not None and start.find(absent, 0, SEEN_BYTES) >= 0):
            return False
        self._present = present
        self._place = slice(place, place + len(present))
        self._size = len(start) if len(start) < SEEN_BYTES else -1  # beyond, equal sizes say nothing
        return True

    def _judge_and_relearn(self, reply: Reply) -> bool:
        """Whether an answer that does not look like the last sound one is wrong; if it is not, later ones are expected to look like it."""
        response = self._judge(reply, self._expectation.model_fault)
        if response is None:
            return True
        self._relearned += 1
        self._size = -1
        self._signs = self._client.signs(reply, response) if self._relearned <= _MOST_RELEARNED else _NONE
        return False

    def _judge(self, reply: Reply, fault_of: Callable[[InferResponse], str]) -> InferResponse | None:
        """Decodes an answer, and sets the outcome of one with a fault; None then."""
        try:
            response = self._client.decode(reply)
            fault = fault_of(response)
        except ProtocolError as error:
            fault = f"is broken: {error}"
            reply.is_own_limit = isinstance(error, AnswerTooLargeError)
        if not fault:
            return response
        reply.outcome, reply.error = Outcome.INVALID_OUTPUT, f"the answer {fault}"
        return None

    def _request_of(self, reply: Reply) -> int:
        return reply.variant if self._request_indices is None else int(self._request_indices[reply.variant])

    def _gap(self) -> int:
        """The number of answers to the next one that is checked, geometrically distributed; 0 for never, since the countdown then begins below 1."""
        if self._share in (0, 1):
            return int(self._share)
        return 1 + int(math.log(1 - self._random.random()) / math.log(1 - self._share))
