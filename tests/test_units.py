"""Durations, rates, sizes and shares: tables of what people write, and properties against exact arithmetic."""

import decimal
import re
from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from perfkit import units

NS_PER_UNIT = {"ns": 1, "us": 10**3, "µs": 10**3, "ms": 10**6, "s": 10**9, "m": 60 * 10**9, "h": 3600 * 10**9}
DECIMALS = st.decimals(min_value=0, max_value=10**9, allow_nan=False, allow_infinity=False, places=6)
NOT_QUANTITIES: list[object] = [
    "",
    "ms",
    "s30",
    "1 2s",
    "1,5s",
    "1_000",
    "--1",
    "0x10",
    "nan",
    "inf",
    "1e",
    "1e400",
    "9" * 400,
    None,
    True,
    False,
    [],
    b"1s",
]


@pytest.mark.parametrize(
    ("text", "ns"),
    [
        ("1ns", 1),
        ("250us", 250_000),
        ("250µs", 250_000),
        ("10ms", 10_000_000),
        ("30s", 30_000_000_000),
        ("2m", 120_000_000_000),
        ("1h", 3_600_000_000_000),
        ("1.5ms", 1_500_000),
        (".5s", 500_000_000),
        ("5.s", 5_000_000_000),
        ("  7 ms ", 7_000_000),
        ("+1s", 1_000_000_000),
        ("1e3us", 1_000_000),
        ("1E-3s", 1_000_000),
        ("0.1us", 100),
        ("0s", 0),
        ("-0s", 0),
        ("0", 0),
        (0, 0),
        (0.0, 0),
        ("9007199254740993ns", 9_007_199_254_740_993),
        ("9007199254.740993s", 9_007_199_254_740_993_000),
    ],
)
def test_a_duration_is_read_to_the_nanosecond(text, ns):
    assert units.parse_duration_ns(text) == ns
    assert type(units.parse_duration_ns(text)) is int


@pytest.mark.parametrize("text", [*NOT_QUANTITIES, "10", 10, 1.5, "10 sec", "10S", "10 %", "1e400s", "9" * 400 + "s"])
def test_an_invalid_duration_is_refused_with_its_text(text):
    with pytest.raises(ValueError, match=re.escape(f"expected a duration such as 250us, 10ms, 30s or 2m, found {text!r}")):
        units.parse_duration_ns(text)


def test_a_confidence_has_two_digits_of_what_it_lacks():
    confidences = (0.95, 1 - 0.05 / 3, 1 - 0.05 / 45, 1 - 0.05 / 19_900)
    assert [units.format_confidence(one) for one in confidences] == ["95 %", "98.3 %", "99.89 %", "99.99975 %"]


def test_a_percentage_in_a_sentence_has_a_space():
    assert [units.format_percent(0.346), units.format_percent(0.9876, 2)] == ["35 %", "98.76 %"]


def test_a_negative_duration_is_refused():
    with pytest.raises(ValueError, match="a duration cannot be negative, found '-1ms'"):
        units.parse_duration_ns("-1ms")


@given(DECIMALS, st.sampled_from(sorted(NS_PER_UNIT)))
def test_a_duration_is_its_number_times_its_unit(number, unit):
    assert units.parse_duration_ns(f"{number:f}{unit}") == round(Fraction(number) * NS_PER_UNIT[unit])


@pytest.mark.parametrize(
    ("text", "per_s"),
    [
        ("100", 100.0),
        (100, 100.0),
        (2.5, 2.5),
        ("100/s", 100.0),
        ("6000/m", 100.0),
        ("6000/min", 100.0),
        ("7200/h", 2.0),
        ("0.1/m", 0.1 / 60),
        ("1e3 /s", 1000.0),
        (1e-07, 1e-07),
    ],
)
def test_a_rate_is_read_per_second(text, per_s):
    assert units.parse_rate_per_s(text) == per_s
    assert type(units.parse_rate_per_s(text)) is float


@pytest.mark.parametrize("text", [*NOT_QUANTITIES, "10ms", "10/d", "10 per s", "10%"])
def test_an_invalid_rate_is_refused_with_its_text(text):
    with pytest.raises(ValueError, match=re.escape(f"expected a rate such as 100 or 100/s, found {text!r}")):
        units.parse_rate_per_s(text)


@pytest.mark.parametrize("text", ["0", 0, "0/s", -1, "-5/m"])
def test_a_rate_must_be_above_zero(text):
    with pytest.raises(ValueError, match=re.escape(f"a rate must be above zero, found {text!r}")):
        units.parse_rate_per_s(text)


@given(st.integers(1, 10**9), st.sampled_from([("/m", 60), ("/min", 60), ("/h", 3600)]))
def test_a_rate_by_the_minute_or_hour_is_the_quotient_exactly_rounded(count, unit):
    suffix, seconds = unit
    assert units.parse_rate_per_s(f"{count}{suffix}") == count / seconds


@pytest.mark.parametrize(
    ("text", "share"),
    [("0.1%", 0.001), ("0.001", 0.001), (0.001, 0.001), ("57%", 0.57), ("100 %", 1.0), ("0", 0.0), (0, 0.0), (1, 1.0), ("5e-2", 0.05)],
)
def test_a_share_is_read_as_a_fraction_of_one(text, share):
    assert units.parse_share(text) == share
    assert type(units.parse_share(text)) is float


