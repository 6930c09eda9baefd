"""A target's address, parsed from a URL, with headers, TLS options and the secrets that must not be shown."""

import dataclasses
import ipaddress
import pathlib
import urllib.parse
from collections.abc import Mapping
from typing import Literal, Self, TypeAlias, TypeVar, cast

from perfkit.machine.own_addresses import is_loopback, is_this_machine
from perfkit.target.apis import ApiName
from perfkit.target.redaction import redact

_T = TypeVar("_T")
WireProtocol: TypeAlias = Literal["http", "grpc"]
NetworkPath: TypeAlias = Literal["unix socket", "loopback", "network"]

# by the URL standard for http and https, Triton's for grpc, that of a TLS ingress for grpcs
_DEFAULT_PORTS = {"http": 80, "https": 443, "grpc": 8001, "grpcs": 443}
_SOCKETS: dict[str, WireProtocol] = {"unix": "grpc", "grpc+unix": "grpc", "http+unix": "http"}
_EXPECTED = "http://HOST:PORT, https://, grpc:// or grpcs://, or unix:/path (gRPC) or http+unix:/path for a socket"


@dataclasses.dataclass(frozen=True, slots=True)
class Tls:
    """TLS options; the default `ca` is the system's authorities, the default `server_name` the URL's host."""

    ca: pathlib.Path | None = None
    cert: pathlib.Path | None = None
    key: pathlib.Path | None = None
    server_name: str = ""
    verify: bool = True


