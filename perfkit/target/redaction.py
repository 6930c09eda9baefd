"""Secrets found in a text in whatever encoding a program may have repeated them."""

import base64
import functools
import html.entities
import re
from collections.abc import Callable, Iterator

REDACTED = "<redacted>"
# shorter texts are hardly secrets, and removing them would make messages unreadable
_MIN_SECRET_CHARACTERS = 4
# as JSON, Python and C escape them
_LETTERS = {"\n": "n", "\t": "t", "\r": "r", "\b": "b", "\f": "f", "\a": "a", "\v": "v"}


def redact(text: str, secrets: frozenset[str]) -> str:
    """A text in which each secret, in any of the encodings of `_pattern`, is `<redacted>`; the longest first: one may contain another."""
    for secret in sorted(secrets, key=len, reverse=True):
        if len(secret) >= _MIN_SECRET_CHARACTERS:
            text = _pattern(secret).sub(REDACTED, text)
    return text


@functools.lru_cache(maxsize=256)
def _pattern(secret: str) -> re.Pattern[str]:
    r"""What a secret looks like: as it is or in another case; each character as itself or escaped; or all of it as hex, base64 or base32.

    Characters may be escaped as in JSON, Python and C (`\u0041`, `\x41`, `\101`, `\"`), URLs (`%41`, also twice, and `+`), HTML and XML
    (`&#65;`, `&amp;`) and quoted-printable (`=41`), and each in its own way. Of base64 and base32 it is found in the middle of a longer
    text, too.
    """
    data = secret.encode("utf-8", "surrogatepass")
    whole = [
        r"[\s:-]?".join(f"{byte:02x}" for byte in data),
        *_in_groups(data, 3, base64.b64encode),
        *_in_groups(data, 5, base64.b32encode),
    ]
    return re.compile("|".join(("".join(map(_character, secret)), *whole)), re.IGNORECASE)


def _character(character: str) -> str:
    """The forms of one character."""
    point, data = ord(character), character.encode("utf-8", "surrogatepass")
    units = character.encode("utf-16-be", "surrogatepass")
    forms = [
        "".join(f"%(?:25){{0,4}}{byte:02x}" for byte in data),
        "".join(f"={byte:02x}" for byte in data),
        "".join(rf"\\{{1,8}}x{byte:02x}" for byte in data),
        "".join(rf"\\{{1,8}}{byte:03o}" for byte in data),
        "".join(rf"\\{{1,8}}u{units[at : at + 2].hex()}" for at in range(0, len(units), 2)),
        rf"\\{{1,8}}u\{{0{{0,6}}{point:x}\}}",
        rf"\\{{1,8}}u{point:08x}",
        rf"\\{{1,8}}x{point:02x}",
        rf"&(?:amp;){{0,4}}(?:\#(?:0{{0,6}}{point}|x0{{0,6}}{point:x})|{'|'.join(_names(character)) or '(?!)'});?",
    ]
    forms += [r"\+"] if character == " " else [rf"\\{{1,8}}{_LETTERS[character]}"] if character in _LETTERS else []
    forms.append(
        r"\\{1,8}" if character == "\\" else rf"\\{{0,8}}{re.escape(character)}"
    )  # last: it is the beginning of some of the others
    return f"(?:{'|'.join(dict.fromkeys(forms))})"


def _names(character: str) -> list[str]:
    return [re.escape(name.rstrip(";")) for name, one in html.entities.html5.items() if one == character]


def _in_groups(data: bytes, size: int, encode: Callable[[bytes], bytes]) -> Iterator[str]:
    """What is the same of an encoding by groups of bytes wherever the data begin in a group, in either alphabet."""
    bits = 8 * size // (4 if size == 3 else 8)
    for before in range(size):
        encoded = encode(bytes(before) + data).rstrip(b"=").decode()
        first = -(-8 * before // bits)
        whole = 8 * (before + len(data)) // bits
        text = encoded[first:whole]
        if len(text) >= _MIN_SECRET_CHARACTERS:
            pattern = r"\s{0,4}".join({"+": "[+-]", "/": "[/_]"}.get(one, one) for one in text)
            yield f"(?-i:{pattern})" if size == 3 else pattern
