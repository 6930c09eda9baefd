"""gRPC calls over HTTP/2, for both sides: statuses, the prefix of a message, time-outs and status texts; no I/O.

Source: gRPC's PROTOCOL-HTTP2.md and statuscodes.md.
"""

import enum
import urllib.parse

from perfkit.digits import whole_number

PREFIX_BYTES = 5
"""A flag that says whether the message is compressed, and the message's length."""
MAX_MESSAGE_BYTES = 2**32 - 1
_TIME_UNITS = (("n", 1), ("u", 1_000), ("m", 1_000_000), ("S", 1_000_000_000), ("M", 60 * 10**9), ("H", 3600 * 10**9))
_UNIT_NS = dict(_TIME_UNITS)
_MAX_TIMEOUT_DIGITS = 8
# what grpc-message carries as it is: printable ASCII but for the percent sign
_UNQUOTED = "".join(chr(code) for code in range(0x20, 0x7F) if code != ord("%"))


class Status(enum.IntEnum):
    """The status of a call."""

    OK = 0
    CANCELLED = 1
    UNKNOWN = 2
    INVALID_ARGUMENT = 3
    DEADLINE_EXCEEDED = 4
    NOT_FOUND = 5
    ALREADY_EXISTS = 6
    PERMISSION_DENIED = 7
    RESOURCE_EXHAUSTED = 8
    FAILED_PRECONDITION = 9
    ABORTED = 10
    OUT_OF_RANGE = 11
    UNIMPLEMENTED = 12
    INTERNAL = 13
    UNAVAILABLE = 14
    DATA_LOSS = 15
    UNAUTHENTICATED = 16


def message_prefix(length: int, *, is_compressed: bool = False) -> bytes:
    """What precedes a message of `length` bytes."""
    return (b"\x01" if is_compressed else b"\x00") + length.to_bytes(4)


def format_timeout(timeout_ns: int) -> str:
    """The value of `grpc-timeout`: at most eight digits in the smallest possible unit, rounded up."""
    for unit, unit_ns in _TIME_UNITS:
        count = -(-timeout_ns // unit_ns)
        if count < 10**_MAX_TIMEOUT_DIGITS:
            return f"{count}{unit}"
    return f"{10**_MAX_TIMEOUT_DIGITS - 1}H"


def parse_timeout(text: str) -> int | None:
    """The nanoseconds of a `grpc-timeout`; None if it is malformed."""
    number, unit_ns = whole_number(text[:-1]), _UNIT_NS.get(text[-1:])
    return None if unit_ns is None or number is None or len(text) > _MAX_TIMEOUT_DIGITS + 1 else number * unit_ns


def quote_message(text: str) -> str:
    """A status text as the value of `grpc-message`."""
    return urllib.parse.quote(text, safe=_UNQUOTED, errors="replace")  # a path may have bytes that are not UTF-8


def unquote_message(value: str) -> str:
    """The status text in a `grpc-message`."""
    return urllib.parse.unquote(value)
