"""The limit of HTTP/2 frames that are not part of a request or an answer, such as PING, SETTINGS, PRIORITY and WINDOW_UPDATE."""

from collections.abc import Callable

from perfkit.protocol.http2 import LimitError
from perfkit.units import NS_PER_S

MAX_CONTROL_FRAMES_PER_S = 10_000
# servers may renew two windows for each packet of a request, reset each answered stream, and measure the path with PING
_PER_REQUEST, _BYTES_PER_FRAME = 10, 512
BYTES_OF_A_REQUEST = _PER_REQUEST * _BYTES_PER_FRAME
"""Written bytes that allow as many control frames as a request does."""


class ControlFrameLimit:
    """Control frames within a second: 10,000, and more where requests account for them.

    The session counts them and asks only when the count exceeds the number that it was told.
    """

    def __init__(self, now_ns: Callable[[], int], peer: str = "server") -> None:
        """`peer` is who sends the frames, for the error message."""
        self._now_ns, self._peer = now_ns, peer
        self._since_ns = now_ns()
        self._count = self._allowance = 0  # at that time

    def raised(self, count: int, requests: int, written_bytes: int) -> int:
        """The new maximum; the arguments are the connection's totals so far. Raises LimitError if `count` exceeds it."""
        allowance, now_ns = requests * _PER_REQUEST + written_bytes // _BYTES_PER_FRAME, self._now_ns()
        if now_ns - self._since_ns >= NS_PER_S:
            self._count, self._since_ns, self._allowance = count - 1, now_ns, allowance
        maximum = self._count + MAX_CONTROL_FRAMES_PER_S + allowance - self._allowance
        if count > maximum:
            kinds = "PING, SETTINGS, WINDOW_UPDATE and the like"
            raise LimitError(f"the {self._peer} sent more than {MAX_CONTROL_FRAMES_PER_S:,} control frames ({kinds}) within a second")
        return maximum
