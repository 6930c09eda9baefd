"""The bytes between the driver of a fleet and its machines: a handshake with a shared token, then numbered frames. No I/O.

Both sides prove that they know the token by an HMAC-SHA256 (RFC 2104) over both sides' random nonces. A frame is the length of its body
in eight bytes, the body, and an HMAC of its number and body under a key of its own for each direction, so that nobody without the
token can send, repeat, leave out or change a frame. Frames are not encrypted: that is what TLS is for.
"""

import hashlib
import hmac
import itertools
from typing import Literal

MAGIC = b"perfkit fleet 1\n"
NONCE_BYTES, MAC_BYTES, LENGTH_BYTES = 32, 32, 8
Side = Literal["driver", "machine"]


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

    def is_next(self, body: bytes, mac: bytes) -> bool:
        """Whether these are the body and the HMAC of the next frame."""
        return hmac.compare_digest(mac, self._next_mac(body))

    def _next_mac(self, body: bytes) -> bytes:
        return _mac(self._key, next(self._numbers).to_bytes(8, "big") + body)


def _mac(key: bytes, data: bytes) -> bytes:
    return hmac.digest(key, data, hashlib.sha256)
