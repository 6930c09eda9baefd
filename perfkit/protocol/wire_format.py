"""The top level of protobuf's wire format: the fields of a message, and the places of large ones, found without copying."""

from collections.abc import Iterator
from typing import NamedTuple

from perfkit.errors import ErrorKind, ProtocolError
from perfkit.protocol.tensor import Buffer

_MAX_VARINT_BYTES = 10
_MAX_FIELDS = 1000  # beyond it, protobuf is faster


class Field(NamedTuple):
    """One field: its tag, and where it begins, where its content does, and where both end."""

    tag: int
    start: int
    content: int
    end: int


def fields(encoded: Buffer) -> Iterator[Field]:
    """The fields of a message in their order.

    Raises ProtocolError for a message that is damaged, has groups, or has tags or lengths longer than necessary.
    """
    place, size = 0, len(encoded)
    while place < size:
        start = place
        tag, content = _shortest_varint(encoded, place)
        match tag & 7:
            case 0:
                place = _varint(encoded, content)[1]
            case 1:
                place = content + 8
            case 2:
                length, content = _shortest_varint(encoded, content)
                place = content + length
            case 5:
                place = content + 4
            case _:
                raise _irregular(start)
        if place > size or not 1 << 3 <= tag < 1 << 32:
            raise _irregular(start)
        yield Field(tag, start, content, place)


def split(encoded: Buffer, tag: int) -> tuple[bytes, list[memoryview]]:
    """A message without the fields of one length-delimited tag, and the contents of those fields as views of `encoded`.

    If there are none, or the message is not one that `fields` reads, it is returned whole.
    """
    view, contents, parts, kept = memoryview(encoded), list[memoryview](), list[memoryview](), 0
    try:
        for count, field in enumerate(fields(encoded)):
            if count == _MAX_FIELDS:
                return bytes(encoded), []
            if field.tag == tag:
                parts.append(view[kept : field.start])
                contents.append(view[field.content : field.end])
                kept = field.end
    except ProtocolError:
        return bytes(encoded), []
    return b"".join((*parts, view[kept:])), contents


def field_head(tag: int, length: int) -> bytes:
    """What precedes the content of a length-delimited field."""
    return _encoded_varint(tag) + _encoded_varint(length)


def _varint(encoded: Buffer, place: int) -> tuple[int, int]:
    """The number at `place`, and the place after it."""
    value = 0
    for index, byte in enumerate(encoded[place : place + _MAX_VARINT_BYTES]):
        value |= (byte & 0x7F) << 7 * index
        if byte < 0x80:
            return value, place + index + 1
    raise _irregular(place)


def _shortest_varint(encoded: Buffer, place: int) -> tuple[int, int]:
    value, end = _varint(encoded, place)
    if end > place + 1 and not encoded[end - 1]:
        raise _irregular(place)
    return value, end


def _encoded_varint(number: int) -> bytes:
    parts = bytearray()
    while number >= 0x80:
        parts.append(number & 0x7F | 0x80)
        number >>= 7
    parts.append(number)
    return bytes(parts)


def _irregular(place: int) -> ProtocolError:
    return ProtocolError(f"the message has no regular field at byte {place}", ErrorKind.INTERNAL)
