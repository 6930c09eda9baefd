"""Reads calls that have arrived whole, which need no stream if they are answered at once; no I/O."""

import struct
from collections.abc import Callable
from typing import TypeVar

from perfkit.protocol import http2
from perfkit.protocol.grpc_call import PREFIX_BYTES
from perfkit.protocol.tensor import Buffer

_Headers = TypeVar("_Headers")

_HEAD_BYTES, _LAST_ID, _HEADERS, _END_HEADERS = http2.HEAD_BYTES, http2.LAST_STREAM_ID, http2.HEADERS, http2.END_HEADERS
# the head of a data frame that ends its stream and holds one message, without the length and the stream's id, and of the message
_DATA_HEAD = bytes((http2.DATA, http2.END_STREAM))
_MESSAGE_HEAD = struct.Struct(">HB2sI?I")
_read_message_head, _MESSAGE_HEAD_BYTES = _MESSAGE_HEAD.unpack_from, _MESSAGE_HEAD.size


def read_whole_call(
    data: Buffer, position: int, last_id: int, look_up: Callable[[bytes], _Headers | None]
) -> tuple[int, _Headers, int, int] | None:
    """The call whose frames begin at `position`: the id of its stream, its headers, and where its message begins and ends, as its frames do.

    None unless the frames are all there and in their plainest form: a new stream after `last_id`, a header block that `look_up` knows, and one data
    frame with the only message, not compressed.
    """
    first, end = position + _HEAD_BYTES, len(data)
    if first > end:
        return None
    upper, lower, kind, flags, stream_id = http2.read_head(data, position)  # type: ignore[arg-type]  # takes any buffer
    stop = first + (upper << 8 | lower)
    message_first = stop + _MESSAGE_HEAD_BYTES
    if kind != _HEADERS or flags != _END_HEADERS or message_first > end or not last_id < stream_id <= _LAST_ID or stream_id % 2 == 0:
        return None
    headers = look_up(bytes(data[first:stop]))
    if headers is None:
        return None
    upper, lower, head, data_id, is_compressed, message_bytes = _read_message_head(data, stop)
    message_stop = message_first + message_bytes
    if head != _DATA_HEAD or data_id != stream_id or (upper << 8 | lower) != PREFIX_BYTES + message_bytes:
        return None
    if is_compressed or message_stop > end:
        return None
    return stream_id, headers, message_first, message_stop
