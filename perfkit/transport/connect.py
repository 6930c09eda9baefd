"""Connecting to a target: TLS contexts, and the errors of connections that cannot be opened."""

import pathlib
import ssl

from perfkit.errors import MeasurementError, TargetError, UsageError
from perfkit.input_file import open_input
from perfkit.machine.limits import is_file_limit
from perfkit.target.address import Address, Tls

FILE_LIMIT = "the load generator has reached its limit of open files"
"""The beginning of the message about a connection that failed for that reason."""
NO_CONNECTION_FREE = "no connection became free within the time-out"
"""The message about a request that waited at `target.max_connections`, or at the limit of open files."""
OWN_LIMITS = (FILE_LIMIT, NO_CONNECTION_FREE)
"""How the errors of requests begin that perfkit itself did not send: not of the target, and not to be sent again."""
CERTIFICATE_HINT = "it may require a client certificate (target.tls.cert)"
"""What may be the cause where a server closes a connection after the TLS handshake without saying why."""
FILE_LIMIT_REMEDY = "Raise the limit (ulimit -n), or lower target.max_connections."


def client_context(tls: Tls) -> ssl.SSLContext:
    """A context that trusts `tls.ca`, or the system's authorities; raises UsageError for unusable PEM files."""
    try:
        _check_regular(tls.ca)
        context = ssl.create_default_context(cafile=tls.ca)
    except (ssl.SSLError, OSError) as error:
        raise UsageError(f"target.tls.ca: {tls.ca} holds no certificates in PEM form: {_reason(error)}") from None
    if not tls.verify:
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
    if tls.cert is not None:
        try:
            # an empty passphrase: without one OpenSSL would ask on the terminal
            _check_regular(tls.cert, tls.key)
            context.load_cert_chain(tls.cert, tls.key, password="")
        except (ssl.SSLError, OSError) as error:
            files = f"{tls.cert}{f' and {tls.key}' if tls.key else ''}"
            raise UsageError(
                f"target.tls.cert: {files} must be a certificate and its unencrypted private key in PEM form: {_reason(error)}"
            ) from None
    return context


def _check_regular(*files: pathlib.Path | None) -> None:
    """Raises OSError for a device, whose end OpenSSL would wait for."""
    for file in files:
        if file is not None:
            open_input(file).close()


def unreachable(address: Address, error: OSError) -> TargetError | MeasurementError:
    """The error for a connection that could not be opened: the target's, or this process's own file limit."""
    if is_file_limit(error):
        return MeasurementError(f"{FILE_LIMIT}, so {address} could not be connected to. {FILE_LIMIT_REMEDY}")
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
