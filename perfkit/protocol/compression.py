"""Compressed bodies: bounded decompression, and the choice of an encoding by Accept-Encoding."""

import zlib
from collections.abc import Sequence

from perfkit.errors import ErrorKind, ProtocolError
from perfkit.protocol.tensor import Buffer

ACCEPTED = ("gzip", "deflate")
_INPUT_STEP, _OUTPUT_STEP = 2**16, 2**20
_GZIP_OR_ZLIB = zlib.MAX_WBITS | 32  # HTTP's `deflate` is the zlib format; zlib detects which of the two it is


class BodyTooLargeError(ProtocolError):
    """A body that exceeds its limit when decompressed."""


def decompress(body: bytes, encoding: str, limit_bytes: int) -> bytes:
    """The decompressed body; raises ProtocolError for an unsupported `encoding` or an invalid body, BodyTooLargeError beyond the limit."""
    encoding = encoding.strip()
    if encoding in ("", "identity"):
        return body
    if encoding not in ACCEPTED:
        raise ProtocolError("Unsupported compression type", ErrorKind.UNSUPPORTED)
    try:
        decompressor = zlib.decompressobj(_GZIP_OR_ZLIB)
        first = decompressor.decompress(body, min(_OUTPUT_STEP, limit_bytes))
        if decompressor.eof:
            return first
        _check_inflated_size(body, encoding, limit_bytes)
        return zlib.decompressobj(_GZIP_OR_ZLIB).decompress(body)
    except zlib.error as error:
        raise ProtocolError(f"the {encoding} body cannot be decompressed: {error}") from None


def _check_inflated_size(body: bytes, encoding: str, limit_bytes: int) -> None:
    """Inflates a body in steps that are forgotten, because memory once taken for a bomb would not be given back."""
    decompressor, view, size_bytes = zlib.decompressobj(_GZIP_OR_ZLIB), memoryview(body), 0
    for start in range(0, len(view), _INPUT_STEP):
        rest: Buffer = view[start : start + _INPUT_STEP]
        while not decompressor.eof:
            inflated_bytes = len(decompressor.decompress(rest, _OUTPUT_STEP))
            size_bytes += inflated_bytes
            if size_bytes > limit_bytes:
                raise BodyTooLargeError(
                    f"the {encoding} body exceeds the maximum allowed input size of {limit_bytes} bytes when decompressed"
                )
            rest = decompressor.unconsumed_tail
            if not rest and inflated_bytes < _OUTPUT_STEP:
                break
    if not decompressor.eof:
        raise ProtocolError(f"the {encoding} body ends too early")


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
