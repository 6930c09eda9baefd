"""The limit of frames that are not part of an answer, such as PING, SETTINGS, PRIORITY and WINDOW_UPDATE."""

from collections.abc import Callable

from perfkit.protocol.http2 import LimitError
from perfkit.units import NS_PER_S

_MAX_PER_S = 10_000
# servers may renew two windows for each frame of a request, reset each answered stream, and measure the path with PING
_PER_REQUEST, _PER_WRITTEN_FRAME = 10, 4


class ControlFrameLimit:
    """Counts control frames: 10,000 within a second, and more where requests account for them.

    The clock is read only beyond the first 10,000.
    """

    def __init__(self, now_ns: Callable[[], int]) -> None:
        self._now_ns = now_ns
        self._count = 0
        self._since_ns = now_ns()
        self._allowance = 0

    def add(self, requests: int, written_frames: int) -> None:
        """Counts one frame; `requests` and `written_frames` are the connection's totals. Raises LimitError."""
        self._count += 1
        if self._count <= _MAX_PER_S:
            return
        allowance = requests * _PER_REQUEST + written_frames * _PER_WRITTEN_FRAME
        now_ns = self._now_ns()
        if now_ns - self._since_ns >= NS_PER_S:
            self._count, self._since_ns, self._allowance = 1, now_ns, allowance
        elif self._count > _MAX_PER_S + allowance - self._allowance:
            raise LimitError(
                f"the server sent more than {_MAX_PER_S:,} control frames (such as PING, SETTINGS, WINDOW_UPDATE) within a second"
            )
