"""All that was sent in a load point, in its warm-up and its window: what a server's own counts are held against."""

import dataclasses
from collections.abc import Iterable

import numpy as np

from perfkit.recorder.series import Instants
from perfkit.transport.base import Outcome

_ANSWERED = np.array([outcome in (Outcome.OK, Outcome.INVALID_OUTPUT) for outcome in Outcome])
# what a server may have answered all the same, after nobody waited for it any more
_OPEN = (Outcome.TIMED_OUT, Outcome.UNFINISHED, Outcome.BROKEN)


@dataclasses.dataclass(frozen=True, slots=True)
class AnswerTotals:
    """Counts of requests; `answered_ns` is the service time of the answered ones together."""

    answered: int = 0
    answered_ns: int = 0
    perhaps_answered: int = 0
    """Those that ended without an answer, though the server may have given one."""

    @classmethod
    def added(cls, parts: "Iterable[AnswerTotals]") -> "AnswerTotals":
        """What several workers sent together."""
        parts = list(parts)
        return cls(*(sum(getattr(part, field.name) for part in parts) for field in dataclasses.fields(cls)))

    @classmethod
    def counted(cls, codes: Instants, service_ns: Instants) -> "AnswerTotals":
        """Of some requests by their outcomes' places in `Outcome`, and their service times."""
        counts = np.bincount(codes, minlength=len(Outcome)).tolist()
        by_outcome = dict(zip(Outcome, counts, strict=True))
        return cls(
            answered=by_outcome[Outcome.OK] + by_outcome[Outcome.INVALID_OUTPUT],
            answered_ns=int(service_ns[_ANSWERED[codes]].sum()),
            perhaps_answered=sum(by_outcome[outcome] for outcome in _OPEN),
        )
