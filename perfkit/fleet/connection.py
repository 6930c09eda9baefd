"""A connection between the driver of a fleet and a machine: a TCP stream, with TLS or without, that carries messages in sealed frames.

A message is plain data of a declared type, see `messages` and `encoding`. It is not read before its seal shows that a holder of the token has sent it.
"""

import asyncio
import contextlib
import secrets
import ssl
from collections.abc import Callable
from typing import Any

from perfkit.errors import MeasurementError, PerfkitError
from perfkit.fleet.messages import OF_DRIVER, OF_MACHINE
from perfkit.fleet.token import LENGTH_BYTES, MAC_BYTES, MAGIC, NONCE_BYTES, Sealer, Side, is_proof, proof
from perfkit.process.encoding import Encoding, MalformedError
from perfkit.units import format_bytes

_HANDSHAKE_WITHIN_S, _CLOSED_WITHIN_S = 10, 2
_READ_AHEAD_BYTES, _LARGE_BYTES = 2**20, 2**18
_SHOWS_EVERY_S = 0.5
_ENCODINGS: dict[Side, Encoding] = {"driver": OF_DRIVER, "machine": OF_MACHINE}
LONGEST_BYTES: dict[Side, int] = {"driver": 2**30, "machine": 2**28}
"""The longest message that each side sends. The driver's of a load point has all of its input data; a machine's has a recording, of which an hour by
16 workers takes 30 MB."""
_IS_KNOWN, _IS_UNKNOWN = b"1", b"0"


class JoinError(PerfkitError):
    """The other side does not know the token, or does not speak this protocol."""


class UnknownMessageError(PerfkitError):
    """The other side sent a message that this version of perfkit cannot read; the text follows who it is."""


class LongMessageError(MeasurementError):
    """A message that is longer than one may be."""


class Connection:
    """One side of an open connection."""

    def __init__(self, side: Side, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, sealer: Sealer, opener: Sealer) -> None:
        self._side: Side = side
        self._other: Side = _other(side)
        self._reader, self._writer, self._sealer, self._opener = reader, writer, sealer, opener

    def send(self, message: object) -> None:
        """Sends a message; after the connection is lost, it is discarded. Raises LongMessageError."""
        if self._writer.is_closing():
            return
        body, longest = _ENCODINGS[self._side].encoded(message), LONGEST_BYTES[self._side]
        if len(body) > longest:
            raise LongMessageError(
                f"a message between the driver and a machine would take {format_bytes(len(body))}, and {format_bytes(longest)} is the most: "
                "give fewer or smaller inputs, or measure shorter load points"
            )
        self._writer.write(self._sealer.seal(body))

    async def receive(
        self, silent_for_s: float | None = None, on_part: Callable[[], None] = lambda: None, longest_bytes: int | None = None
    ) -> Any:
        """The next message, however long it takes as long as parts of it come; `on_part` is called after each, and while a long message is decoded.

        Raises EOFError at the end of the connection and after a forged frame, TimeoutError when nothing has come for `silent_for_s`, and
        UnknownMessageError for a message that is longer than `longest_bytes`, by default `LONGEST_BYTES`.
        """
        try:
            length = int.from_bytes(await self._read(LENGTH_BYTES, silent_for_s), "big")
            longest = longest_bytes or LONGEST_BYTES[self._other]
            if length > longest:  # who has sent it is known only at its end
                raise UnknownMessageError(f"announced a message of {format_bytes(length)}, and {format_bytes(longest)} is the most")
            body = await self._read(length, silent_for_s, on_part)
            mac = await self._read(MAC_BYTES, silent_for_s)
        except TimeoutError:
            raise
        except (OSError, MemoryError):
            raise EOFError from None
        if not self._opener.is_next(body, mac):
            raise EOFError
        try:
            if length < _LARGE_BYTES:
                return _ENCODINGS[self._other].decoded(body)
            # in a thread, because the clocks are compared meanwhile, and the other side must not take this one for lost
            reading = asyncio.ensure_future(asyncio.to_thread(_ENCODINGS[self._other].decoded, body))
            while not (await asyncio.wait([reading], timeout=_SHOWS_EVERY_S))[0]:
                on_part()
            return reading.result()
        except MalformedError:
            raise UnknownMessageError("sent what this version of perfkit cannot read: install the same version on both") from None

    async def _read(self, count: int, silent_for_s: float | None, on_part: Callable[[], None] = lambda: None) -> bytearray:
        """So many bytes; see `receive`."""
        read = bytearray()
        while len(read) < count:
            async with asyncio.timeout(silent_for_s):
                part = await self._reader.read(count - len(read))
            if not part:
                raise EOFError
            read += part
            if len(read) < count:
                on_part()
        return read

    async def close(self) -> None:
        """Closes it after what was sent is written, or when that takes too long."""
        self._writer.close()
        try:
            async with asyncio.timeout(_CLOSED_WITHIN_S):
                await self._writer.wait_closed()
        except OSError:  # TimeoutError is one; or the other side was faster
            self.abort()

    def abort(self) -> None:
        """Closes it at once; what was sent and not yet written is lost."""
        self._writer.transport.abort()


