"""`traceparent` by W3C Trace Context, as a real Triton 2.51 takes it."""

import pytest

from server_stub.tracing.request_trace import parse_traceparent

EXAMPLE = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"  # of the standard


@pytest.mark.parametrize(
    "text", [EXAMPLE, EXAMPLE[:-2] + "00", EXAMPLE.upper(), EXAMPLE.replace("00-4", "01-4"), EXAMPLE.replace("00-4", "cc-4") + "-x"]
)
def test_valid_ones_name_the_clients_span(text):
    assert parse_traceparent(text) == (0x4BF92F3577B34DA6A3CE929D0E0E4736, 0x00F067AA0BA902B7)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "00-xyz",
        EXAMPLE + "-more",  # only later versions may carry more
        EXAMPLE + " ",
        EXAMPLE[:-1],
        EXAMPLE.replace("00-4", "ff-4"),
        EXAMPLE.replace("4bf92f3577b34da6a3ce929d0e0e4736", "0" * 32),
        EXAMPLE.replace("00f067aa0ba902b7", "0" * 16),
        EXAMPLE.replace("b", "g"),
        EXAMPLE.replace("4", "٤"),
    ],
)
def test_others_are_none(text):
    assert parse_traceparent(text) is None
