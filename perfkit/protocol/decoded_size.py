"""How many objects an answer would become, counted before it is decoded: two bytes of JSON or protobuf may take a hundred in memory.

Answers below 1 MiB are not counted, since they cannot take much.
"""

import contextlib

from perfkit.errors import AnswerTooLargeError

_UNCOUNTED_BYTES = 1 << 20
_MIN_JSON_VALUES, _BYTES_PER_JSON_VALUE = 2_000_000, 16
_MIN_FIELDS, _BYTES_PER_FIELD = 500_000, 64
_OUTPUTS, _SHAPE, _CONTENTS = 5, 3, 5  # fields of ModelInferResponse and of its outputs
_PACKED_INTEGERS = range(1, 6)  # fields of InferTensorContents
_INTEGERS_PER_FIELD = 16


def check_json_values(text: bytes, limit_bytes: int) -> None:
    """Raises AnswerTooLargeError for more than 2 million values, or one for each 16 B of the limit of answers if that is more."""
    if len(text) <= _UNCOUNTED_BYTES:
        return
    values = text.count(b",") + text.count(b"[") + text.count(b"{")
    maximum = max(_MIN_JSON_VALUES, limit_bytes // _BYTES_PER_JSON_VALUE)
    if values > maximum:
        raise AnswerTooLargeError(f"the answer holds about {values:,} JSON values, more than {maximum:,}")


def check_protobuf_fields(encoded: bytes, limit_bytes: int) -> None:
    """Raises AnswerTooLargeError for a `ModelInferResponse` of more than 500,000 fields, or one for each 64 B of the limit of answers."""
    if len(encoded) <= _UNCOUNTED_BYTES:
        return
    maximum = max(_MIN_FIELDS, limit_bytes // _BYTES_PER_FIELD)
    with contextlib.suppress(IndexError):  # cut off: the parser says so
        _count(encoded, 0, len(encoded), 0, maximum, ())


def check_entries(encoded: bytes, maximum: int) -> None:
    """Raises AnswerTooLargeError for a protobuf message of more than `maximum` fields, without those of its fields."""
    with contextlib.suppress(IndexError):
        _count(encoded, 0, len(encoded), 0, maximum, (-1,))


def _count(encoded: bytes, place: int, end: int, fields: int, maximum: int, path: tuple[int, ...]) -> int:
    """Adds the fields from `place` to `end` to `fields`; `path` is that of the message in its answer."""
    while place < end:
        tag, place = _varint(encoded, place)
        number, kind, length = tag >> 3, tag & 7, 0
        if kind == 2:
            length, place = _varint(encoded, place)
            if (path, number) in (((), _OUTPUTS), ((_OUTPUTS,), _CONTENTS)):
                fields = _count(encoded, place, min(place + length, end), fields, maximum, (*path, number))
            elif (path, number) == ((_OUTPUTS,), _SHAPE):
                fields += length
            elif path == (_OUTPUTS, _CONTENTS) and number in _PACKED_INTEGERS:
                fields += length // _INTEGERS_PER_FIELD
            place += length
        elif kind == 0:
            _, place = _varint(encoded, place)
        else:
            place += 8 if kind == 1 else 4
        fields += 1
        if fields > maximum:
            raise AnswerTooLargeError(f"the answer holds more than {maximum:,} fields")
    return fields


def _varint(encoded: bytes, place: int) -> tuple[int, int]:
    """The number at `place`, and the place after it; raises IndexError if it is cut off."""
    value = shift = 0
    while True:
        byte = encoded[place]
        value |= (byte & 0x7F) << shift
        place, shift = place + 1, shift + 7
        if byte < 0x80:
            return value, place
        if shift > 63:
            raise IndexError
