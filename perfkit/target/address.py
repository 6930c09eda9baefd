"""Where a target is and how to reach it: one value, read from a URL, that never shows its secrets."""

import dataclasses
import ipaddress
import json
import pathlib
import urllib.parse
from collections.abc import Mapping
from typing import Literal, Self, TypeAlias

Protocol: TypeAlias = Literal["http", "grpc"]
NetworkPath: TypeAlias = Literal["unix socket", "loopback", "network"]

# what a port left out means: the URL standard's for http and https, Triton's for gRPC, and a TLS ingress's
_DEFAULT_PORTS = {"http": 80, "https": 443, "grpc": 8001, "grpcs": 443}
_SOCKETS: dict[str, Protocol] = {"unix": "grpc", "grpc+unix": "grpc", "http+unix": "http"}
_EXPECTED = "http://HOST:PORT, https://, grpc:// or grpcs://, or unix:/path (gRPC) or http+unix:/path for a socket"
# a shorter text is no secret, and taking it out of a sentence would leave little of that
_SHORTEST_SECRET = 4


@dataclasses.dataclass(frozen=True, slots=True)
class Tls:
    """How a TLS connection is made; no `ca` means the system's authorities, no `server_name` the URL's host."""

    ca: pathlib.Path | None = None
    cert: pathlib.Path | None = None
    key: pathlib.Path | None = None
    server_name: str = ""
    verify: bool = True


@dataclasses.dataclass(frozen=True)
class Address:
    """A target's host and port, or its Unix socket, and what every request to it carries.

    `secrets` are the texts that no sentence may show: `sanitize` takes them out.
    """

    protocol: Protocol
    host: str
    port: int
    base_path: str = ""
    headers: Mapping[str, str] = dataclasses.field(default_factory=dict, repr=False)
    socket_path: str = ""
    tls: Tls | None = None
    secrets: frozenset[str] = dataclasses.field(default=frozenset(), repr=False)

    @classmethod
    def parse(cls, url: str) -> Self:
        """Reads `http(s)://host:port/prefix`, `grpc(s)://host:port`, `unix:/path` or `http+unix://%2Fpath/prefix`.

        Credentials in the URL are left out: see `split_credentials`. Raises ValueError with a sentence that shows no credentials.
        """
        shown = redacted_url(url)
        try:
            parts = urllib.parse.urlsplit(split_credentials(url)[0])
            given_port = parts.port
        except ValueError:  # its text may quote a password with a slash in it
            raise ValueError(f"expected {_EXPECTED}, with a port from 1 to 65535, found {shown!r}") from None
        if "$" in parts.netloc + parts.path:
            raise ValueError(f"variables are filled in for credentials and headers alone, found {shown!r}")
        is_odd = not (parts.path.isascii() and parts.path.isprintable()) or {" ", "@"} & set(parts.path) or parts.path.startswith("//")
        if is_odd and (parts.netloc or parts.scheme not in _SOCKETS):  # a socket's own path may hold any character
            raise ValueError(
                f"the path, or the credentials, hold characters that must be percent-encoded, or it begins with //, in {shown!r}"
            )
        if parts.query or parts.fragment:
            raise ValueError("a target's URL ends with its path; tokens stand in target.headers, such as authorization: Bearer ${TOKEN}")
        if parts.scheme in _SOCKETS:
            # the socket's own path, or percent-encoded where a host stands, with a base path behind it
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
        protocol: Protocol = "grpc" if parts.scheme.startswith("grpc") else "http"
        tls = Tls() if parts.scheme in ("https", "grpcs") else None
        return cls(protocol, host, given_port or _DEFAULT_PORTS[parts.scheme], parts.path.rstrip("/"), tls=tls)

    @property
    def authority(self) -> str:
        """`host:port` as requests name it, an IPv6 host in brackets; the host alone for a socket."""
        if self.socket_path:
            return self.host
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"

    @property
    def network_path(self) -> NetworkPath:
        """How requests travel to the target, judged by the address alone: a tunnel behind a loopback port is not seen."""
        if self.socket_path:
            return "unix socket"
        if self.host == "localhost" or self.host.endswith(".localhost"):  # reserved for the loopback (RFC 6761, 6.3)
            return "loopback"
        try:
            host = ipaddress.ip_address(self.host)
        except ValueError:
            return "network"
        return "loopback" if (getattr(host, "ipv4_mapped", None) or host).is_loopback else "network"

    @property
    def is_local(self) -> bool:
        """Whether the target runs on this machine."""
        return self.network_path != "network"

    def __str__(self) -> str:
        if self.socket_path:
            return f"{'unix' if self.protocol == 'grpc' else 'http+unix'}:{self.socket_path}{self.base_path}"
        return f"{self.protocol}{'s' if self.tls else ''}://{self.authority}{self.base_path}"

    def redact(self, text: str) -> str:
        """A text without the target's secrets."""
        # as it is, and as programs quote it; a secret may hold another
        forms = {form for one in self.secrets for form in (one, json.dumps(one)[1:-1], repr(one)[1:-1], urllib.parse.quote(one, safe=""))}
        for secret in sorted(forms, key=len, reverse=True):
            if len(secret) >= _SHORTEST_SECRET:
                text = text.replace(secret, "<redacted>")
        return text

    def sanitize(self, text: str, longest: int = 300) -> str:
        """A server's sentence without the target's secrets, without control characters, and not too long."""
        text = "".join(character if character.isprintable() else " " for character in self.redact(text))
        return text if len(text) <= longest else text[:longest] + "…"


def split_credentials(url: str) -> tuple[str, str]:
    """A URL without its `user:password@`, and those as they stand there, empty where there are none."""
    scheme, slashes, rest = url.partition("://")
    netloc, slash, path = rest.partition("/")
    credentials, at, host = netloc.rpartition("@")
    if not (slashes and at):
        return url, ""
    return f"{scheme}://{host}{slash}{path}", credentials


def redacted_url(url: str) -> str:
    """A URL as it may be shown, `http://<redacted>@host`, also one that is none, or whose credentials are not encoded."""
    head, at, tail = url.rpartition("@")
    scheme, slashes, _ = head.partition("://")
    if not at or (url.partition(":")[0] in _SOCKETS and not slashes):  # a socket's path may hold any character
        return url
    return f"{scheme}://<redacted>@{tail}" if slashes and scheme.isalnum() else f"<redacted>@{tail}"


def host_name(name: str) -> str:
    """A host as DNS and TLS take it, in ASCII; raises ValueError where it can be none."""
    if ":" in name:
        return name  # IPv6
    try:
        return name.encode("idna").decode("ascii")
    except UnicodeError:
        raise ValueError("this is no host name") from None
