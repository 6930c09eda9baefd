"""The figures of tokens, from what servers report of the requests of a batch."""

import dataclasses
from collections.abc import Mapping, Sequence

import numpy as np
import numpy.typing as npt

from perfkit.recorder.series import Instants
from perfkit.transport.base import Outcome, Reply

PER_TOKEN_TIME = "time_per_output_token"  # noqa: S105 - no password
_UNKNOWN = -1


@dataclasses.dataclass(frozen=True, slots=True)
class TokenFigures:
    """What a batch adds to its recording; only ok answers count."""

    per_token_ns: Instants
    """Of each request of the batch: the time from its first event to its last, per token after those of the first; -1 if it is not known."""
    has_further: npt.NDArray[np.bool_]
    """Whether a request has, or may have, tokens after those of its first event."""
    counts: Mapping[str, tuple[Instants, Instants]]
    """For each count the indices of requests, and how much each adds."""


def token_figures(batch: Sequence[Reply]) -> TokenFigures:
    """The figures of a batch. A time per token is known of a streamed answer whose server reports all tokens, and those of the first event."""
    ok = np.array([reply.outcome is Outcome.OK for reply in batch], dtype=bool)
    reported = ok & np.array([reply.tokens is not None for reply in batch], dtype=bool)
    given, made, first = np.array(
        [(0, 0, _UNKNOWN) if (one := reply.tokens) is None else (one.input, one.output, _UNKNOWN if one.first is None else one.first) for reply in batch],
        dtype=np.int64,
    ).reshape(-1, 3).T  # fmt: skip
    events = np.array([len(reply.responses_ns) for reply in batch], dtype=np.int64)
    length_ns = np.array([reply.responses_ns[-1] - reply.responses_ns[0] if reply.responses_ns else 0 for reply in batch], dtype=np.int64)
    has_further = (events > 0) & ~(reported & ((made <= 1) | ((first > 0) & (made == first))))
    is_known = reported & (first > 0) & (made > first) & (events > 1)
    per_token_ns = np.where(is_known, length_ns // np.maximum(made - first, 1), _UNKNOWN)
    once = np.ones(len(batch), dtype=np.int64)
    amounts = {
        "input_tokens": (reported, given),
        "output_tokens": (reported, made),
        "tokens_reported": (reported, once),
        "tokens_unreported": (ok & ~reported, once),
        "several_in_event": (reported & (events > 0) & (made > events), once),
        "per_token_unknown": (ok & has_further & ~is_known, once),
    }
    return TokenFigures(
        per_token_ns, has_further, {name: (np.flatnonzero(chosen), amount[chosen]) for name, (chosen, amount) in amounts.items()}
    )
