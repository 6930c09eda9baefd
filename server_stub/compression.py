"""Compressed request bodies, unpacked within bounds."""

import zlib

from perfkit.errors import ErrorKind, ProtocolError

ACCEPTED = ("gzip", "deflate")
_GZIP_OR_ZLIB = zlib.MAX_WBITS | 32  # `deflate` in HTTP means the zlib format; the first bytes tell the two apart


def decompress(body: bytes, encoding: str, limit_bytes: int) -> bytes:
    """The body behind a Content-Encoding; raises ProtocolError for other encodings and for what cannot be unpacked."""
    encoding = encoding.strip().lower()
    if encoding in ("", "identity"):
        return body
    if encoding not in ACCEPTED:
        raise ProtocolError("Unsupported compression type", ErrorKind.UNSUPPORTED)
    unpacking = zlib.decompressobj(_GZIP_OR_ZLIB)
    try:
        unpacked = unpacking.decompress(body, limit_bytes)
    except zlib.error as error:
        raise ProtocolError(f"the {encoding} body cannot be decompressed: {error}") from None
    if unpacking.unconsumed_tail:
        raise ProtocolError(f"the {encoding} body exceeds the maximum allowed input size of {limit_bytes} bytes when decompressed")
    if not unpacking.eof:
        raise ProtocolError(f"the {encoding} body ends too early")
    return unpacked
