"""The replies of one batch as arrays, and what their outcomes mean for the figures."""

import numpy as np
import numpy.typing as npt

from perfkit.recorder.series import Instants
from perfkit.transport.base import Outcome, Reply

# distributions hold answers, and requests without an answer at their age, which is a lower bound
IN_DISTRIBUTION = (Outcome.OK, Outcome.INVALID_OUTPUT, Outcome.TIMED_OUT, Outcome.UNFINISHED)
CODES = {outcome: code for code, outcome in enumerate(Outcome)}
# tables by code, since the cost of `np.isin` hardly depends on the number of requests
IS_TIMED = np.array([outcome in IN_DISTRIBUTION for outcome in Outcome])
# the server may still be working on a request that timed out or is unfinished
IS_ANSWERED = np.array([outcome not in (Outcome.TIMED_OUT, Outcome.UNFINISHED) for outcome in Outcome])
IS_ABANDONED = np.array([outcome is Outcome.ABANDONED for outcome in Outcome])
IS_FAILED = np.array([outcome not in (Outcome.OK, Outcome.ABANDONED) for outcome in Outcome])
IS_UNTIMED = IS_FAILED & ~IS_TIMED
# a failure that a stop of the generator may have caused
IS_UNANSWERED = np.array(
    [outcome in (Outcome.TIMED_OUT, Outcome.CONNECT_FAILED, Outcome.BROKEN, Outcome.UNFINISHED) for outcome in Outcome]
)


class ReplyBatch:
    """Replies in the order of their ends, with arrays of their instants, in nanoseconds, and of the codes of their outcomes.

    In a closed loop the intended start is the start. The window begins at `start_ns` and ends before `end_ns`, or is open if that is None.
    """

    def __init__(self, replies: list[Reply], start_ns: int, end_ns: int | None, *, is_open: bool) -> None:
        self.replies, self._start_ns, self._end_ns = replies, start_ns, end_ns
        self.started_ns = np.fromiter([reply.started_ns for reply in replies], np.int64, len(replies))
        self.finished_ns = np.fromiter([reply.finished_ns for reply in replies], np.int64, len(replies))
        self.codes = _codes([reply.outcome for reply in replies])
        self.intended_ns = np.fromiter([reply.intended_ns for reply in replies], np.int64, len(replies)) if is_open else self.started_ns

    def paced_ns(self) -> Instants:
        """The instants at which an open loop sent the requests."""
        return np.fromiter([reply.paced_ns for reply in self.replies], np.int64, len(self.replies))

    def is_inside(self, instants_ns: Instants) -> npt.NDArray[np.bool_]:
        """Which of any instants are in the window."""
        inside: npt.NDArray[np.bool_] = instants_ns >= self._start_ns
        if self._end_ns is not None:
            inside &= instants_ns < self._end_ns
        return inside


def _codes(outcomes: list[Outcome]) -> Instants:
    """The codes of outcomes; quickly if all are OK, as nearly always."""
    if outcomes.count(Outcome.OK) == len(outcomes):
        return np.full(len(outcomes), CODES[Outcome.OK])
    return np.array([CODES[outcome] for outcome in outcomes], dtype=np.int64)
