"""Addresses of targets: parsed from URLs, and shown without secrets."""

import dataclasses
import json
import pathlib
import socket
import urllib.parse

import pytest
from hypothesis import given
from hypothesis import strategies as st

from perfkit.machine import own_addresses
from perfkit.target.address import Address, Tls, redacted_url, split_credentials

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
def test_an_address_is_parsed_from_its_url(url, address):
    assert Address.parse(url) == address


@pytest.mark.parametrize("url", ["http://[::1]:8000", "grpcs://h:1/p", "https://h:443", "unix:/run/a.sock", "http+unix:/run/a.sock"])
def test_an_address_is_shown_as_its_url(url):
    assert str(Address.parse(url)) == url


@pytest.mark.parametrize(
    "url",
    [
        "",
        "h",
        "h:8000",
        "ftp://h",
        "http://",
        "http://h:0x1",
        "http://h:-1",
        "http://h/ü",
        "unix:rel",
        "http+unix://rel",
        "http://h:0",
        "http://a..b",
        "http://h//x",
        "http://h/${X}",
        "http+unix://%2Frun%2Fx/a b",
    ],
)
def test_an_invalid_url_is_refused(url):
    with pytest.raises(ValueError, match=r"expected|percent-encoded|not a valid host name|variables"):
        Address.parse(url)


def test_credentials_stand_before_the_host():
    assert split_credentials("http://u:p%40q@host/x") == ("http://host/x", "u:p%40q")
    assert split_credentials("http://host/x") == ("http://host/x", "")
    assert redacted_url("https://u:p@host:1/x") == "https://<redacted>@host:1/x"
    assert redacted_url("https://host:1/x") == "https://host:1/x"


@pytest.mark.parametrize("url", ["ali:pass-word@host:8000", "http:/ali:pass-word@host", "https:ali:pass-word@host"])
def test_the_error_for_a_mistyped_url_shows_no_password(url):
    assert "pass-word" not in redacted_url(url)
    with pytest.raises(ValueError, match=r"expected|percent-encoded") as caught:
        Address.parse(url)
    assert "pass-word" not in str(caught.value)


def test_the_path_of_a_socket_may_contain_an_at_sign():
    assert redacted_url("unix:/run/a@b.sock") == "unix:/run/a@b.sock" == str(Address.parse("unix:/run/a@b.sock"))


def test_a_host_name_in_another_script_is_encoded_for_dns():
    assert Address.parse("http://例え.jp:8000").host == "xn--r8jz45g.jp"


@pytest.mark.parametrize("quote", [json.dumps, repr, lambda text: urllib.parse.quote(text, safe="")])
def test_a_quoted_secret_is_redacted(quote):
    text = "sek\"ri\\t'pw/ü"
    shown = Address("http", "h", 1, secrets=frozenset({text})).redact(f"got {quote(text)} here")
    assert shown.replace('"', "").replace("'", "") == "got <redacted> here"


@given(st.text("ab/@:?#% [", min_size=1).map(lambda text: f"QQ{text}QQ"))
def test_a_password_is_never_shown(password):
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
    text = ADDRESS.sanitize("bad request: authorization: Bearer s3cr3t-value, x-key another-secret, and s3cr3t-value alone")
    assert text == "bad request: authorization: <redacted>, x-key <redacted>, and <redacted> alone"


def test_a_text_is_shown_without_control_characters_and_shortened():
    assert ADDRESS.sanitize("about") == "about", "short secrets are not redacted"
    assert ADDRESS.sanitize("a\x1b[31mred\nline") == "a [31mred line"
    assert len(ADDRESS.sanitize("x" * 10**6)) < 400


def test_the_repr_of_an_address_omits_headers_and_secrets():
    address = Address("http", "h", 1, headers={"a": "token"}, secrets=frozenset({"token"}), tls=Tls(pathlib.Path("ca.pem")))
    assert "token" not in repr(address)


@pytest.mark.parametrize(
    ("url", "network_path"),
    [
        ("http://127.0.0.1:8000", "loopback"),
        ("http://127.9.8.7", "loopback"),
        ("grpc://localhost", "loopback"),
        ("http://api.localhost:8000", "loopback"),
        ("https://[::1]:443/prefix", "loopback"),
        ("http://[::ffff:127.0.0.1]:8000", "loopback"),
        ("unix:/run/v2.sock", "unix socket"),
        ("http+unix:/run/v2.sock", "unix socket"),
        ("http://10.0.0.7:8000", "network"),
        ("http://localhost.example.com", "network"),
        ("http://127.0.0.1.example.com", "network"),
        ("grpc://[::ffff:10.0.0.7]:8001", "network"),
        ("grpc://triton:8001", "network"),
        ("http://0.0.0.0:8000", "loopback"),
        ("http://mybox:8000", "loopback"),
        ("grpc://two-addresses-here:8001", "loopback"),
        ("grpc://here-and-elsewhere:8001", "network"),
    ],
)
def test_a_target_is_local_if_its_addresses_are_this_machines_or_it_is_a_unix_socket(url, network_path, monkeypatch):
    names = {
        "mybox": ["127.0.1.1"],
        "two-addresses-here": ["127.0.0.1", "::1"],
        "here-and-elsewhere": ["127.0.0.1", "10.0.0.7"],
        "triton": ["10.0.0.7"],
    }
    numeric = socket.getaddrinfo

    def resolve(host, port, **options):
        if host not in names and not host.strip("[]:.f0123456789") == "":
            raise socket.gaierror
        return [entry for text in names.get(host, [host]) for entry in numeric(text, port, **options)]

    monkeypatch.setattr(socket, "getaddrinfo", resolve)
    own_addresses._resolves_here.cache_clear()
    address = Address.parse(url)
    assert address.network_path == network_path
    assert address.is_local is (network_path != "network")


@dataclasses.dataclass(frozen=True)
class Described:
    name: str
    count: int
    parts: tuple["Described", ...] = ()


def test_everything_that_a_server_says_of_itself_is_redacted():
    address = dataclasses.replace(Address.parse("http://h:1"), secrets=frozenset({"s3cr3t-value"}))
    said = Described("a s3cr3t-value", 3, (Described("s3cr3t%2Dvalue", 4), Described("plain", 5)))
    shown = Described("a <redacted>", 3, (Described("<redacted>", 4), Described("plain", 5)))
    assert address.redacted(said) == shown
    assert address.redacted((said, ("s3cr3t-value",))) == (shown, ("<redacted>",))
    assert Address.parse("http://h:1").redacted(said) is said
