"""Compressed messages, inflated here and up to a limit: grpcio would inflate each one up to `--max-body`, and keep that memory.

grpcio hands over the bytes as they came, but not the encoding of the call. The first bytes tell it: no protobuf message can begin
like gzip, whose first byte would be a field of a wire type that does not exist, and no request begins like zlib, with field 15.
"""

from collections.abc import AsyncIterator

from perfkit.protocol.compression import decompress

MAX_INFLATED_BYTES = 2**26
"""Like that of compressed HTTP bodies."""
_ENCODINGS = {b"\x1f\x8b": "gzip", b"\x78\x01": "deflate", b"\x78\x5e": "deflate", b"\x78\x9c": "deflate", b"\x78\xda": "deflate"}


def inflate(message: bytes, limit_bytes: int) -> bytes:
    """The message, inflated if it is compressed; raises BodyTooLargeError beyond the limit, ProtocolError if it is damaged."""
    encoding = _ENCODINGS.get(message[:2])
    return message if encoding is None else decompress(message, encoding, min(limit_bytes, MAX_INFLATED_BYTES))


async def inflate_all(messages: AsyncIterator[bytes], limit_bytes: int) -> AsyncIterator[bytes]:
    """The messages of a stream; raises like `inflate`."""
    async for message in messages:
        yield inflate(message, limit_bytes)