async def join(host: str, port: int, token: str, tls: ssl.SSLContext | None) -> Connection:
    """Connects a machine to a driver; raises OSError if that fails, and JoinError if the driver has another token."""
    reader, writer = await asyncio.open_connection(host, port, ssl=tls, limit=_READ_AHEAD_BYTES)
    try:
        async with asyncio.timeout(_HANDSHAKE_WITHIN_S):
            return await _prove(reader, writer, token)
    except (asyncio.IncompleteReadError, TimeoutError):
        writer.close()
        raise JoinError("no perfkit that drives a fleet listens there, or one with TLS") from None
    except BaseException:
        writer.close()
        raise


async def _prove(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, token: str) -> Connection:
    """The machine's side of the handshake."""
    if await reader.readexactly(len(MAGIC)) != MAGIC:
        raise JoinError("no perfkit that drives a fleet of this version listens there")
    driver_nonce, machine_nonce = await reader.readexactly(NONCE_BYTES), secrets.token_bytes(NONCE_BYTES)
    writer.write(machine_nonce + proof(token, "machine", driver_nonce, machine_nonce))
    is_known = await reader.readexactly(1) == _IS_KNOWN
    if not is_known or not is_proof(await reader.readexactly(MAC_BYTES), token, "driver", driver_nonce, machine_nonce):
        raise JoinError("the driver has another token")
    return _connection("machine", reader, writer, token, driver_nonce, machine_nonce)


async def accept(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, token: str) -> Connection:
    """The driver's side of `join`; raises JoinError for a caller without the token, whose connection is then closed."""
    try:
        async with asyncio.timeout(_HANDSHAKE_WITHIN_S):
            return await _examine(reader, writer, token)
    except (asyncio.IncompleteReadError, TimeoutError, OSError, JoinError) as error:
        writer.close()
        with contextlib.suppress(OSError):
            await writer.wait_closed()
        raise error if isinstance(error, JoinError) else JoinError("it did not join") from None
    except BaseException:
        writer.close()
        raise


async def _examine(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, token: str) -> Connection:
    """The driver's side of the handshake."""
    driver_nonce = secrets.token_bytes(NONCE_BYTES)
    writer.write(MAGIC + driver_nonce)
    machine_nonce, given = await reader.readexactly(NONCE_BYTES), await reader.readexactly(MAC_BYTES)
    if not is_proof(given, token, "machine", driver_nonce, machine_nonce):
        writer.write(_IS_UNKNOWN)
        raise JoinError("it has another token")
    writer.write(_IS_KNOWN + proof(token, "driver", driver_nonce, machine_nonce))
    return _connection("driver", reader, writer, token, driver_nonce, machine_nonce)


def _connection(
    side: Side, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, token: str, driver_nonce: bytes, machine_nonce: bytes
) -> Connection:
    sealer, opener = (Sealer(token, sender, driver_nonce, machine_nonce) for sender in (side, _other(side)))
    return Connection(side, reader, writer, sealer, opener)


def _other(side: Side) -> Side:
    return "driver" if side == "machine" else "machine"
