"""Secrets found in a text in whatever encoding a program may have repeated them."""

import base64
import functools
import html.entities
import re
import string
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

REDACTED = "<redacted>"
# shorter texts are hardly secrets, and removing them would make messages unreadable
_MIN_SECRET_CHARACTERS = 4
# compiling a pattern of all characters of a long token, and their escapes, would stop the event loop for seconds
_COMPILED_CHARACTERS = 8
_SIGNS = frozenset("%=&+\\")
# as JSON, Python and C escape them
_LETTERS = {"\n": "n", "\t": "t", "\r": "r", "\b": "b", "\f": "f", "\a": "a", "\v": "v"}
_IN_LOWER_CASE = str.maketrans(string.ascii_uppercase, string.ascii_lowercase)
_BASE64_ALPHABET = str.maketrans("-_", "+/")


def redact(text: str, secrets: frozenset[str]) -> str:
    r"""A text in which each secret is `<redacted>`; the longest first: one may contain another.

    It is found as it is or in another case; with each character as itself or escaped; or all of it as hex, base64 or base32. Characters may be
    escaped as in JSON, Python and C (`\u0041`, `\x41`, `\101`, `\"`), URLs (`%41`, also twice, and `+`), HTML and XML (`&#65;`, `&amp;`) and
    quoted-printable (`=41`), and each in its own way. Of base64 and base32 it is found in the middle of a longer text, too.
    """
    for secret in sorted(secrets, key=len, reverse=True):
        # no encoding is shorter, save that base64 and base32 may lose the ends
        if len(text) + _MIN_SECRET_CHARACTERS >= len(secret) >= _MIN_SECRET_CHARACTERS:
            shown, end = list[str](), 0
            for first, last in sorted({*_written(text, secret), *_encoded(text, secret)}):
                if first >= end:
                    shown += text[end:first], REDACTED
                end = max(end, last)
            text = "".join((*shown, text[end:]))
    return text


def _written(text: str, secret: str) -> Iterator[tuple[int, int]]:
    """Where a secret stands character by character: a pattern finds where it may begin, and each character is compared."""
    at, beginning = 0, _beginning(secret[:_COMPILED_CHARACTERS])
    while found := beginning.search(text, at):
        ends = {found.start()}
        for character in secret:
            ends = {end for start in ends for end in _ends(text, start, character)}
            if not ends:
                break
        at = max(ends, default=found.start() + 1)
        if ends:
            yield found.start(), at


@functools.lru_cache(maxsize=256)
def _beginning(characters: str) -> re.Pattern[str]:
    """Where these characters may begin: as they are, up to the first one that may be escaped."""
    pattern = ""
    for character in reversed(characters):
        byte, names = character.encode("utf-8", "surrogatepass")[0], _names().get(character, ())
        escaped = [
            rf"%(?:25){{0,4}}{byte:02x}|={byte:02x}",
            rf"\\{{1,8}}(?:[xu0-7{_LETTERS.get(character, '')}]|{re.escape(character)})",
            rf"&(?:amp;){{0,4}}(?:{'|'.join((re.escape('#'), *map(re.escape, names)))})",
            *([r"\+"] if character == " " else []),
        ]
        pattern = f"(?:{re.escape(character)}{pattern}|{'|'.join(escaped)})"
    return re.compile(pattern, re.IGNORECASE)


def _ends(text: str, start: int, character: str) -> Iterator[int]:
    """Where a character ends that begins at `start`: nowhere if another one does, and at several places if it may be escaped in several ways."""
    found = text[start : start + 1]
    if found and (found == character or found.lower() == character.lower() or found.upper() == character.upper()):
        yield start + 1
    if found in _SIGNS:
        yield from (match.end() for form in _compiled(found, character) if (match := form.match(text, start)))


@functools.lru_cache(maxsize=1024)
def _compiled(sign: str, character: str) -> Sequence[re.Pattern[str]]:
    return [re.compile(form, re.IGNORECASE) for form in _escapes(character).get(sign, ())]


@functools.lru_cache(maxsize=1024)
def _escapes(character: str) -> Mapping[str, Sequence[str]]:
    """The escaped forms of one character, each with but one end, by their first character."""
    point, data = ord(character), character.encode("utf-8", "surrogatepass")
    units = character.encode("utf-16-be", "surrogatepass")
    escaped = [
        "".join(rf"\\{{1,8}}x{byte:02x}" for byte in data),
        "".join(rf"\\{{1,8}}{byte:03o}" for byte in data),
        "".join(rf"\\{{1,8}}u{units[at : at + 2].hex()}" for at in range(0, len(units), 2)),
        rf"\\{{1,8}}u\{{0{{0,6}}{point:x}\}}",
        rf"\\{{1,8}}u{point:08x}",
        rf"\\{{1,8}}x{point:02x}",
        *([rf"\\{{1,8}}{_LETTERS[character]}"] if character in _LETTERS else []),
        *([rf"\\{{{count}}}" for count in range(8, 1, -1)] if character == "\\" else [rf"\\{{1,8}}{re.escape(character)}"]),
    ]
    entity = (
        rf"&(?:amp;){{0,4}}(?:\#(?:0{{0,6}}{point}|x0{{0,6}}{point:x})|{'|'.join(map(re.escape, _names().get(character, ()))) or '(?!)'})"
    )
    return {
        "%": ["".join(f"%(?:25){{0,4}}{byte:02x}" for byte in data)],
        "=": ["".join(f"={byte:02x}" for byte in data)],
        "&": [f"{entity};", entity],
        "+": [r"\+"] if character == " " else [],
        "\\": escaped,
    }


@functools.cache
def _names() -> Mapping[str, Sequence[str]]:
    """The names of characters in HTML."""
    names: dict[str, list[str]] = {}
    for name, character in html.entities.html5.items():
        names.setdefault(character, []).append(name.rstrip(";"))
    return names


def _encoded(text: str, secret: str) -> Iterator[tuple[int, int]]:
    """Where all of a secret stands as hex, base64 or base32, with whatever separates lines and bytes."""
    data = secret.encode("utf-8", "surrogatepass")
    lower = text.translate(_IN_LOWER_CASE)
    yield from _separated(lower, r"[\s:-]+", [data.hex()])
    yield from _separated(text.translate(_BASE64_ALPHABET), r"\s+", _in_groups(data, 3, base64.b64encode))
    yield from _separated(lower, r"\s+", (one.lower() for one in _in_groups(data, 5, base64.b32encode)))


def _separated(text: str, separators: str, wanted: Iterable[str]) -> Iterator[tuple[int, int]]:
    """Where one of the texts that are wanted stands in a text, apart from separators."""
    joined = re.sub(separators, "", text)
    for one in wanted:
        at = joined.find(one)
        if at < 0:
            continue
        places = [place for place, character in enumerate(text) if not re.match(separators, character)]
        while at >= 0:
            yield places[at], places[at + len(one) - 1] + 1
            at = joined.find(one, at + len(one))


def _in_groups(data: bytes, size: int, encode: Callable[[bytes], bytes]) -> Iterator[str]:
    """What is the same of an encoding by groups of bytes wherever the data begin in a group."""
    bits = 8 * size // (4 if size == 3 else 8)
    for before in range(size):
        encoded = encode(bytes(before) + data).rstrip(b"=").decode()
        text = encoded[-(-8 * before // bits) : 8 * (before + len(data)) // bits]
        if len(text) >= _MIN_SECRET_CHARACTERS:
            yield text
