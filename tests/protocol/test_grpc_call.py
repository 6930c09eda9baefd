"""Time-outs, status texts and statuses of gRPC calls: literal values, urllib's and grpcio's."""

import urllib.parse

import grpc
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from perfkit.protocol import grpc_call
from perfkit.protocol.grpc_call import Status

TEXTS = st.text(st.characters(exclude_categories=["Cs"]))


def test_statuses_are_those_of_grpcio():
    assert {one.name: one.value for one in Status} == {one.name: one.value[0] for one in grpc.StatusCode}


def test_a_prefix_is_a_flag_and_a_length():
    assert grpc_call.message_prefix(0x01020304) == b"\x00\x01\x02\x03\x04"
    assert grpc_call.message_prefix(2**32 - 1, is_compressed=True) == b"\x01\xff\xff\xff\xff"
    assert len(grpc_call.message_prefix(0)) == grpc_call.PREFIX_BYTES


@pytest.mark.parametrize(
    ("text", "timeout_ns"),
    [("0n", 0), ("1n", 1), ("20u", 20_000), ("300m", 300_000_000), ("4S", 4 * 10**9), ("5M", 300 * 10**9), ("6H", 21_600 * 10**9),
     ("99999999H", 99_999_999 * 3600 * 10**9), ("00000010m", 10_000_000)],
)  # fmt: skip
def test_timeouts_are_read(text, timeout_ns):
    assert grpc_call.parse_timeout(text) == timeout_ns


@pytest.mark.parametrize(
    "text", ["", "S", "1", "1s", "1h", "-1S", "+1S", "1.5S", " 1S", "1S ", "1 S", "1_0S", "123456789S", "١S", "²S", "1SS", "1e3S"]
)
def test_malformed_timeouts_are_none(text):
    assert grpc_call.parse_timeout(text) is None


@pytest.mark.parametrize(
    ("timeout_ns", "text"),
    [(0, "0n"), (1, "1n"), (99_999_999, "99999999n"), (100_000_000, "100000u"), (100_000_001, "100001u"), (10**11, "100000m"), (10**14, "100000S"),
     (99_999_999 * 10**9 + 1, "1666667M"), (10**30, "99999999H")],
)  # fmt: skip
def test_timeouts_are_written_in_the_smallest_unit_that_fits(timeout_ns, text):
    assert grpc_call.format_timeout(timeout_ns) == text


@given(st.integers(0, 99_999_999 * 3600 * 10**9))
def test_a_written_timeout_is_never_shorter_and_nearly_as_long(timeout_ns):
    text = grpc_call.format_timeout(timeout_ns)
    assert len(text) <= 9
    read_ns = grpc_call.parse_timeout(text)
    assert timeout_ns <= read_ns <= timeout_ns * (1 + 1e-5) + 1


@given(TEXTS)
@example("100 %, ~\"'\x7f\n\0 ü€😀")
def test_texts_survive_and_are_printable_on_the_wire(text):
    quoted = grpc_call.quote_message(text)
    assert all(" " <= letter <= "~" for letter in quoted)
    assert grpc_call.unquote_message(quoted) == text
    assert urllib.parse.unquote(quoted) == text


def test_only_what_has_to_be_is_quoted():
    printable = "".join(map(chr, range(0x20, 0x7F)))
    assert grpc_call.quote_message(printable) == printable.replace("%", "%25")
    assert grpc_call.quote_message("\x1f\x7fä") == "%1F%7F%C3%A4"


@pytest.mark.parametrize(("value", "text"), [("100%", "100%"), ("%zz", "%zz"), ("%41%", "A%"), ("%c3%a4", "ä"), ("%ff", "\ufffd")])
def test_malformed_quotes_are_kept(value, text):
    assert grpc_call.unquote_message(value) == text


def test_a_text_that_has_no_utf_8_can_be_told():
    assert grpc_call.quote_message("no \ud800") == "no ?"
