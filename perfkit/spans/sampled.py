"""What the load generator records of a request that it asks the server to trace."""

from typing import NamedTuple


class SampledRequest(NamedTuple):
    """One traced request; its instants are of the load generator's monotonic clock, in nanoseconds.

    In open loops intended ≤ paced ≤ started ≤ finished; closed loops start a request when they intend to, and pace nothing.
    """

    trace_id: str
    """32 hexadecimal digits."""
    intended_ns: int
    """When the schedule wanted it sent; in closed loops, when it was started."""
    paced_ns: int
    """When the load generator came to send it, before the wait for a connection; 0 in closed loops."""
    started_ns: int
    finished_ns: int
    variant: int
    """The number of its inputs among those that the load point sends in turn."""
    is_ok: bool
    """Whether it was answered without an error."""

    @property
    def is_paced(self) -> bool:
        """Whether an open loop sent it, so that its total is the response time; otherwise the total is the service time."""
        return self.paced_ns != 0

    @property
    def total_ns(self) -> int:
        """The response time; in closed loops, the service time."""
        return self.finished_ns - (self.intended_ns if self.is_paced else self.started_ns)

    def shifted(self, by_ns: int) -> "SampledRequest":
        """The same on a clock that shows `by_ns` more."""
        return self._replace(
            intended_ns=self.intended_ns + by_ns,
            paced_ns=self.paced_ns + by_ns if self.is_paced else 0,
            started_ns=self.started_ns + by_ns,
            finished_ns=self.finished_ns + by_ns,
        )
