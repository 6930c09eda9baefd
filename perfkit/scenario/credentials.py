"""Addresses with their secrets: header values, credentials in the URL, `${NAME}` from the environment."""

import base64
import dataclasses
import os
import pathlib
import re
import urllib.parse
from collections.abc import Mapping, Sequence

from perfkit.errors import ScenarioError
from perfkit.scenario.error_messages import on_one_line
from perfkit.scenario.target import Target, TlsOptions
from perfkit.target.address import Address, Tls, split_credentials

# headers whose values are not secret
_SHOWN = frozenset({"accept", "accept-encoding", "content-type", "host", "user-agent", "x-forwarded-host", "x-request-id"})
_SCHEMES = frozenset({"apikey", "basic", "bearer", "token"})  # words of an Authorization header that are not secret
_HEADER_NAME = re.compile(r"[A-Za-z0-9!#$%&'*+.^_`|~-]+")
_METADATA_NAME = re.compile(r"[a-z0-9_.-]+")
_FRAMING = frozenset({"connection", "content-length", "te", "transfer-encoding", "upgrade"})
_VARIABLE = re.compile(r"\$(\$\{\w+\})|\$\{(\w+)\}")  # an escaped one, or a name


def has_variable(text: str) -> bool:
    """Whether a text takes a value from the environment, as `${NAME}`."""
    return bool(_names(text))


def escaped(text: str) -> str:
    """A text that stands for this one: `$${NAME}` is sent as `${NAME}`."""
    return re.sub(r"(?=\$\{\w+\})", "$", text)


def is_shown(header: str, value: str) -> bool:
    """Whether results may show a header's value: its name is known to be harmless, and it contains no variable."""
    return header.lower() in _SHOWN and not has_variable(value)


def resolve_address(target: Target, url: str, folder: pathlib.Path, environ: Mapping[str, str] = os.environ) -> Address:
    """The address of the target at `url`; TLS files are relative to the scenario's folder.

    Raises ScenarioError if a variable is not set, a header cannot be sent, or a file is missing.
    """
    address = Address.parse(url)
    secrets: set[str] = set()
    headers: dict[str, str] = {}
    url_key = f"target.urls.{address.protocol}" if target.urls else "target.url"
    if credentials := split_credentials(url)[1]:
        # unquoted before variables are replaced: their values are not percent-encoded
        user, _, password = (_fill(url_key, urllib.parse.unquote(part), environ, secrets) for part in credentials.partition(":"))
        if ":" in user:
            raise ScenarioError(f"{url_key}: the user name must not contain a colon")
        token = base64.b64encode(f"{user}:{password}".encode()).decode()
        headers["Authorization"] = f"Basic {token}"
        secrets |= {token, f"{user}:{password}", password, urllib.parse.unquote(credentials)}
    for name, template in target.headers.items():
        key = f"target.headers.{name}"
        if not _HEADER_NAME.fullmatch(name):
            raise ScenarioError(f"target.headers.{on_one_line(name)}: not a valid header name")
        value = _fill(key, template, environ, secrets)
        if not (value.isascii() and value.isprintable()):
            raise ScenarioError(f"{key}: the value must be ASCII without line breaks")
        if not is_shown(name, template):
            secrets |= {value, *(word for word in value.split() if word.lower() not in _SCHEMES), *_decoded(value)}
            if name.lower().endswith("-bin"):
                secrets.add(base64.b64encode(value.encode()).decode().rstrip("="))  # as gRPC sends it
        if name.lower() in _FRAMING:
            raise ScenarioError(f"{key}: this header controls how requests are framed, which is the transport's task: remove it")
        if address.protocol == "grpc" and (name.lower().startswith("grpc-") or not _METADATA_NAME.fullmatch(name.lower())):
            raise ScenarioError(f"{key}: over gRPC a name consists of letters, digits, '_', '.' and '-', and must not begin with grpc-")
        headers = {other: text for other, text in headers.items() if other.lower() != name.lower()}
        headers[name] = value
    tls = _tls(target.tls, folder) if target.tls and address.tls else address.tls
    return dataclasses.replace(address, headers=headers, tls=tls, secrets=frozenset(secrets))


def resolve_replicas(target: Target, urls: Sequence[str], folder: pathlib.Path) -> Address:
    """The address of the first URL, with those of the others as its replicas; raises ScenarioError as `resolve_address` does."""
    first, *others = (resolve_address(target, url, folder) for url in urls)
    # each redacts the secrets of all, since messages of one may be shown with another's
    secrets = first.secrets.union(*(other.secrets for other in others))
    return dataclasses.replace(first, secrets=secrets, replicas=tuple(dataclasses.replace(other, secrets=secrets) for other in others))


def resolve_metrics_url(key: str, url: str, environ: Mapping[str, str] = os.environ) -> tuple[str, str]:
    """A URL without its credentials, and the value of the `Authorization` header for them, empty if there are none.

    Raises ScenarioError if a variable is not set.
    """
    plain, credentials = split_credentials(url)
    if not credentials:
        return url, ""
    user, _, password = (_fill(key, urllib.parse.unquote(part), environ, set()) for part in credentials.partition(":"))
    return plain, f"Basic {base64.b64encode(f'{user}:{password}'.encode()).decode()}"


def _decoded(value: str) -> set[str]:
    """The secrets in a Basic header in plain text: user and password together, and the password."""
    scheme, _, token = value.partition(" ")
    if scheme.lower() != "basic":
        return set()
    try:
        plain = base64.b64decode(token, validate=True).decode()
    except ValueError:
        return set()
    return {plain, plain.partition(":")[2]}


def _fill(key: str, template: str, environ: Mapping[str, str], secrets: set[str]) -> str:
    """Replaces each `${NAME}` by the environment's value, which is added to the secrets, and `$${NAME}` by `${NAME}`."""
    names = _names(template)
    if missing := [name for name in names if name not in environ]:
        raise ScenarioError(f"{key}: the environment variable {missing[0]} is not set")
    secrets |= {environ[name] for name in names}
    return _VARIABLE.sub(lambda match: match[1] or environ[match[2]], template)


def _names(template: str) -> list[str]:
    """The variables of a text."""
    return [name for _, name in _VARIABLE.findall(template) if name]


def _tls(options: TlsOptions, folder: pathlib.Path) -> Tls:
    def resolve(key: str, name: str | None) -> pathlib.Path | None:
        if name is not None and not (folder / name).is_file():
            raise ScenarioError(f"target.tls.{key}: no such file: {folder / name}")
        return None if name is None else folder / name

    ca, cert, own_key = resolve("ca", options.ca), resolve("cert", options.cert), resolve("key", options.key)
    return Tls(ca, cert, own_key, server_name=options.server_name, verify=options.verify)
