"""The tokens of answers, by what the server reports as `usage`; nothing is counted that it does not report."""

import json
import re
from collections.abc import Mapping
from typing import Any, TypeGuard

from perfkit.protocol.message import TokenCounts

_NAME = b'"usage"'
_USAGE = re.compile(rb'"usage"[ \t\r\n]*:[ \t\r\n]*\{')
_LONGEST_BYTES = 4096  # known servers write less than 1 KiB
_MOST_NAMES = 1000
_JSON = json.JSONDecoder()
_MOST_TOKENS = 10_000_000  # no context is as long


def find_usage(data: bytes) -> bytes:
    """The last usage in the JSON of an answer or event that is not null, with at most 4 KiB of what follows; empty without one.

    Only the bytes are searched, since an answer may be large: inside a JSON text the quotes of the name would have backslashes.
    """
    place = len(data)
    for _ in range(_MOST_NAMES):
        if (place := data.rfind(_NAME, 0, place)) < 0:
            break
        if found := _USAGE.match(data, place):
            return data[(start := found.end() - 1) : start + _LONGEST_BYTES]
    return b""


def read_usage(found: bytes) -> TokenCounts | None:
    """The tokens of a usage, from its brace on; None without one, and for one that cannot be.

    Embeddings report no tokens of an answer, which are then those beyond the prompt's: none.
    """
    try:
        usage: Mapping[str, Any] = _JSON.raw_decode(found.decode(errors="replace"))[0]
    except (ValueError, RecursionError):
        return None
    given, total = usage.get("prompt_tokens"), usage.get("total_tokens")
    made = usage.get("completion_tokens")
    if made is None and _is_count(given) and _is_count(total):
        made = total - given
    return TokenCounts(given, made) if _is_count(given) and _is_count(made) else None


def streamed_tokens(
    whole: TokenCounts | None, first: TokenCounts | None, last: TokenCounts | None, events: int, *, has_end: bool
) -> TokenCounts | None:
    """The tokens of a stream with so many events that have content, by the usage of the whole stream and of the first and the last of these events.

    Without the latter, each event has one token if there are as many tokens as events. One more token may be that which ends the text, or a second one
    of any event: the tokens after those of the first event are then not known, and no event is said to have several where the stream `has_end`, an
    event without content that may be this token's.
    """
    if whole is None:
        return None
    later, with_content = None, whole.output - has_end
    if first is not None and last is not None:
        later = last.output - first.output
    elif events == whole.output:
        later = events - 1
    if events <= 1:
        later = 0
    if later is None or not 0 <= later < max(whole.output, 1):
        later = None
    elif last is not None:
        with_content = last.output
    return whole._replace(later=later, has_several=with_content > events > 0)


def _is_count(value: object) -> TypeGuard[int]:
    return isinstance(value, int) and not isinstance(value, bool) and 0 <= value <= _MOST_TOKENS
