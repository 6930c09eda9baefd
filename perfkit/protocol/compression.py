"""Compressed bodies: requests unpacked within bounds, replies packed as their readers ask."""

import zlib
from collections.abc import Sequence

from perfkit.errors import ErrorKind, ProtocolError
from perfkit.protocol.tensor import Buffer

ACCEPTED = ("gzip", "deflate")
_GZIP_OR_ZLIB = zlib.MAX_WBITS | 32  # `deflate` in HTTP means the zlib format; the first bytes tell the two apart


def decompress(body: bytes, encoding: str, limit_bytes: int) -> bytes:
    """The body behind a Content-Encoding; raises ProtocolError for other encodings and for what cannot be unpacked."""
    encoding = encoding.strip()
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


def choose_encoding(accept_encoding: str) -> str:
    """What a reply is packed with, as Triton chooses: the highest `q` among identity, deflate and gzip, of equals the first.

    An absent or empty header, and one that names nothing of these, is `identity`.
    """
    best, best_quality = "identity", 0.0
    for part in accept_encoding.split(","):
        name, *parameters = (piece.strip().lower() for piece in part.split(";"))
        if name in ("identity", *ACCEPTED) and (quality := _quality(parameters)) > best_quality:
            best, best_quality = name, quality
    return best


def compress(buffers: Sequence[Buffer], encoding: str) -> bytes:
    """A body packed as gzip or deflate, the latter in the zlib format."""
    packing = zlib.compressobj(wbits=zlib.MAX_WBITS | 16 if encoding == "gzip" else zlib.MAX_WBITS)
    return b"".join([*(packing.compress(buffer) for buffer in buffers), packing.flush()])


def _quality(parameters: Sequence[str]) -> float:
    for parameter in parameters:
        key, _, value = parameter.partition("=")
        if key.strip() == "q":
            try:
                return float(value)
            except ValueError:
                return 0.0
    return 1.0
