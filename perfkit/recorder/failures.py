"""Why requests failed: a bounded number of distinct messages, each with its count."""

import collections
import dataclasses
import re
from collections.abc import Callable, Hashable, Iterable, Mapping
from typing import Literal, TypeAlias

from perfkit.transport.base import Outcome, Reply

Cause: TypeAlias = Literal["queue_full", "queue_timeout"]
DISTINCT_MESSAGES = 10
"""The number of distinct messages that are kept for one outcome and status; the others are counted together."""
_MAX_MESSAGES = 50
# of raw answers whose message is known, and of failures whose message is decoded, which takes some 20 µs
_MAX_KNOWN, _MAX_DECODED = 500, 10_000
# Triton puts the id of the request before its message
_REQUEST_ID = re.compile(r"\[request id: [^\]]*\] ?")
# messages of Triton's schedulers (its core's `scheduler_utils.cc`), in lower case
_CAUSES: tuple[tuple[str, Cause], ...] = (("exceeds maximum queue size", "queue_full"), ("request timeout expired", "queue_timeout"))


@dataclasses.dataclass(frozen=True, slots=True)
class FailureKind:
    """What failures have in common: the outcome, the status of a rejection, and the message; None stands for all other messages."""

    outcome: Outcome
    status: str = ""
    message: str | None = ""

    @property
    def cause(self) -> Cause | None:
        """Whether a server with a bounded queue refused the request at once, or let its time in the queue run out."""
        text = (self.message or "").lower()
        return next((cause for part, cause in _CAUSES if part in text), None)


class FailureKinds:
    """Tells the failed replies of one worker and load point apart, in bounded memory and time.

    `describe` gives the message of a failed reply; `raw_message` a key that is cheaper to make and equal only where the messages are.
    Messages differ by their digits, too; only request ids, as Triton writes them, are left out.
    """

    def __init__(self, describe: Callable[[Reply], str], raw_message: Callable[[Reply], Hashable]) -> None:
        self._describe, self._raw_message = describe, raw_message
        self._known: dict[Hashable, FailureKind] = {}
        self._messages = collections.defaultdict[tuple[Outcome, str], set[str]](set)
        self._decoded = 0

    def kind(self, reply: Reply) -> FailureKind:
        """The kind of a failed reply."""
        key = reply.outcome, reply.status, self._raw_message(reply)
        known = self._known.get(key)
        if known is not None:
            return known
        kind = self._decode(reply)
        if len(self._known) < _MAX_KNOWN:
            self._known[key] = kind
        return kind

    def _decode(self, reply: Reply) -> FailureKind:
        others = FailureKind(reply.outcome, str(reply.status), None)
        if self._decoded >= _MAX_DECODED:
            return others
        self._decoded += 1
        message = _REQUEST_ID.sub("", self._describe(reply))
        messages = self._messages[reply.outcome, str(reply.status)]
        if message not in messages:
            if len(messages) >= DISTINCT_MESSAGES or sum(map(len, self._messages.values())) >= _MAX_MESSAGES:
                return others
            messages.add(message)
        return dataclasses.replace(others, message=message)


def most_frequent(parts: Iterable[Mapping[FailureKind, int]]) -> list[tuple[FailureKind, int]]:
    """The kinds of several recordings with their counts, the most frequent first, and rare messages of one outcome together."""
    total = collections.Counter[FailureKind]()
    for part in parts:
        total.update(part)
    kept, shown = collections.Counter[FailureKind](), collections.Counter[Outcome]()
    for kind, count in total.most_common():
        if kind.message is not None and shown[kind.outcome] < DISTINCT_MESSAGES:
            shown[kind.outcome] += 1
            kept[kind] += count
        else:
            kept[dataclasses.replace(kind, message=None)] += count
    return kept.most_common()
