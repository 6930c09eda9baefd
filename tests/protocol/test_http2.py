"""Frames and header blocks as literal bytes; blocks of hpack's own encoder."""

import contextlib
from typing import Any

import hpack
import pytest
from hypothesis import given
from hypothesis import strategies as st

from perfkit.protocol import http2
from perfkit.protocol.http2 import HeaderBlockReader, Http2Error

OK_TRAILERS = b"\x00\x0bgrpc-status\x010"


def test_frames_are_these_bytes():
    assert http2.frame(http2.PING, http2.ACK, 0, b"12345678") == b"\x00\x00\x08\x06\x01\x00\x00\x00\x0012345678"
    assert http2.frame_head(0x012345, http2.DATA, http2.END_STREAM, 7) == b"\x01\x23\x45\x00\x01\x00\x00\x00\x07"
    assert http2.number_frame(http2.WINDOW_UPDATE, 3, 256) == b"\x00\x00\x04\x08\x00\x00\x00\x00\x03\x00\x00\x01\x00"
    assert http2.number_frame(http2.RST_STREAM, 5, http2.CANCEL) == b"\x00\x00\x04\x03\x00\x00\x00\x00\x05\x00\x00\x00\x08"
    assert http2.goaway(http2.PROTOCOL_ERROR) == b"\x00\x00\x08\x07\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x01"
    assert http2.settings({http2.HEADER_TABLE_SIZE: 0}) == b"\x00\x00\x06\x04\x00\x00\x00\x00\x00\x00\x01\x00\x00\x00\x00"


def test_settings_are_read_and_the_last_of_a_kind_counts():
    assert http2.read_settings(b"\x00\x04\x00\x00\x00\x01\x00\x04\x00\x00\x00\x02\x00\x99\x00\x00\x00\x00") == {4: 2, 0x99: 0}


@pytest.mark.parametrize(
    ("payload", "code"),
    [
        (b"\x00\x04\x00\x00\x00", http2.FRAME_SIZE_ERROR),
        (b"\x00\x04\x80\x00\x00\x00", http2.FLOW_CONTROL_ERROR),
        (b"\x00\x05\x00\x00\x3f\xff", http2.PROTOCOL_ERROR),
        (b"\x00\x05\x01\x00\x00\x00", http2.PROTOCOL_ERROR),
    ],
    ids=["half a setting", "window too wide", "frame too small", "frame too large"],
)
def test_settings_that_are_not_allowed_are_refused(payload, code):
    with pytest.raises(Http2Error) as caught:
        http2.read_settings(payload)
    assert caught.value.code == code


def test_padding_and_priority_are_removed():
    assert http2.strip_padding(b"\x02ab\x00\x00", http2.PADDED) == b"ab"
    assert http2.strip_padding(b"\x80\x00\x00\x01\x10ab", http2.WITH_PRIORITY) == b"ab"
    assert http2.strip_padding(b"\x01\x80\x00\x00\x01\x10ab\x00", http2.PADDED | http2.WITH_PRIORITY) == b"ab"
    assert http2.strip_padding(b"ab", 0) == b"ab"


@pytest.mark.parametrize(("payload", "flags"), [(b"", 0x8), (b"\x01", 0x8), (b"\x05abcd", 0x8), (b"abcd", 0x20)])
def test_padding_longer_than_its_frame_is_refused(payload, flags):
    with pytest.raises(Http2Error, match="shorter than its padding"):
        http2.strip_padding(payload, flags)


def test_error_codes_have_names():
    assert [http2.error_name(code) for code in (0, 8, 13, 14, 2**32 - 1)] == [
        "NO_ERROR", "CANCEL", "HTTP_1_1_REQUIRED", "error 0xe", "error 0xffffffff",
    ]  # fmt: skip


TEXT = st.text(st.characters(min_codepoint=0x21, max_codepoint=0x7E), max_size=40)
HEADERS = st.lists(st.tuples(TEXT.map(lambda name: f"x{name.lower()}"), TEXT), max_size=10)


@given(HEADERS)
def test_a_block_of_ours_is_read_by_hpack_and_leaves_its_table_empty(headers):
    headers = [(":method", "POST"), (":path", "/a"), *headers]
    decoder = hpack.Decoder()
    assert [tuple(one) for one in decoder.decode(http2.encode_headers(headers))] == headers
    assert not decoder.header_table.dynamic_entries


