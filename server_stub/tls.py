"""The server's certificate and its key, for all that is asked over TLS."""

import dataclasses
import pathlib
import ssl

from perfkit.errors import UsageError


@dataclasses.dataclass(frozen=True, slots=True)
class Identity:
    """A certificate with its chain, and its key: both as PEM, and as Python's ssl takes them."""

    certificate: bytes
    key: bytes
    context: ssl.SSLContext


def read_identity(certificate: pathlib.Path, key: pathlib.Path) -> Identity:
    """Reads both files; raises UsageError where they cannot be read or do not belong together."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.set_alpn_protocols(["http/1.1"])
    try:
        # an encrypted key would be asked for on the terminal
        context.load_cert_chain(certificate, key, password="")
        return Identity(certificate.read_bytes(), key.read_bytes(), context)
    except (OSError, ssl.SSLError) as error:
        raise UsageError(
            f"--tls-cert {certificate} with --tls-key {key}: they cannot be used: {error}. Both are PEM files, and the key is not encrypted."
        ) from None