@dataclasses.dataclass(frozen=True)
class Address:
    """A target's host and port or Unix socket, and the headers of every request to it.

    `secrets` are texts that `redact` and `sanitize` remove from messages.
    """

    protocol: WireProtocol
    host: str
    port: int
    base_path: str = ""
    headers: Mapping[str, str] = dataclasses.field(default_factory=dict, repr=False)
    socket_path: str = ""
    tls: Tls | None = None
    secrets: frozenset[str] = dataclasses.field(default=frozenset(), repr=False)
    ip: str = ""
    """The IP address to connect to in place of all that `host` resolves to."""
    api: ApiName = "v2"
    endpoint: str = ""
    """Where the API's requests go, if it has several places for them."""
    replicas: tuple["Address", ...] = ()
    """The addresses of the target's other replicas."""

    @classmethod
    def parse(cls, url: str) -> Self:
        """Parses `http(s)://host:port/prefix`, `grpc(s)://host:port`, `unix:/path` or `http+unix://%2Fpath/prefix`.

        Ignores credentials, see `split_credentials`. Raises ValueError with a message that does not show them.
        """
        shown = redacted_url(url)
        try:
            parts = urllib.parse.urlsplit(split_credentials(url)[0])
            given_port = parts.port
        except ValueError:  # whose text may quote a password that contains a slash
            raise ValueError(f"expected {_EXPECTED}, with a port from 1 to 65535, found {shown!r}") from None
        if "$" in parts.netloc + parts.path:
            raise ValueError(f"variables are only allowed in the credentials and in headers, found {shown!r}")
        is_odd = not (parts.path.isascii() and parts.path.isprintable()) or {" ", "@"} & set(parts.path) or parts.path.startswith("//")
        if is_odd and (parts.netloc or parts.scheme not in _SOCKETS):  # a socket's path may contain any character
            raise ValueError(
                f"the path begins with //, or path or credentials contain characters that must be percent-encoded, in {shown!r}"
            )
        if parts.query or parts.fragment:
            raise ValueError(
                "a target's URL has no query or fragment; tokens belong in target.headers, such as authorization: Bearer ${TOKEN}"
            )
        if parts.scheme in _SOCKETS:
            # either the socket's path, or the percent-encoded path in place of a host, followed by a base path
            socket_path, base_path = (urllib.parse.unquote(parts.netloc), parts.path) if parts.netloc else (parts.path, "")
            if not socket_path.startswith("/"):
                raise ValueError(f"expected a socket's absolute path, such as {parts.scheme}:/run/server.sock, found {shown!r}")
            return cls(_SOCKETS[parts.scheme], "localhost", 0, base_path.rstrip("/"), socket_path=socket_path)
        if parts.scheme not in _DEFAULT_PORTS or not parts.hostname or given_port == 0:
            raise ValueError(f"expected {_EXPECTED}, found {shown!r}")
        try:
            host = host_name(parts.hostname)
        except ValueError as error:
            raise ValueError(f"{error}, in {shown!r}") from None
        protocol: WireProtocol = "grpc" if parts.scheme.startswith("grpc") else "http"
        tls = Tls() if parts.scheme in ("https", "grpcs") else None
        return cls(protocol, host, given_port or _DEFAULT_PORTS[parts.scheme], parts.path.rstrip("/"), tls=tls)

    @property
    def authority(self) -> str:
        """`host:port` for the Host header, with an IPv6 address in brackets; for a socket only the host."""
        if self.socket_path:
            return self.host
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"

    @property
    def network_path(self) -> NetworkPath:
        """How requests travel to the target; to any address of this machine over the loopback. A tunnel behind a port of it is not seen.

        A name is resolved, which blocks the first time.
        """
        if self.socket_path:
            return "unix socket"
        return "loopback" if is_this_machine(self.ip or self.host) else "network"

    @property
    def is_local(self) -> bool:
        """Whether the target, with all its replicas, runs on this machine."""
        return all(address.network_path != "network" for address in (self, *self.replicas))

    @property
    def is_private(self) -> bool:
        """Whether other machines cannot reach the target, by its text alone: a Unix socket, or the loopback."""
        return bool(self.socket_path) or is_loopback(self.host)

    @property
    def has_name(self) -> bool:
        """Whether `host` is a name that may resolve to several addresses; names of the loopback are one address."""
        if self.is_private or self.ip:
            return False
        try:
            ipaddress.ip_address(self.host)
        except ValueError:
            return True
        return False

    def __str__(self) -> str:
        if self.socket_path:
            return f"{'unix' if self.protocol == 'grpc' else 'http+unix'}:{self.socket_path}{self.base_path}"
        url = f"{self.protocol}{'s' if self.tls else ''}://{self.authority}{self.base_path}"
        return f"{url} ({self.ip})" if self.ip else url

    def redact(self, text: str) -> str:
        """A text with the target's secrets replaced by `<redacted>`, in whatever encoding they are."""
        return redact(text, self.secrets)

    def redacted(self, value: _T) -> _T:
        """What a server says of itself: a text, tuple or dataclass, with each text in it as `redact` gives it."""
        if not self.secrets:
            return value
        if isinstance(value, str):
            return cast("_T", self.redact(value))
        if isinstance(value, tuple):
            parts = map(self.redacted, value)
            return cast("_T", type(value)(*parts) if hasattr(value, "_fields") else tuple(parts))
        if dataclasses.is_dataclass(value) and not isinstance(value, type):
            return dataclasses.replace(
                value, **{field.name: self.redacted(getattr(value, field.name)) for field in dataclasses.fields(value)}
            )
        return value

    def sanitize(self, text: str, max_characters: int = 300) -> str:
        """A server's text without secrets and control characters; a longer one is cut and ends with its length."""
        text = self.redact(text)
        length = len(text)
        if length > max_characters:
            text = text[:max_characters]
        text = "".join(character if character.isprintable() else " " for character in text)
        return text if length <= max_characters else f"{text}… ({length:,} characters)"


def split_credentials(url: str) -> tuple[str, str]:
    """A URL without its `user:password@`, and `user:password` as written, empty if there is none."""
    scheme, slashes, rest = url.partition("://")
    netloc, slash, path = rest.partition("/")
    credentials, at, host = netloc.rpartition("@")
    if not (slashes and at):
        return url, ""
    return f"{scheme}://{host}{slash}{path}", credentials


def redacted_url(url: str) -> str:
    """A URL for display, `http://<redacted>@host`; also handles invalid URLs and unencoded credentials."""
    head, at, tail = url.rpartition("@")
    scheme, slashes, _ = head.partition("://")
    if not at or (url.partition(":")[0] in _SOCKETS and not slashes):  # a socket's path may contain any character
        return url
    return f"{scheme}://<redacted>@{tail}" if slashes and scheme.isalnum() else f"<redacted>@{tail}"


def host_name(name: str) -> str:
    """A host name in ASCII (IDNA) for DNS and TLS; raises ValueError if it is invalid."""
    if ":" in name:
        return name  # IPv6
    try:
        return name.encode("idna").decode("ascii")
    except UnicodeError:
        raise ValueError("not a valid host name") from None
