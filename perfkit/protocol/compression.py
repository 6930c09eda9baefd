"""Compressed bodies: bounded decompression, and the choice of an encoding by Accept-Encoding."""

import zlib
from collections.abc import Sequence

from perfkit.errors import ErrorKind, ProtocolError
from perfkit.protocol.tensor import Buffer

ACCEPTED = ("gzip", "deflate")
_GZIP_OR_ZLIB = zlib.MAX_WBITS | 32  # HTTP's `deflate` is the zlib format; zlib detects which of the two it is


def decompress(body: bytes, encoding: str, limit_bytes: int) -> bytes:
    """The decompressed body; raises ProtocolError for an unsupported `encoding` or an invalid body."""
    encoding = encoding.strip()
    if encoding in ("", "identity"):
        return body
    if encoding not in ACCEPTED:
        raise ProtocolError("Unsupported compression type", ErrorKind.UNSUPPORTED)
    decompressor = zlib.decompressobj(_GZIP_OR_ZLIB)
    try:
        decompressed = decompressor.decompress(body, limit_bytes)
    except zlib.error as error:
        raise ProtocolError(f"the {encoding} body cannot be decompressed: {error}") from None
    if decompressor.unconsumed_tail:
        raise ProtocolError(f"the {encoding} body exceeds the maximum allowed input size of {limit_bytes} bytes when decompressed")
    if not decompressor.eof:
        raise ProtocolError(f"the {encoding} body ends too early")
    return decompressed


def choose_encoding(accept_encoding: str) -> str:
    """The encoding of an answer, chosen like Triton: the highest `q` of identity, deflate and gzip, the first one of equals.

    The default, also if the header names none of these, is `identity`.
    """
    best, best_quality = "identity", 0.0
    for part in accept_encoding.split(","):
        name, *parameters = (piece.strip().lower() for piece in part.split(";"))
        if name in ("identity", *ACCEPTED) and (quality := _quality(parameters)) > best_quality:
            best, best_quality = name, quality
    return best


def compress(buffers: Sequence[Buffer], encoding: str) -> bytes:
    """A body compressed with `encoding`, gzip or deflate (in the zlib format)."""
    compressor = zlib.compressobj(wbits=zlib.MAX_WBITS | 16 if encoding == "gzip" else zlib.MAX_WBITS)
    return b"".join([*(compressor.compress(buffer) for buffer in buffers), compressor.flush()])


def _quality(parameters: Sequence[str]) -> float:
    for parameter in parameters:
        key, _, value = parameter.partition("=")
        if key.strip() == "q":
            try:
                return float(value)
            except ValueError:
                return 0.0
    return 1.0
