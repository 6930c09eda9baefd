"""Where a target is: read from a URL, shown without secrets."""

import pathlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from perfkit.address import Address, Tls, redacted_url, split_credentials

ADDRESS = Address("http", "h", 1, secrets=frozenset({"Bearer s3cr3t-value", "s3cr3t-value", "another-secret", "ab"}))


@pytest.mark.parametrize(
    ("url", "address"),
    [
        ("http://host:80/a/b/", Address("http", "host", 80, "/a/b")),
        ("http://host", Address("http", "host", 80)),
        ("https://host/prefix", Address("http", "host", 443, "/prefix", tls=Tls())),
        ("grpc://host", Address("grpc", "host", 8001)),
        ("grpcs://host", Address("grpc", "host", 443, tls=Tls())),
        ("GRPC://Host:9", Address("grpc", "host", 9)),
        ("grpc://[::1]:9", Address("grpc", "::1", 9)),
        ("http://u:p@host:8000/x", Address("http", "host", 8000, "/x")),
        ("unix:/run/a.sock", Address("grpc", "localhost", 0, socket_path="/run/a.sock")),
        ("grpc+unix:///run/a.sock", Address("grpc", "localhost", 0, socket_path="/run/a.sock")),
        ("http+unix:/run/a.sock", Address("http", "localhost", 0, socket_path="/run/a.sock")),
        ("http+unix://%2Frun%2Fa.sock/prefix/", Address("http", "localhost", 0, "/prefix", socket_path="/run/a.sock")),
    ],
)
def test_an_address_is_read_from_its_url(url, address):
    assert Address.parse(url) == address


@pytest.mark.parametrize("url", ["http://[::1]:8000", "grpcs://h:1/p", "https://h:443", "unix:/run/a.sock", "http+unix:/run/a.sock"])
def test_an_address_is_shown_as_its_url(url):
    assert str(Address.parse(url)) == url


@pytest.mark.parametrize(
    "url", ["", "h", "h:8000", "ftp://h", "http://", "http://h:0x1", "http://h:-1", "http://h/ü", "unix:rel", "http+unix://rel"]
)
def test_what_is_no_target_is_refused(url):
    with pytest.raises(ValueError, match=r"expected|percent-encoded"):
        Address.parse(url)


def test_credentials_stand_before_the_host():
    assert split_credentials("http://u:p%40q@host/x") == ("http://host/x", "u:p%40q")
    assert split_credentials("http://host/x") == ("http://host/x", "")
    assert redacted_url("https://u:p@host:1/x") == "https://<redacted>@host:1/x"
    assert redacted_url("https://host:1/x") == "https://host:1/x"


@given(st.text("ab/@:?#% [", min_size=1).map(lambda text: f"QQ{text}QQ"))
def test_no_password_however_written_is_shown(password):
    url = f"http://u:{password}@host"
    assert "QQ" not in redacted_url(url)
    assert "QQ" not in _shown(url)


def _shown(url):
    try:
        address = Address.parse(url)
    except ValueError as error:
        return str(error)
    return f"{address} {address!r}"


def test_secrets_that_a_server_echoes_are_redacted():
    text = ADDRESS.presentable("bad request: authorization: Bearer s3cr3t-value, x-key another-secret, and s3cr3t-value alone")
    assert text == "bad request: authorization: <redacted>, x-key <redacted>, and <redacted> alone"


def test_what_is_too_short_for_a_secret_leaves_sentences_whole():
    assert ADDRESS.presentable("about") == "about"


def test_control_characters_never_reach_a_terminal():
    assert ADDRESS.presentable("a\x1b[31mred\nline") == "a [31mred line"


def test_a_long_body_is_cut():
    assert len(ADDRESS.presentable("x" * 10**6)) < 400


def test_headers_and_secrets_are_not_in_an_address_s_repr():
    address = Address("http", "h", 1, headers={"a": "token"}, secrets=frozenset({"token"}), tls=Tls(pathlib.Path("ca.pem")))
    assert "token" not in repr(address)
