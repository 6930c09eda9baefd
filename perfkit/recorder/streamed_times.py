"""The times of streamed requests, from the instants of their responses."""

import dataclasses
from collections.abc import Mapping, Sequence

import numpy as np
import numpy.typing as npt

from perfkit.recorder.series import Instants
from perfkit.transport.base import Outcome, Reply

RESPONSES = ("first_response_time", "response_gap", "stream_time")
EVENTS = ("first_token_time", "event_gap", "stream_time")
"""The names of the times where responses are events with content, which is made of tokens."""


@dataclasses.dataclass(frozen=True, slots=True)
class StreamedTimes:
    """What the responses to a batch of requests add to their recording."""

    instants_ns: Instants
    """The instants of all responses."""
    times: Mapping[str, tuple[Instants, Instants]]
    """For each name the indices of the requests of the window that have this time, once for each value, and the nanoseconds."""
    counts: Mapping[str, Instants]
    """For each count the indices of the requests, once for each response or request that is counted."""


def streamed_times(
    batch: Sequence[Reply],
    begun_ns: Instants,
    finished_ns: Instants,
    is_timed: npt.NDArray[np.bool_],
    inside: npt.NDArray[np.bool_],
    names: tuple[str, str, str] = RESPONSES,
) -> StreamedTimes:
    """The times and counts of a batch; `begun_ns` are the intended starts, or in a closed loop the starts.

    The times to the first response, between responses, and to the last have these names.

    The age of a request that timed out or is unfinished is a lower bound of the time to its last response and, if it has none yet, also
    of that to its first; it is counted as such. A request that ended OK without a response has neither time. The gaps of a request belong to the part of the window in
    which it began, so that their correlation stays within one part.
    """
    sizes = np.array([len(reply.responses_ns) for reply in batch], dtype=np.int64)
    instants_ns = np.concatenate([np.asarray(reply.responses_ns, dtype=np.int64) for reply in batch]) if batch else sizes
    last = np.cumsum(sizes) - 1
    first = last - sizes + 1
    of = np.repeat(np.arange(sizes.size), sizes)
    is_ok = np.array([reply.outcome in (Outcome.OK, Outcome.INVALID_OUTPUT) for reply in batch], dtype=bool)
    with_response = inside & is_timed & (sizes > 0)
    cut_off = inside & is_timed & ~is_ok
    answered, silent = np.flatnonzero(with_response), np.flatnonzero(cut_off & (sizes == 0))
    completed, aged = np.flatnonzero(with_response & is_ok), np.flatnonzero(cut_off)
    gaps = np.flatnonzero((of[1:] == of[:-1]) & with_response[of[1:]])
    age_ns = finished_ns - begun_ns
    to_first, between, to_last = names
    return StreamedTimes(
        instants_ns,
        {
            to_first: (
                np.concatenate([answered, silent]),
                np.concatenate([instants_ns[first[answered]] - begun_ns[answered], age_ns[silent]]),
            ),
            between: (of[gaps], np.diff(instants_ns)[gaps]),
            to_last: (
                np.concatenate([completed, aged]),
                np.concatenate([instants_ns[last[completed]] - begun_ns[completed], age_ns[aged]]),
            ),
        },
        {
            "responses": of[inside[of]],
            "without_response": np.flatnonzero(inside & is_ok & (sizes == 0)),
            "cancelled": np.flatnonzero(inside & cut_off),
        },
    )
