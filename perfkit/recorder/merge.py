"""One recording from those of several workers, which shared a schedule and a start: counts and histograms add up."""

from collections.abc import Sequence

import numpy as np

from perfkit.recorder.batches import Batch
from perfkit.recorder.recording import SAMPLED_ERRORS, Recording
from perfkit.recorder.sent import AnswerTotals
from perfkit.recorder.series import Instants, Series
from perfkit.transport.base import Outcome


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
