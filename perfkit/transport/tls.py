"""TLS for the HTTP engines: the context of a connection, and what went wrong with one, in a sentence."""

import ssl

from perfkit.errors import UsageError
from perfkit.target.address import Tls


def client_context(tls: Tls) -> ssl.SSLContext:
    """A context that trusts `tls.ca`, or the system's authorities; raises UsageError for files that hold no PEM or do not fit."""
    try:
        context = ssl.create_default_context(cafile=tls.ca)
    except (ssl.SSLError, OSError) as error:
        raise UsageError(f"target.tls.ca: {tls.ca} holds no certificates in PEM form: {_reason(error)}") from None
    if not tls.verify:
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
    if tls.cert is not None:
        try:
            # never ask for a passphrase: nobody may sit at the terminal
            context.load_cert_chain(tls.cert, tls.key, password="")
        except (ssl.SSLError, OSError) as error:
            files = f"{tls.cert}{f' and {tls.key}' if tls.key else ''}"
            raise UsageError(
                f"target.tls.cert: {files} are no certificate with its unencrypted key, in PEM form: {_reason(error)}"
            ) from None
    return context


def describe_tls_error(error: ssl.SSLError) -> str:
    """The sentence for a connection that TLS refused."""
    if isinstance(error, ssl.SSLCertVerificationError):
        return f"its certificate is not trusted ({error.verify_message.rstrip('.')}): see target.tls.ca and target.tls.server_name"
    match error.reason:
        case "WRONG_VERSION_NUMBER" | "HTTP_REQUEST" | "RECORD_LAYER_FAILURE":
            return "the port does not speak TLS: is it http:// or grpc://"
        case _:
            return f"TLS failed: {_reason(error)}"


def _reason(error: OSError) -> str:
    reason = getattr(error, "reason", None) or error.strerror or str(error)
    return str(reason).replace("_", " ").lower()
