"""The tokens of answers, by what the server reports as `usage`; nothing is counted that it does not report."""

import re
from collections.abc import Mapping
from typing import Any, TypeGuard

from perfkit.protocol.message import TokenCounts

USAGE = re.compile(rb'"usage"[ \t\r\n]*:[ \t\r\n]*\{')
"""Finds a usage that is not null; inside a JSON text the quotes would have backslashes."""
_MOST_TOKENS = 10_000_000  # no context is as long


def read_usage(document: Mapping[str, Any]) -> TokenCounts | None:
    """The tokens that a document reports; None without a usage, and for one that cannot be.

    Embeddings report no tokens of an answer, which are then those beyond the prompt's: none.
    """
    usage = document.get("usage")
    if not isinstance(usage, dict):
        return None
    given, total = usage.get("prompt_tokens"), usage.get("total_tokens")
    made = usage.get("completion_tokens")
    if made is None and _is_count(given) and _is_count(total):
        made = total - given
    return TokenCounts(given, made) if _is_count(given) and _is_count(made) else None


def streamed_tokens(
    whole: TokenCounts | None, first: TokenCounts | None, last: TokenCounts | None, events: int, *, has_end: bool
) -> TokenCounts | None:
    """Those of a stream with so many events that have content, by the usage of the whole, and those that the first and the last of these events report.

    Without the latter, each event has one token if there are as many tokens as events: with content alone, or, where `has_end`, with the event without
    content that the token has which ends the text.
    """
    if whole is None:
        return None
    later = None
    if first is not None and last is not None:
        later = last.output - first.output
    elif events in (whole.output, whole.output - has_end):
        later = events - 1
    if events <= 1:
        later = 0
    is_known = later is not None and 0 <= later < max(whole.output, 1)
    return whole._replace(later=later if is_known else None, has_several=whole.output - has_end > events > 0)


def _is_count(value: object) -> TypeGuard[int]:
    return isinstance(value, int) and not isinstance(value, bool) and 0 <= value <= _MOST_TOKENS
