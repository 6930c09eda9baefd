"""The secret that the driver of a fleet and its machines share: where it is read, how strong it must be, and what it proves.

Both sides prove that they know the token by an HMAC-SHA256 (RFC 2104) over both sides' random nonces. Then they send frames: the length of a body
in eight bytes, the body, and an HMAC of its number and body under a key of its own for each direction, so that nobody without the
token can send, repeat, leave out or change a frame. Frames are not encrypted: that is what TLS is for.
"""

import collections
import functools
import hashlib
import hmac
import itertools
import math
import os
import pathlib
import secrets
from typing import Literal

from perfkit.errors import UsageError
from perfkit.scenario.measure import Fleet

TOKEN_VARIABLE = "PERFKIT_FLEET_TOKEN"  # noqa: S105 - the name of a variable
_LEAST_CHARACTERS, _LEAST_BITS = 20, 60
_LONGEST_FILE_BYTES = 2**16
MAGIC = b"perfkit fleet 2\n"
NONCE_BYTES, MAC_BYTES, LENGTH_BYTES = 32, 32, 8
Side = Literal["driver", "machine"]


def check_known_token(settings: Fleet, folder: pathlib.Path) -> None:
    """Raises UsageError if a token would be made for a run that does not print it, so that no machine could join."""
    if settings.scheduler is None and not read_token(folder / settings.token_file if settings.token_file else None):
        raise UsageError(
            f"--quiet: the token that is made for the machines of the fleet would not be printed: set {TOKEN_VARIABLE} here and on each machine, or "
            "fleet.token_file, or leave out --quiet"
        )


def read_token(file: pathlib.Path | None) -> str:
    """The token from a file, or else the environment; empty if there is none. Raises UsageError, also for one that could be guessed."""
    where = TOKEN_VARIABLE if file is None else f"the token file {file}"
    try:
        if file is None:
            token = os.environ.get(TOKEN_VARIABLE, "").strip()
        else:
            with file.open("rb") as opened:
                token = opened.read(_LONGEST_FILE_BYTES).decode().strip()
    except (OSError, UnicodeDecodeError) as error:
        raise UsageError(f"{where} cannot be read: {getattr(error, 'strerror', None) or error}") from None
    if file is not None and not token:
        raise UsageError(f"{where} is empty")
    if token and (why := weakness(token)):
        raise UsageError(f"{where}: {why}")
    return token


@functools.cache
def new_token() -> str:
    """A token that cannot be guessed; the same for all runs of a command, so that a machine can stay for the next."""
    return secrets.token_urlsafe(24)


def weakness(token: str) -> str:
    """Why a token could be found by trying, as whoever has recorded a join can do; empty if it is long and varied enough.

    Its bits are estimated by the frequencies of its characters; one that repeats itself has none.
    """
    counts = collections.Counter(token).values()
    bits = -sum(count * math.log2(count / len(token)) for count in counts)
    repeats = token in (token + token)[1:-1]
    if len(token) >= _LEAST_CHARACTERS and bits >= _LEAST_BITS and not repeats:
        return ""
    return (
        f"it could be guessed: it has {len(token)} characters, {len(counts)} of them different; make one of at least {_LEAST_CHARACTERS} random "
        "characters, such as by `openssl rand -hex 24`"
    )


def proof(token: str, side: Side, driver_nonce: bytes, machine_nonce: bytes) -> bytes:
    """What `side` sends to show that it knows the token; a proof of one side is none of the other."""
    return _mac(token.encode(), f"{side} knows the token".encode() + driver_nonce + machine_nonce)


def is_proof(given: bytes, token: str, side: Side, driver_nonce: bytes, machine_nonce: bytes) -> bool:
    """Whether `given` is that side's `proof`, compared in constant time."""
    return hmac.compare_digest(given, proof(token, side, driver_nonce, machine_nonce))


class Sealer:
    """Makes or checks the frames that one side sends, in their order."""

    def __init__(self, token: str, sender: Side, driver_nonce: bytes, machine_nonce: bytes) -> None:
        self._key = _mac(token.encode(), f"frames of the {sender}".encode() + driver_nonce + machine_nonce)
        self._numbers = itertools.count()

    def seal(self, body: bytes) -> bytes:
        """The next frame, with this body."""
        return len(body).to_bytes(LENGTH_BYTES, "big") + body + self._next_mac(body)

    def is_next(self, body: bytes | bytearray, mac: bytes | bytearray) -> bool:
        """Whether these are the body and the HMAC of the next frame."""
        return hmac.compare_digest(mac, self._next_mac(body))

    def _next_mac(self, body: bytes | bytearray) -> bytes:
        return _mac(self._key, next(self._numbers).to_bytes(8, "big") + body)


def _mac(key: bytes, data: bytes) -> bytes:
    return hmac.digest(key, data, hashlib.sha256)
