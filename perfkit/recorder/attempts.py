"""The attempts of requests that are sent again, as arrays with one element for each attempt."""

import dataclasses
from collections.abc import Iterator, Sequence

import numpy as np
import numpy.typing as npt

from perfkit.recorder.series import Instants
from perfkit.transport.base import Outcome, Reply, RetriedReply

RETRIED_AFTER = "retried after "
"""The names of the counts of retries by cause are this, followed by the cause as `load.retry.on` has it."""
_CODES = {outcome: code for code, outcome in enumerate(Outcome)}


@dataclasses.dataclass(frozen=True, slots=True)
class Attempts:
    """All attempts of a batch of requests."""

    begun_ns: Instants
    """The start of the attempt's request: in an open loop the intended one."""
    started_ns: Instants
    finished_ns: Instants
    codes: Instants
    """The positions of the outcomes in `Outcome`."""
    is_retry: npt.NDArray[np.bool_]
    causes: Sequence[tuple[int, str]]
    """For each retry, the start of its request and why it was sent."""
    over_budget_ns: Instants
    """The starts of the requests whose next attempt the budget did not permit."""

    @classmethod
    def of(cls, batch: Sequence[Reply], begun_ns: Instants, started_ns: Instants, finished_ns: Instants, codes: Instants) -> "Attempts":
        """The attempts of a batch of replies; the arrays have the start, end and outcome of each reply."""
        retried = [(place, reply) for place, reply in enumerate(batch) if isinstance(reply, RetriedReply)]
        rows = [
            (begun_ns[place], one.started_ns, one.finished_ns, _CODES[one.outcome], number > 0)
            for place, reply in retried
            for number, one in enumerate(reply.attempts)
        ]
        single = np.ones(len(batch), dtype=bool)
        single[[place for place, _ in retried]] = False
        of_singles = [one[single] for one in (begun_ns, started_ns, finished_ns, codes, np.zeros(len(batch), dtype=np.int64))]
        begun, started, finished, all_codes, is_retry = (
            np.concatenate([own, added]) for own, added in zip(of_singles, np.array(rows, dtype=np.int64).reshape(-1, 5).T, strict=True)
        )
        causes = [(int(begun_ns[place]), one.cause) for place, reply in retried for one in reply.attempts[:-1]]
        over_budget_ns = np.array([begun_ns[place] for place, reply in retried if reply.is_over_budget], dtype=np.int64)
        return cls(begun, started, finished, all_codes, is_retry.astype(bool), causes, over_budget_ns)

    def counts(self) -> Iterator[tuple[str, Instants]]:
        """The name of each count, and for everything that it counts the start of the request."""
        yield "attempts", self.begun_ns
        yield "retries", self.begun_ns[self.is_retry]
        yield "over_budget", self.over_budget_ns
        for cause in {cause for _, cause in self.causes}:
            yield f"{RETRIED_AFTER}{cause}", np.array([begun_ns for begun_ns, own in self.causes if own == cause], dtype=np.int64)
