"""Whole numbers in text: digits of any number and script, wherever perfkit and the bundled server read them."""

import argparse
import contextlib
import unicodedata

import pytest
from hypothesis import given
from hypothesis import strategies as st

from perfkit.api_v2.http import HttpCalls
from perfkit.cli.options import whole_number as option
from perfkit.digits import LARGEST, whole_number
from perfkit.errors import ProtocolError, UsageError
from perfkit.protocol.grpc_call import parse_timeout
from perfkit.transport.base import Outcome, Reply
from perfkit.transport.grpc.messages import parse_headers
from perfkit.transport.http.calls import HttpResponse
from perfkit.transport.options import TransportOptions
from server_stub.http.fast_path import parse_head
from server_stub.http.inference import _header_length
from server_stub.options import parse_cpus, parse_options

# what `str.isdigit` takes: of other scripts, superscripts; and what `int` takes besides
DIGITS = "".join(character for code in range(0x11000) if (character := chr(code)).isdigit())
NUMBERS = st.one_of(
    st.text(DIGITS, min_size=1, max_size=30),
    st.builds(lambda digit, count: digit * count, st.sampled_from("0189٣²"), st.sampled_from([4300, 4301, 5000])),
    st.from_regex(r"[+-]?[0-9]{1,3}(_[0-9]{1,3})?\s?", fullmatch=True),
)


@given(st.integers(0, 2**70), st.integers(0, 5000))
def test_ascii_digits_are_their_number_up_to_the_highest(number, zeros):
    text = "0" * zeros + str(number)
    expected = number if number <= LARGEST else None
    assert whole_number(text) == whole_number(text.encode()) == expected
    assert whole_number(text, 10) == (number if number <= 10 else None)


@given(NUMBERS)
def test_any_other_text_is_no_number(text):
    expected = None
    if text and all(character in "0123456789" for character in text):
        significant = text.lstrip("0")
        expected = (
            sum(unicodedata.digit(one) * 10**place for place, one in enumerate(reversed(significant))) if len(significant) < 30 else None
        )
        expected = expected if expected is not None and expected <= LARGEST else None
    assert whole_number(text) == expected


@given(NUMBERS)
def test_no_reader_of_digits_fails_in_another_way_than_its_own(text):
    head = f"POST /v2/models/m/infer HTTP/1.1\r\nHost: h\r\nContent-Length: {text}\r\n\r\n"
    parse_head(head.encode())
    parse_timeout(f"{text}S")
    parse_headers([(":status", text), ("grpc-status", text)])
    for read, error in (
        (option(1, 9), argparse.ArgumentTypeError),
        (parse_cpus, UsageError),
        (lambda value: parse_options(["--trace-config", f"rate={value}"]), UsageError),
        (lambda value: parse_options(["--onnx", f"intra_op_threads={value}"]), UsageError),
    ):
        with contextlib.suppress(error):
            read(text)


@pytest.mark.parametrize("length", ["9" * 5000, "٣", "²", "1_0", "-", ""])
def test_the_length_of_a_json_part_is_one_or_the_answer_is_refused(length):
    response = HttpResponse(200, {"inference-header-content-length": length}, b"{}")
    with pytest.raises(ProtocolError, match="is not a number of bytes"):
        HttpCalls(TransportOptions(timeout_ns=1)).decode(Reply(Outcome.OK, 0, 1, []), response)
    with pytest.raises(ProtocolError, match=r"Unable to parse|size should be in range"):
        _header_length(length, 2)