@given(st.lists(HEADERS, max_size=6), st.integers(0, 6))
def test_blocks_of_hpack_are_read_whatever_its_table_and_when_it_shrinks(lists, shrinks_at):
    encoder, reader = hpack.Encoder(), HeaderBlockReader(tuple, {})
    for index, headers in enumerate(lists):
        if index == shrinks_at:
            encoder.header_table_size = 0
        assert reader.read(encoder.encode(headers)) == tuple(headers)


def test_a_block_is_looked_up_once_the_peer_has_no_table():
    parsed = []

    def parse(headers):
        parsed.append(headers)
        return tuple(headers)

    known: dict[bytes, tuple[tuple[str, str], ...]] = {}
    reader = HeaderBlockReader(parse, known)
    assert [reader.read(OK_TRAILERS) for _ in range(2)] == [(("grpc-status", "0"),)] * 2
    assert len(parsed) == 2, "a table may be in use"
    reader.read(http2.NO_TABLE + OK_TRAILERS)
    assert [reader.read(OK_TRAILERS) for _ in range(9)] == [(("grpc-status", "0"),)] * 9
    assert len(parsed) == 4
    another = HeaderBlockReader(parse, known)
    another.read(http2.NO_TABLE)
    another.read(OK_TRAILERS)
    assert len(parsed) == 5, "connections share what they have read"


def test_a_block_that_fills_the_dynamic_table_is_not_cached():
    """With an empty table of size 0 this block adds nothing; another connection's still has its table, and needs the entry."""
    adds = b"\x40\x01a\x01b"
    known: dict[bytes, tuple[tuple[str, str], ...]] = {}
    without = HeaderBlockReader(tuple, known)
    without.read(http2.NO_TABLE)
    without.read(adds)
    with_table = HeaderBlockReader(tuple, known)
    assert with_table.read(adds) == (("a", "b"),)
    assert with_table.read(b"\xbe") == (("a", "b"),)


def test_a_table_that_comes_back_is_minded():
    reader: HeaderBlockReader[tuple[tuple[str, str], ...]] = HeaderBlockReader(tuple, {})
    for block in (http2.NO_TABLE, b"\x40\x01a\x01b", b"\x3f\xe1\x1f" + b"\x40\x01a\x01b"):
        reader.read(block)
    assert reader.read(b"\xbe") == (("a", "b"),)


def test_no_more_blocks_are_remembered_than_fit():
    known: dict[bytes, tuple[tuple[str, str], ...]] = {}
    reader = HeaderBlockReader(tuple, known)
    reader.read(http2.NO_TABLE)
    for number in range(3000):
        reader.read(b"\x00\x01a\x04%04d" % number)
    assert len(known) <= 1024


@pytest.mark.parametrize("block", [b"\x80", b"\xff\xff\xff\xff\xff\xff", b"\xbe", b"\x00\x05a", b"\x00\x01a\x01\xff", b"\x00\x81\xff\x00"])
def test_malformed_header_blocks_are_refused(block):
    with pytest.raises(Http2Error) as caught:
        HeaderBlockReader(tuple, {}).read(block)
    assert caught.value.code == http2.COMPRESSION_ERROR


def test_headers_larger_than_announced_are_refused():
    with pytest.raises(Http2Error):
        HeaderBlockReader(tuple, {}).read(hpack.Encoder().encode([("a", "b" * 70_000)]))


@given(st.binary(max_size=64))
def test_any_bytes_are_a_block_or_refused(block):
    with contextlib.suppress(Http2Error):
        HeaderBlockReader(tuple, {}).read(block)


@pytest.mark.parametrize("length", [0, 1, 55, 126])
def test_a_header_written_out_is_read_by_hpack_and_leaves_its_table_alone(length):
    decoder = hpack.Decoder()
    block = http2.encode_headers([(":path", "/x")]) + http2.literal_header("traceparent", "v" * length)
    expected: list[Any] = [(":path", "/x"), ("traceparent", "v" * length)]
    for _ in range(2):
        assert [tuple(one) for one in decoder.decode(block)] == expected
    assert not decoder.header_table.dynamic_entries
