"""How long connections took to open, in bounded memory."""

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from perfkit.stats.buckets import BucketCounts

_MAX_LISTED = 4096


class ConnectTimes:
    """The times from the first attempt to the ready connection: resolution of the name, TCP, TLS, and HTTP/2's settings."""

    def __init__(self, counted: "Sequence[BucketCounts]" = ()) -> None:
        self._listed_ns: list[int] = []
        self._counted = counted

    def add(self, time_ns: int) -> None:
        """Adds one connection."""
        self._listed_ns.append(time_ns)
        if len(self._listed_ns) >= _MAX_LISTED:
            self._counted = [self.counts()]
            self._listed_ns = []

    def counts(self) -> "BucketCounts":
        """All of them, as an HDR histogram's counts."""
        from perfkit.stats.buckets import BucketCounts  # imports NumPy, which commands that connect once do without

        return BucketCounts.merged((*self._counted, BucketCounts.of(self._listed_ns)))

    @classmethod
    def merged(cls, parts: "Iterable[ConnectTimes]") -> "ConnectTimes":
        """Those of several transports together."""
        return cls([counts for part in parts if (counts := part.counts()).count])
