"""Secrets are found in whatever encoding the standard library writes them."""

import base64
import binascii
import html
import json
import quopri
import re
import urllib.parse
from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from perfkit.target.redaction import REDACTED, redact

SECRETS = st.text(st.characters(exclude_categories=["Cs"]), min_size=4, max_size=40)
HARD = ("pass/word 42", "a\"b'c\\d<e>&ü€😀", "\\\\\\\\")
ENCODINGS: dict[str, Any] = {
    "plain": lambda text: text,
    "JSON": lambda text: json.dumps(text)[1:-1],
    "JSON in UTF-8": lambda text: json.dumps(text, ensure_ascii=False)[1:-1],
    "JSON in JSON": lambda text: json.dumps(json.dumps(text))[3:-3],
    "repr": lambda text: repr(text)[1:-1],
    "ascii": lambda text: ascii(text)[1:-1],
    "bytes": lambda text: repr(text.encode())[2:-1],
    "Python": lambda text: text.encode("unicode_escape").decode(),
    "URL": lambda text: urllib.parse.quote(text, safe=""),
    "URL path": urllib.parse.quote,
    "URL in lower case": lambda text: "".join(f"%{byte:02x}" for byte in text.encode()),
    "form": urllib.parse.quote_plus,
    "URL in URL": lambda text: urllib.parse.quote(urllib.parse.quote(text, safe=""), safe=""),
    "HTML": html.escape,
    "HTML in HTML": lambda text: html.escape(html.escape(text)),
    "XML, in decimal": lambda text: "".join(f"&#{ord(one)};" for one in text),
    "XML, in hexadecimal": lambda text: "".join(f"&#x{ord(one):X};" for one in text),
    "quoted-printable": lambda text: "".join(f"={byte:02X}" for byte in text.encode()),
    "hexadecimal": lambda text: text.encode().hex(),
    "hexadecimal with colons": lambda text: binascii.hexlify(text.encode(), ":").decode().upper(),
}


@pytest.mark.parametrize("encoding", ENCODINGS)
@settings(max_examples=25)
@given(secret=SECRETS)
@example(secret=HARD[0])
@example(secret=HARD[1])
@example(secret=HARD[2])
def test_a_secret_is_redacted_in_every_encoding_and_nothing_else_is(encoding, secret):
    encoded = ENCODINGS[encoding](secret)
    assert redact(f"<{encoded}>", frozenset({secret})) == f"<{REDACTED}>"


@pytest.mark.parametrize("encode", [base64.b64encode, base64.urlsafe_b64encode, base64.b32encode])
@given(secret=SECRETS.filter(lambda text: len(text.encode()) >= 8), before=st.binary(max_size=7), after=st.binary(max_size=7))
def test_no_byte_of_a_secret_but_those_at_its_ends_can_be_decoded_from_a_longer_text(encode, secret, before, after):
    data = secret.encode()
    shown = redact(encode(before + data + after).decode(), frozenset({secret}))
    assert REDACTED in shown
    head, _, tail = shown.partition(REDACTED)
    size = 3 if encode is not base64.b32encode else 5
    told = len(head) * size // (4 if size == 3 else 8) - len(before), len(tail.rstrip("=")) * size // (4 if size == 3 else 8) - len(after)
    assert max(told) <= size, "characters that the secret shares with what stands beside it stay"


def test_quoted_printable_lines_are_those_of_the_standard_library():
    assert redact(quopri.encodestring("geheim=ü!".encode()).decode(), frozenset({"geheim=ü!"})) == REDACTED


def test_short_texts_are_no_secrets_and_other_texts_stay():
    assert redact("about a%62c", frozenset({"abc", "ab"})) == "about a%62c"
    assert redact("bearer s3cr3t", frozenset({"Bearer s3cr3t-value"})) == "bearer s3cr3t"


def test_the_longest_of_secrets_that_contain_each_other_is_redacted_as_a_whole():
    assert redact("x Bearer abcdef y", frozenset({"abcdef", "Bearer abcdef"})) == f"x {REDACTED} y"


@pytest.mark.parametrize("text", ["x" * 2**18, "\\" * 2**16, "%25" * 2**15, "&amp;" * 2**15, " \n" * 2**15, "A" * 2**16])
def test_no_text_takes_long(text):
    """A pattern without bounds would take more than the ten minutes of a test for the square of these lengths."""
    assert redact(text, frozenset({"Bearer s3cr3t-value", "AAAAAAAB", "%%%%x"})) == text


@pytest.mark.parametrize("text", ["Internal error " * 100, "not <{token}>", "".join(f"\\\\u{point:04x}" for point in range(33, 127))])
def test_what_is_compiled_does_not_grow_with_the_secret(monkeypatch, text):
    """A server's first error is looked through in the event loop that sends requests."""
    original, compiled = re.compile, list[str]()

    def compile_noted(pattern, flags=0):
        compiled.append(pattern)
        return original(pattern, flags)

    monkeypatch.setattr("re.compile", compile_noted)
    sizes = list[int]()
    for token in (f"e{len(text)}y" + "0J1.k2" * 10, f"e{len(text)}z" + "0J1.k2" * 150):  # none that was compiled before
        compiled.clear()
        assert token not in redact(text.format(token=token) + " " * 2000, frozenset({token, f"Bearer {token}"}))
        sizes.append(sum(map(len, compiled)))
    assert max(sizes) < 5000
    assert sizes[1] <= sizes[0]


def test_a_long_secret_whose_escapes_have_several_ends_is_found():
    secret = "C:\\\\server;\\\\" + "\\" * 9 + "&x;" * 9
    for encoded in (secret, json.dumps(secret)[1:-1], html.escape(secret), "".join(f"&#{ord(one)}" for one in secret)):
        assert redact(f"<{encoded}>", frozenset({secret})) == f"<{REDACTED}>"
