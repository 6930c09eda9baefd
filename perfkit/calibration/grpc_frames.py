"""HTTP/2 frames of one stream as bytes made ahead of time, for whatever number the stream will have."""

from collections.abc import Sequence

from perfkit.protocol import http2

Frame = tuple[int, int, bytes]
"""Kind, flags, payload."""


def stream_pieces(frames: Sequence[Frame]) -> tuple[bytes, ...]:
    """The frames' bytes without their stream's number: `number.join(pieces)`, of four bytes, puts it in each."""
    starts = [http2.frame_head(len(payload), kind, flags, 0)[:5] for kind, flags, payload in frames]
    payloads = [payload for _, _, payload in frames]
    return (starts[0], *(payload + start for payload, start in zip(payloads, starts[1:], strict=False)), payloads[-1])


def data_frames(data: bytes) -> list[Frame]:
    """Data that ends a stream, in as many frames as it takes."""
    size = http2.DEFAULT_FRAME_BYTES
    parts = [data[first : first + size] for first in range(0, len(data), size)] or [b""]
    return [(http2.DATA, http2.END_STREAM if number == len(parts) else 0, part) for number, part in enumerate(parts, 1)]
