"""The header and metadata key `traceparent` of W3C Trace Context, by which a client makes its own span the parent of ours."""

import re
from typing import NamedTuple

KEY = "traceparent"
_FORMAT = re.compile(r"([0-9a-f]{2})-([0-9a-f]{32})-([0-9a-f]{16})-[0-9a-f]{2}(-.*)?", re.IGNORECASE | re.ASCII)


class ParentSpan(NamedTuple):
    """A span of the client."""

    trace_id: int
    span_id: int


def parse_traceparent(text: str) -> ParentSpan | None:
    """The client's span, or None if the text is not valid.

    As in Triton, the sampled flag is not looked at, and upper-case digits are accepted. Versions after 00 may carry more at the end;
    version ff and ids of zeros are invalid (https://www.w3.org/TR/trace-context/#traceparent-header).
    """
    found = _FORMAT.fullmatch(text)
    if found is None or found[1].lower() == "ff" or (found[1] == "00" and found[4] is not None):
        return None
    trace_id, span_id = int(found[2], 16), int(found[3], 16)
    return ParentSpan(trace_id, span_id) if trace_id and span_id else None
