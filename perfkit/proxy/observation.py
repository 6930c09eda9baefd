"""The process that observes the proxy's traffic, as the proxy sees it: what it is told waits here in bounded memory, and delays nobody."""

import asyncio
import collections
import contextlib
import dataclasses
from collections.abc import AsyncIterator, Callable
from typing import NamedTuple

from perfkit.errors import StorageError, UsageError
from perfkit.process.child import Child
from perfkit.process.start_module import start_module
from perfkit.proxy.messages import (
    FROM_OBSERVER,
    TO_OBSERVER,
    Closed,
    End,
    Failed,
    Opened,
    Received,
    Recorded,
    Recording,
    Skipped,
    Started,
    Unreadable,
)
from perfkit.target.address import Address

_STARTS_WITHIN_S, _ENDS_WITHIN_S = 60, 10
_TELLS_FOR_S = 1
# bytes that may wait for the observer, and those of them in large pieces: small ones, such as heads, show where the next request begins
_MOST_WAITING_BYTES, _MOST_LARGE_WAITING_BYTES = 2**26, 2**25
_LARGE_BYTES, _MESSAGE_BYTES = 2**13, 200


@dataclasses.dataclass(slots=True)
class _Told:
    """What the observer is told of a connection."""

    skipped_bytes: int = 0
    """Since it was last told any."""
    is_behind: bool = False


class _Waiting(NamedTuple):
    """A message that the observer has no room for yet, with the connection and the bytes of a client in it."""

    encoded: bytes
    told: _Told | None
    data_bytes: int


class Observation:
    """Tells the observer what clients send, and counts what it is not told."""

    def __init__(self, child: Child, on_unreadable: Callable[[str, str], None], on_failure: Callable[[str], None]) -> None:
        self.skipped_bytes = 0
        """Bytes of clients that the observer was not told, because too many were waiting or it could not read their connection."""
        self.behind = 0
        """Connections of which it was not told all, because too many bytes were waiting."""
        self._child, self._on_unreadable, self._on_failure = child, on_unreadable, on_failure
        self._waiting: collections.deque[_Waiting] = collections.deque()
        self._waiting_bytes = 0
        self._told: dict[int, _Told] = {}  # of the open connections that are observed
        self._recorded: asyncio.Future[Recorded] = asyncio.get_running_loop().create_future()
        self._reading = asyncio.ensure_future(self._read())
        child.call_when_not_full(self._send_waiting)

    def open(self, connection: int, listen: Address) -> None:
        """A client has connected."""
        if self._waiting_bytes + _MESSAGE_BYTES > _MOST_WAITING_BYTES:
            self.behind += 1
            return
        self._told[connection] = _Told()
        self._tell(Opened(connection, listen.protocol == "grpc", str(listen)))

    def receive(self, connection: int, data: bytes, read_ns: int, *, is_first: bool) -> None:
        """Bytes of a client were passed on."""
        told = self._told.get(connection)
        most_bytes = _MOST_LARGE_WAITING_BYTES if len(data) >= _LARGE_BYTES else _MOST_WAITING_BYTES
        if told is not None and self._waiting_bytes + len(data) <= most_bytes:
            self._tell_skipped(connection, told)
            self._tell(Received(connection, read_ns, is_first, data), told, len(data))
        else:
            self._skip(told, len(data))

    def close(self, connection: int) -> None:
        """A connection has ended."""
        if (told := self._told.pop(connection, None)) is not None:
            self._tell_skipped(connection, told)
            self._tell(Closed(connection))

    async def end(self) -> Recorded:
        """Ends the observation; raises StorageError if what was recorded remains unknown. What waits then for longer than a second is not told."""
        if self._waiting:
            await asyncio.wait([self._recorded], timeout=_TELLS_FOR_S)
        for waiting in self._waiting:
            self._skip(waiting.told, waiting.data_bytes)
        self._waiting.clear()
        self._tell(End())
        try:
            async with asyncio.timeout(_ENDS_WITHIN_S):
                return await asyncio.shield(self._recorded)
        except TimeoutError:
            raise StorageError(
                f"the recording did not end within {_ENDS_WITHIN_S} s: the trace ends with the last row that was written"
            ) from None
        finally:
            self._reading.cancel()

    def _tell_skipped(self, connection: int, told: _Told) -> None:
        if told.skipped_bytes:
            self._tell(Skipped(connection, told.skipped_bytes))
            told.skipped_bytes = 0

    def _skip(self, told: _Told | None, size_bytes: int) -> None:
        self.skipped_bytes += size_bytes
        if told is not None and size_bytes:
            self.behind += not told.is_behind
            told.skipped_bytes, told.is_behind = told.skipped_bytes + size_bytes, True

    def _tell(self, message: object, told: _Told | None = None, data_bytes: int = 0) -> None:
        encoded = TO_OBSERVER.encoded(message)
        if self._child.is_full or self._waiting:
            self._waiting.append(_Waiting(encoded, told, data_bytes))
            self._waiting_bytes += len(encoded) + _MESSAGE_BYTES
        else:
            self._child.send_frame(encoded)

    def _send_waiting(self) -> None:
        while self._waiting and not self._child.is_full:
            encoded = self._waiting.popleft().encoded
            self._waiting_bytes -= len(encoded) + _MESSAGE_BYTES
            self._child.send_frame(encoded)

    async def _read(self) -> None:
        try:
            while not self._recorded.done():
                match FROM_OBSERVER.decoded(await self._child.receive_frame()):
                    case Unreadable(connection, listen, reason):
                        self._told.pop(connection, None)
                        self._on_unreadable(listen, reason)
                    case Failed(reason):
                        self._on_failure(reason)
                    case Recorded() as recorded:
                        self._recorded.set_result(recorded)
        except EOFError:
            how = await self._child.wait_for_end(_ENDS_WITHIN_S)
            self._told.clear()
            self._on_failure(f"the process that records {how}")
            self._recorded.set_exception(StorageError(f"the process that records {how}: the trace ends with the last row that was written"))
            self._recorded.exception()  # also where nobody asks for it


@contextlib.asynccontextmanager
async def observing(
    recording: Recording, on_unreadable: Callable[[str, str], None], on_failure: Callable[[str], None]
) -> AsyncIterator[Observation]:
    """The observation for the length of the block; raises UsageError if the trace cannot be written, StorageError if nobody can."""
    async with start_module("perfkit.proxy.observer_process") as child:
        child.send_frame(TO_OBSERVER.encoded(recording))
        try:
            async with asyncio.timeout(_STARTS_WITHIN_S):
                started = FROM_OBSERVER.decoded(await child.receive_frame())
        except TimeoutError:
            raise StorageError(f"the process that records did not start within {_STARTS_WITHIN_S} s") from None
        except EOFError:
            raise StorageError(f"the process that records {await child.wait_for_end(_ENDS_WITHIN_S)}") from None
        assert isinstance(started, Started)
        if started.error:
            raise UsageError(started.error)
        yield Observation(child, on_unreadable, on_failure)
