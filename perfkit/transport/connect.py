"""Connecting to a target: TLS contexts, and the errors of connections that cannot be opened."""

import ssl

from perfkit.errors import TargetError, UsageError
from perfkit.target.address import Address, Tls


def client_context(tls: Tls) -> ssl.SSLContext:
    """A context that trusts `tls.ca`, or the system's authorities; raises UsageError for unusable PEM files."""
    try:
        context = ssl.create_default_context(cafile=tls.ca)
    except (ssl.SSLError, OSError) as error:
        raise UsageError(f"target.tls.ca: {tls.ca} holds no certificates in PEM form: {_reason(error)}") from None
    if not tls.verify:
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
    if tls.cert is not None:
        try:
            # an empty passphrase: without one OpenSSL would ask on the terminal
            context.load_cert_chain(tls.cert, tls.key, password="")
        except (ssl.SSLError, OSError) as error:
            files = f"{tls.cert}{f' and {tls.key}' if tls.key else ''}"
            raise UsageError(
                f"target.tls.cert: {files} must be a certificate and its unencrypted private key in PEM form: {_reason(error)}"
            ) from None
    return context


def unreachable(address: Address, error: OSError) -> TargetError:
    """The error for a connection that could not be opened."""
    if isinstance(error, ssl.SSLError):
        return TargetError(f"{address} cannot be reached: {describe_tls_error(error)}.")
    reason = "no answer within the time-out" if isinstance(error, TimeoutError) else (error.strerror or str(error))
    return TargetError(
        f"{address} cannot be reached: {reason}. Is the server running, and is this its address?",
        may_pass=not isinstance(error, TimeoutError),
    )


def describe_tls_error(error: ssl.SSLError) -> str:
    """Why TLS failed, as the end of a sentence."""
    if isinstance(error, ssl.SSLCertVerificationError):
        return f"its certificate is not trusted ({error.verify_message.rstrip('.')}): see target.tls.ca and target.tls.server_name"
    match error.reason:
        case "WRONG_VERSION_NUMBER" | "HTTP_REQUEST" | "RECORD_LAYER_FAILURE":
            return "the port does not speak TLS: use http:// or grpc:// in target.url"
        case _:
            return f"TLS failed: {_reason(error)}"


def _reason(error: OSError) -> str:
    reason = getattr(error, "reason", None) or error.strerror or str(error)
    return str(reason).replace("_", " ").lower()
