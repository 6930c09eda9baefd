"""What the server reads from the headers of a request."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from server_stub.grpc.http2_stream import parse_request_headers

CALL = [
    (":method", "POST"),
    (":scheme", "http"),
    (":path", "/s/M"),
    (":authority", "a"),
    ("content-type", "application/grpc"),
    ("te", "trailers"),
]


def test_a_plain_call():
    headers = parse_request_headers(CALL)
    assert (headers.path, headers.timeout_ns, headers.encoding, headers.http_status) == ("/s/M", None, "identity", 200)
    assert headers.metadata == {"content-type": "application/grpc", "te": "trailers"}


def test_a_call_with_everything():
    more = [
        ("grpc-timeout", "250m"),
        ("grpc-encoding", "gzip"),
        ("grpc-accept-encoding", "gzip"),
        ("user-agent", "x"),
        ("traceparent", "00-1"),
    ]
    headers = parse_request_headers([*CALL, *more])
    assert (headers.timeout_ns, headers.encoding) == (250_000_000, "gzip")
    assert headers.metadata == {"content-type": "application/grpc", "te": "trailers", "user-agent": "x", "traceparent": "00-1"}


@pytest.mark.parametrize("method", ["GET", "PUT", "post", ""])
def test_other_methods_are_not_allowed(method):
    assert parse_request_headers([(":method", method), *CALL[1:]]).http_status == 405
    assert parse_request_headers(CALL[1:]).http_status == 405


@pytest.mark.parametrize(
    ("content_type", "status"),
    [
        ("application/grpc", 200), ("application/grpc+proto", 200), ("application/grpc;charset=utf-8", 200), ("application/grpc-web", 415),
        ("application/grpcx", 415), ("application/json", 415), ("", 415),
    ],
)  # fmt: skip
def test_content_types(content_type, status):
    assert parse_request_headers([*CALL[:4], ("content-type", content_type)]).http_status == status


@pytest.mark.parametrize("headers", [CALL[:2] + CALL[3:], [*CALL, ("X-Upper", "1")]], ids=["no path", "upper case"])
def test_headers_that_http2_does_not_allow(headers):
    assert parse_request_headers(headers).http_status == 400


def test_a_missing_content_type():
    assert parse_request_headers(CALL[:4]).http_status == 415


def test_a_malformed_timeout_is_none():
    assert parse_request_headers([*CALL, ("grpc-timeout", "soon")]).timeout_ns is None


@given(
    st.lists(st.tuples(st.sampled_from([":path", ":method", "grpc-timeout", "content-type"]) | st.text(max_size=5), st.text(max_size=9)))
)
def test_whatever_a_client_sends_is_read(headers):
    parse_request_headers(headers)
