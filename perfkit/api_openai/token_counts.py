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


def streamed_tokens(last: TokenCounts | None, first: TokenCounts | None, events: int) -> TokenCounts | None:
    """Those of a stream with so many events that have content, by the usage that came last, and that of the first of these events, if any.

    If there are as many tokens as such events, each event has one; a single event has all tokens.
    """
    if last is None:
        return None
    tokens = last.output if events == 1 else first.output if first is not None else 1 if events == last.output else None
    return last._replace(first=tokens if tokens is not None and 0 < tokens <= last.output else None)


def _is_count(value: object) -> TypeGuard[int]:
    return isinstance(value, int) and not isinstance(value, bool) and 0 <= value <= _MOST_TOKENS
