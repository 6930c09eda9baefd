"""What is recorded of one load point: outcomes, distributions and a histogram for each second; those of several workers add up."""

import dataclasses
from collections.abc import Iterable, Sequence

import numpy as np

from perfkit.recorder.batches import Batch
from perfkit.recorder.series import Instants, Series
from perfkit.stats.buckets import BucketCounts
from perfkit.transport.base import Outcome

SAMPLED_ERRORS = 3
"""How many messages are kept of each outcome's failures."""
_ANSWERED = np.array([outcome in (Outcome.OK, Outcome.INVALID_OUTPUT) for outcome in Outcome])
# requests that a server may have answered after the client stopped waiting
_PERHAPS_ANSWERED = (Outcome.TIMED_OUT, Outcome.UNFINISHED, Outcome.BROKEN)


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
            perhaps_answered=sum(by_outcome[outcome] for outcome in _PERHAPS_ANSWERED),
        )


@dataclasses.dataclass(frozen=True, slots=True)
class Interval:
    """The times of the requests that belong to one second of the window; an open loop has response time and start delay."""

    index: int
    service_time: BucketCounts
    response_time: BucketCounts | None = None
    start_delay: BucketCounts | None = None


@dataclasses.dataclass(frozen=True, slots=True)
class Recording:
    """What one worker saw of one load point from the earliest start of its window on, for `window.cut`."""

    origin_ns: int
    end_ns: int
    batch_ns: int
    batches: dict[int, Batch]
    series: Series
    """How the load went on, where its warm-up is to be found in it with all of it."""
    finished_per_s: dict[int, int]
    """Ok completions, by the second in which they finished."""
    errors: dict[Outcome, list[str]]
    sent: AnswerTotals
    """Of the warm-up too."""


def merge(recordings: Sequence[Recording]) -> Recording:
    """The recording that one worker would have made of all that these saw.

    It ends with the last of them. Raises ValueError where they begin at different instants.
    """
    first = recordings[0]
    if len(recordings) == 1:
        return first
    if len({one.origin_ns for one in recordings}) > 1:
        raise ValueError("recordings of one load point begin at one instant")
    batch_ns = max(one.batch_ns for one in recordings)
    batches: dict[int, list[Batch]] = {}
    finished_per_s: dict[int, int] = {}
    errors: dict[Outcome, list[str]] = {}
    for one in recordings:
        for number, batch in one.batches.items():  # their lengths are powers of two of one another
            batches.setdefault(number * one.batch_ns // batch_ns, []).append(batch)
        for second, count in one.finished_per_s.items():
            finished_per_s[second] = finished_per_s.get(second, 0) + count
        for outcome, texts in one.errors.items():
            known = errors.setdefault(outcome, [])
            known += [text for text in texts if text not in known]
    return Recording(
        origin_ns=first.origin_ns,
        end_ns=max(one.end_ns for one in recordings),
        batch_ns=batch_ns,
        batches={number: Batch.merged(parts) for number, parts in batches.items()},
        series=_added([one.series for one in recordings]),
        finished_per_s=finished_per_s,
        errors={outcome: texts[:SAMPLED_ERRORS] for outcome, texts in errors.items()},
        sent=AnswerTotals.added(one.sent for one in recordings),
    )


def _added(series: Sequence[Series]) -> Series:
    """Interval by interval; one that ended earlier has nothing behind its end."""
    longest_ns = max(one.interval_ns for one in series)
    size = max(-(-one.timed.size * one.interval_ns // longest_ns) for one in series)

    def add(name: str) -> Instants:
        total = np.zeros(size, dtype=np.int64)
        for one in series:
            values = getattr(one, name)
            np.add.at(total, np.arange(values.size) * one.interval_ns // longest_ns, values)
        return total

    return Series(series[0].origin_ns, longest_ns, add("scheduled"), add("answered"), add("time_sum_ns"), add("timed"))
