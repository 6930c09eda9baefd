import math

import pytest

from perfkit.perf_analyzer.number_text import (
    NotANumberError,
    OutOfRangeError,
    read_double,
    read_float,
    read_int,
    read_int_or_zero,
    read_long_or_zero,
    read_unsigned,
)


@pytest.mark.parametrize(
    ("read", "text", "value"),
    [
        (read_int, "1000.0", 1000),
        (read_int, " \t+5x", 5),
        (read_int, "-7", -7),
        (read_int, "1e3", 1),
        (read_int, "0x10", 0),
        (read_int, "0000000000000000000000000000000000000012", 12),
        (read_int, "2147483647", 2**31 - 1),
        (read_unsigned, "-1", 2**64 - 1),
        (read_unsigned, "18446744073709551615", 2**64 - 1),
        (read_int_or_zero, "abc", 0),
        (read_int_or_zero, "4294967297", 1),
        (read_int_or_zero, "2147483648", -(2**31)),
        (read_long_or_zero, "99999999999999999999", 2**63 - 1),
        (read_double, "1.5e3:", 1500.0),
        (read_double, "0x1.8p1", 3.0),
        (read_double, "-inf", -math.inf),
        (read_double, "0e-999", 0.0),
        (read_double, ".5", 0.5),
        (read_double, "5.", 5.0),
        (read_double, "1e", 1.0),
        (read_float, "0.1", 0.10000000149011612),
    ],
)
def test_numbers_are_read_as_by_the_c_library(read, text, value):
    assert read(text) == value


def test_a_text_that_is_not_a_number_by_name_is_one():
    assert math.isnan(read_double("NaN"))


@pytest.mark.parametrize("read", [read_int, read_unsigned, read_double, read_float])
@pytest.mark.parametrize("text", ["", "abc", "-", ".", "+ 5"])
def test_a_text_without_a_number_is_refused(read, text):
    with pytest.raises(NotANumberError):
        read(text)


@pytest.mark.parametrize(
    ("read", "text"),
    [
        (read_int, "2147483648"),
        (read_unsigned, "18446744073709551616"),
        (read_unsigned, "-18446744073709551616"),
        (read_double, "1e400"),
        (read_double, "1e-400"),
        (read_float, "1e39"),
        (read_float, "1e-50"),
    ],
)
def test_a_number_that_does_not_fit_is_out_of_range(read, text):
    with pytest.raises(OutOfRangeError):
        read(text)
