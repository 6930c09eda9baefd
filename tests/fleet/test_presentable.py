"""What a server says is shown without secrets, control characters or excess."""

from perfkit.fleet.worker import presentable
from perfkit.transport.base import Address

ADDRESS = Address("http", "h", 1, headers={"authorization": "Bearer s3cr3t-value", "x-key": "another-secret"})


def test_header_values_that_a_server_echoes_are_redacted():
    text = presentable("bad request: authorization: Bearer s3cr3t-value, x-key another-secret, and s3cr3t-value alone", ADDRESS)
    assert "s3cr3t" not in text
    assert "another-secret" not in text
    assert text.count("<redacted>") == 3


def test_control_characters_never_reach_a_terminal():
    assert presentable("a\x1b[31mred\nline", ADDRESS) == "a [31mred line"


def test_a_long_body_is_cut():
    assert len(presentable("x" * 10**6, ADDRESS)) < 400
