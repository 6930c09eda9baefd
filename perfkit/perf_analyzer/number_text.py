"""Numbers as std::stoi and its relatives read them: after blanks, from the start, whatever follows."""

import math
import re
import struct

_SPACE = r"[ \t\n\v\f\r]*"
_INTEGER = re.compile(_SPACE + r"([+-]?)([0-9]+)")
_DECIMAL = r"(?:[0-9]+(?:\.[0-9]*)?|\.[0-9]+)(?:e[+-]?[0-9]+)?"
_HEXADECIMAL = r"0x(?:[0-9a-f]+(?:\.[0-9a-f]*)?|\.[0-9a-f]+)(?:p[+-]?[0-9]+)?"
_FLOAT = re.compile(rf"{_SPACE}([+-]?)(?:({_HEXADECIMAL})|({_DECIMAL})|(inf(?:inity)?)|nan)", re.IGNORECASE)
_SMALLEST_DOUBLE, _SMALLEST_FLOAT = 2.0**-1022, 2.0**-126


class NotANumberError(ValueError):
    """The text begins with no number; std::invalid_argument."""


class OutOfRangeError(ValueError):
    """The number does not fit its type; std::out_of_range, with which perf_analyzer aborts."""


def read_int(text: str, bits: int = 32) -> int:
    """A signed integer, as std::stoi (32 bits) and std::stoll (64 bits) read it. Raises NotANumberError and OutOfRangeError."""
    value = _integer(text)
    if not -(1 << bits - 1) <= value < 1 << bits - 1:
        raise OutOfRangeError(text)
    return value


def read_unsigned(text: str) -> int:
    """An unsigned integer of 64 bits, as std::stoull reads it: -1 is the largest one. Raises NotANumberError and OutOfRangeError."""
    value = _integer(text)
    if abs(value) >= 1 << 64:
        raise OutOfRangeError(text)
    return value % (1 << 64)


def read_int_or_zero(text: str) -> int:
    """What std::atoi returns: 0 if there is no number, and the lowest 32 bits of one that is too long."""
    value = read_long_or_zero(text) % (1 << 32)
    return value - (1 << 32) if value >= 1 << 31 else value


def read_long_or_zero(text: str) -> int:
    """What std::atol returns: 0 if there is no number, and the nearest integer of 64 bits to one that is too long."""
    try:
        value = _integer(text)
    except NotANumberError:
        return 0
    return max(-(1 << 63), min(value, (1 << 63) - 1))


def read_double(text: str) -> float:
    """A number as std::stod reads it, also hexadecimal, infinite or not a number. Raises NotANumberError and OutOfRangeError."""
    value, is_finite, is_zero = _float(text)
    if is_finite and (math.isinf(value) or (abs(value) < _SMALLEST_DOUBLE and not is_zero)):
        raise OutOfRangeError(text)
    return value


def read_float(text: str) -> float:
    """A number of 32 bits as std::stof reads it. Raises NotANumberError and OutOfRangeError."""
    value, is_finite, is_zero = _float(text)
    if not is_finite:
        return value
    try:
        [rounded] = struct.unpack("f", struct.pack("f", value))
    except OverflowError:
        raise OutOfRangeError(text) from None
    if math.isinf(rounded) or (abs(rounded) < _SMALLEST_FLOAT and not is_zero):
        raise OutOfRangeError(text)
    return float(rounded)


def _integer(text: str) -> int:
    match = _INTEGER.match(text)
    if match is None:
        raise NotANumberError(text)
    digits = match[2].lstrip("0")[:32] or "0"  # 32 digits fit no type, and more take longer to read
    return int(match[1] + digits)


def _float(text: str) -> tuple[float, bool, bool]:
    """The value, whether its text stands for a finite one, and whether that is zero."""
    match = _FLOAT.match(text)
    if match is None:
        raise NotANumberError(text)
    sign, hexadecimal, decimal, infinity = match.groups()
    if hexadecimal:
        try:
            value = float.fromhex(hexadecimal)
        except OverflowError:
            value = math.inf
    elif decimal:
        value = float(decimal)
    else:
        value = math.inf if infinity else math.nan
    digits = re.split("[ep]" if hexadecimal is None else "p", (hexadecimal or decimal or "1").lower().removeprefix("0x"))[0]
    is_zero = not digits.strip("0.")
    return (-value if sign == "-" else value), bool(hexadecimal or decimal), is_zero
