"""Targets that cannot be reached: what is said of it, and how soon it is tried again."""

import ssl

from perfkit.errors import TargetError
from perfkit.target.address import Address
from perfkit.transport.tls import describe_tls_error

_FIRST_PAUSE_S, _LAST_PAUSE_S = 0.01, 1.0


class Backoff:
    """The pause before the next attempt to connect: 10 ms after a failure, doubled by each that follows, 1 s at most."""

    def __init__(self) -> None:
        self._failures = 0

    @property
    def is_failing(self) -> bool:
        """Whether the last attempt failed."""
        return self._failures > 0

    def fail(self) -> float:
        """Notes a failure, and gives the pause behind it in seconds."""
        self._failures += 1
        return min(_FIRST_PAUSE_S * 2.0 ** min(self._failures - 1, 10), _LAST_PAUSE_S)

    def succeed(self) -> None:
        """Notes a success: the next failure is the first one."""
        self._failures = 0


def unreachable(address: Address, error: OSError) -> TargetError:
    """The sentence for a connection that could not be opened."""
    if isinstance(error, ssl.SSLError):
        return TargetError(f"{address} cannot be reached: {describe_tls_error(error)}.")
    reason = "no answer within the time-out" if isinstance(error, TimeoutError) else (error.strerror or str(error))
    return TargetError(f"{address} cannot be reached: {reason}. Is the server running, and is this its address?")