@pytest.mark.parametrize("text", [*NOT_QUANTITIES, "1 percent", "0.1‰", "%"])
def test_an_invalid_share_is_refused_with_its_text(text):
    with pytest.raises(ValueError, match=re.escape(f"expected a share such as 0.1% or 0.001, found {text!r}")):
        units.parse_share(text)


@pytest.mark.parametrize("text", ["-1%", "100.1%", "1.01", 2, -0.1])
def test_a_share_lies_between_zero_and_one(text):
    with pytest.raises(ValueError, match=re.escape(f"a share lies between 0 and 1 (0% and 100%), found {text!r}")):
        units.parse_share(text)


@given(st.decimals(min_value=0, max_value=100, allow_nan=False, places=5))
def test_a_percentage_is_the_nearest_float_to_its_hundredth(percent):
    assert units.parse_share(f"{percent:f}%") == float(percent.scaleb(-2))


@pytest.mark.parametrize(
    ("ns", "text"),
    [
        (0, "0.00 ns"),
        (1, "1.00 ns"),
        (9.994, "9.99 ns"),
        (9.996, "10.0 ns"),
        (99.94, "99.9 ns"),
        (99.96, "100 ns"),
        (999.4, "999 ns"),
        (999.6, "1.00 µs"),
        (61_234, "61.2 µs"),
        (999_400, "999 µs"),
        (999_600, "1.00 ms"),
        (38_400_000, "38.4 ms"),
        (999_499_999, "999 ms"),
        (999_500_000, "1.00 s"),
        (1_200_000_000, "1.20 s"),
        (90_000_000_000, "90.0 s"),
        (12_345_000_000_000, "12,345 s"),
        (-250, "-250 ns"),
        (-1_500_000, "-1.50 ms"),
        (-5_000_000_000, "-5.00 s"),
    ],
)
def test_a_duration_is_written_with_three_digits_in_the_unit_that_fits(ns, text):
    assert units.format_duration_ns(ns) == text


@given(st.integers(1, 999 * 10**9))
def test_a_written_duration_has_three_digits_and_is_the_value_within_rounding(ns):
    number, unit = units.format_duration_ns(ns).split(" ")
    assert len(number.replace(".", "")) == 3
    last_digit = Fraction(decimal.Decimal(1).scaleb(int(decimal.Decimal(number).as_tuple().exponent)))
    # half a unit of the last digit shown, and the error of the division in floating point
    assert abs(Fraction(number) * NS_PER_UNIT[unit] - ns) <= last_digit * NS_PER_UNIT[unit] / 2 * (1 + Fraction(1, 10**9))


@pytest.mark.parametrize(
    ("per_s", "text"),
    [
        (0, "0.00/s"),
        (0.5, "0.50/s"),
        (2.5, "2.50/s"),
        (25.34, "25.3/s"),
        (99.96, "100/s"),
        (999.6, "1,000/s"),
        (12_345.4, "12,345/s"),
        (1_234_567, "1,234,567/s"),
    ],
)
def test_a_rate_is_written_with_thousands_separated(per_s, text):
    assert units.format_rate_per_s(per_s) == text


@pytest.mark.parametrize(
    ("ns", "text"),
    [
        (0, "0s"),
        (1, "1ns"),
        (1_001, "1001ns"),
        (250_000, "250us"),
        (1_500_000, "1500us"),
        (10_000_000, "10ms"),
        (30_000_000_000, "30s"),
        (90_000_000_000, "90s"),
        (120_000_000_000, "2m"),
        (7_200_000_000_000, "2h"),
    ],
)
def test_a_duration_is_written_in_the_largest_unit_that_divides_it(ns, text):
    assert units.write_duration_ns(ns) == text


@given(
    st.one_of(st.integers(0, 10**19), st.builds(lambda n, f: n * f, st.integers(0, 10**4), st.sampled_from(sorted(NS_PER_UNIT.values()))))
)
def test_a_written_duration_is_read_back_exactly(ns):
    assert units.parse_duration_ns(units.write_duration_ns(ns)) == ns


@pytest.mark.parametrize(
    ("size_bytes", "text"),
    [(0, "0 bytes"), (1023, "1023 bytes"), (1024, "1.00 KiB"), (2**26, "64.0 MiB"), (4 * 10**9, "3.73 GiB"), (2**60, "1,073,741,824 GiB")],
)
def test_sizes_have_three_digits_and_a_binary_unit(size_bytes, text):
    assert units.format_bytes(size_bytes) == text


@pytest.mark.parametrize(
    ("value_ns", "text"),
    [
        (180_600_000, "180.6 ms"),
        (50_000_000, "50 ms"),
        (1_500_000_000, "1.5 s"),
        (250_000, "250 µs"),
        (999, "999 ns"),
        (3_600_000_000_000, "3,600 s"),
    ],
)
def test_a_given_duration_keeps_all_its_digits(value_ns, text):
    assert units.format_exact_duration(value_ns) == text
