"""The figures of tokens, from what servers report of the requests of a batch."""

import dataclasses
from collections.abc import Mapping, Sequence

import numpy as np

from perfkit.protocol.message import TokenCounts
from perfkit.recorder.series import Instants
from perfkit.transport.base import Outcome, Reply

PER_TOKEN_TIME = "time_per_output_token"  # noqa: S105 - no password
_UNKNOWN = -1
_CUT_OFF = (Outcome.TIMED_OUT, Outcome.UNFINISHED)


@dataclasses.dataclass(frozen=True, slots=True)
class TokenFigures:
    """What a batch adds to its recording; only ok answers count, but for `per_token_cut_off`, the streams that were not waited for."""

    per_token_ns: Instants
    """For each request of the batch the time from its first event to its last, per token after those of the first; -1 if not known."""
    counts: Mapping[str, tuple[Instants, Instants]]
    """For each count the indices of requests, and how much each adds."""


def token_figures(batch: Sequence[Reply]) -> TokenFigures:
    """The figures of a batch. A time per token is known of a streamed answer whose later events have a known number of tokens."""
    ok = np.array([reply.outcome is Outcome.OK for reply in batch], dtype=bool)
    reported = ok & np.array([reply.tokens is not None for reply in batch], dtype=bool)
    counts = [reply.tokens or TokenCounts(0, 0) for reply in batch]
    given, made = np.array([(one.input, one.output) for one in counts], dtype=np.int64).reshape(-1, 2).T
    later = np.array([_UNKNOWN if one.later is None else one.later for one in counts], dtype=np.int64)
    several = np.array([one.has_several for one in counts], dtype=bool)
    has_events = np.array([len(reply.responses_ns) > 0 for reply in batch], dtype=bool)
    length_ns = np.array([reply.responses_ns[-1] - reply.responses_ns[0] if reply.responses_ns else 0 for reply in batch], dtype=np.int64)
    per_token_ns = np.where(reported & has_events & (later > 0), length_ns // np.maximum(later, 1), _UNKNOWN)
    is_cut_off = np.array([reply.outcome in _CUT_OFF for reply in batch], dtype=bool)
    once = np.ones(len(batch), dtype=np.int64)
    amounts = {
        "input_tokens": (reported, given),
        "output_tokens": (reported, made),
        "tokens_reported": (reported, once),
        "tokens_unreported": (ok & ~reported, once),
        "several_in_event": (reported & several, once),
        "per_token_unknown": (ok & has_events & ~(reported & (later >= 0)), once),
        "per_token_cut_off": (is_cut_off & has_events, once),
        "first_tokens_unknown": (reported & has_events & (later < 0), once),
    }
    return TokenFigures(per_token_ns, {name: (np.flatnonzero(chosen), amount[chosen]) for name, (chosen, amount) in amounts.items()})
