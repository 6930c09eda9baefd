"""Secrets of a scenario: credentials, header values and `${NAME}` of the environment in addresses, and scenarios that are shown without them."""

import base64
import dataclasses
import os
import pathlib
import re
import shlex
import urllib.parse
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from perfkit.errors import ScenarioError
from perfkit.scenario.origins import URL_KEYS, KeyPath, may_hold_command, on_one_line
from perfkit.scenario.secret_values import SecretRereading, secret_values
from perfkit.scenario.target import Target, TlsOptions
from perfkit.target.address import Address, Tls, redacted_url, split_credentials
from perfkit.target.command import command_words

# headers whose values are not secret
_SHOWN = frozenset({"accept", "accept-encoding", "content-type", "host", "user-agent", "x-forwarded-host", "x-request-id"})
_SCHEMES = frozenset({"apikey", "basic", "bearer", "token"})  # words of an Authorization header that are not secret
_HEADER_NAME = re.compile(r"[A-Za-z0-9!#$%&'*+.^_`|~-]+")
_METADATA_NAME = re.compile(r"[a-z0-9_.-]+")
_FRAMING = frozenset({"connection", "content-length", "te", "transfer-encoding", "upgrade"})
_VARIABLE = re.compile(r"\$(\$\{\w+\})|\$\{(\w+)\}")  # an escaped one, or a name
REDACTED = "<redacted>"


def has_variable(text: str) -> bool:
    """Whether a text takes a value from the environment, as `${NAME}`."""
    return bool(_names(text))


def escaped(text: str) -> str:
    """A text that stands for this one: `$${NAME}` is sent as `${NAME}`."""
    return re.sub(r"(?=\$\{\w+\})", "$", text)


def is_shown(header: str, value: str) -> bool:
    """Whether results may show a header's value: its name is known to be harmless, and it contains no variable."""
    return header.lower() in _SHOWN and not has_variable(value)


def resolve_address(
    target: Target,
    url: str,
    folder: pathlib.Path,
    environ: Mapping[str, str] = os.environ,
    rereading: SecretRereading | None = None,
) -> Address:
    """The address of the target at `url`; TLS files are relative to the scenario's folder. See `secret_values` for `rereading`.

    Raises ScenarioError if a variable is not set, a secret cannot be read, a header cannot be sent, or a file is missing.
    """
    address = Address.parse(url)
    environ = {**environ, **secret_values(target, folder, rereading)} if target.secrets else environ
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
    base_path = address.base_path.removesuffix(target.spoken_api.base_path_suffix)
    spoken: dict[str, Any] = {"api": target.api, "endpoint": target.spoken_endpoint.name}
    return dataclasses.replace(address, base_path=base_path, headers=headers, tls=tls, secrets=frozenset(secrets), **spoken)


def resolve_replicas(target: Target, urls: Sequence[str], folder: pathlib.Path, rereading: SecretRereading | None = None) -> Address:
    """The address of the first URL, with those of the others as its replicas; raises ScenarioError as `resolve_address` does."""
    first, *others = (resolve_address(target, url, folder, rereading=rereading) for url in urls)
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


def secrets_of(authorization: str) -> set[str]:
    """What must not be shown of the value of an Authorization header; empty for none."""
    return {authorization, authorization.partition(" ")[2], *_decoded(authorization)} - {""}


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


def without_secrets(value: Any, key: str = "") -> Any:
    """A scenario's document, or the value of the dotted `key`, with header values, credentials of URLs and arguments of secrets' commands redacted."""
    return _replaced(value, _path(key), lambda _, url: redacted_url(url), lambda *_: REDACTED, _shown_command)


def _shown_command(command: str) -> str:
    """The program of a command that gives a secret; its arguments may hold another one."""
    program, *arguments = command_words(command)
    return f"{shlex.quote(program)} {REDACTED}" if arguments else command


def shown_override(key_path: KeyPath, key: str, value: Any, text: str) -> str:
    """An override with its secrets redacted, for results; `text` is the value as written."""
    holds_secrets = (
        key_path == ("target",) and isinstance(value, dict) and bool({"headers", "url", "urls", "metrics_url", "secrets"} & set(value))
    )
    holds_secrets |= "@" in text and (key_path[:1] == ("metrics",) or (key_path[:2] in URL_KEYS and not isinstance(value, str)))
    holds_secrets |= key_path[:1] in (("sweep",), ("workloads",)) and ("@" in text or "headers" in text or "secrets" in text)
    holds_secrets |= may_hold_command(key_path)
    if key_path[:2] == ("target", "headers") or holds_secrets:
        return f"{key}={REDACTED}"
    return f"{key}={redacted_url(str(value)) if key_path[:2] in URL_KEYS and isinstance(value, str) else text}"


def shown_setting(setting: str) -> str:
    """A `KEY=VALUE` of the command line with its secrets redacted."""
    key, equals, text = setting.partition("=")
    path = _path(key)
    if not equals:
        return key.partition(":")[0]  # the text after a key may be a secret
    may_hold = "@" in text or "headers" in setting.lower() or "secrets" in text.lower() or may_hold_command(path)
    if path[0] not in ("target", "metrics", "sweep", "workloads") or not may_hold:
        return setting
    is_url = path[:2] in URL_KEYS and text[:1] not in ("[", "{")
    return f"{key}={redacted_url(text) if is_url else REDACTED}"


def with_variables(document: Mapping[str, Any]) -> tuple[dict[str, Any], dict[str, str]]:
    """A scenario's keys and values with environment variables in place of its secrets, and the key that each variable is for.

    The variables are `${TARGET_USER}`, `${TARGET_PASSWORD}`, `${METRICS_PASSWORD}`, or named after a header, such as
    `${TARGET_AUTHORIZATION}`. Secrets that are given by variables already stay as they are.
    """
    values: dict[str, str] = {}
    keys: dict[str, str] = {}

    def variable(path: tuple[str, ...], name: str, secret: str) -> str:
        prefix = "TARGET" if path[0] == "target" and path[1] != "metrics_url" else "METRICS"
        wanted = f"{prefix}_{re.sub(r'[^A-Z0-9]+', '_', name.upper())}"
        number = 1
        while values.setdefault(chosen := wanted if number == 1 else f"{wanted}_{number}", secret) != secret:
            number += 1
        keys.setdefault(chosen, ".".join(path))
        return f"${{{chosen}}}"

    def url_with_variables(path: tuple[str, ...], url: str) -> str:
        plain, credentials = split_credentials(url)
        if not credentials or has_variable(credentials):
            return url if credentials else redacted_url(url)
        user, colon, password = credentials.partition(":")
        scheme, slashes, rest = plain.partition("://")
        parts = [variable(path, name, part) if part else "" for name, part in (("user", user), ("password", password))]
        return f"{scheme}{slashes}{parts[0]}{colon}{parts[1]}@{rest}"

    def header_with_variable(path: tuple[str, ...], value: str) -> str:
        return value if has_variable(value) else variable(path, path[-1], value)

    return _replaced(dict(document), (), url_with_variables, header_with_variable), keys


_Replace = Callable[[tuple[str, ...], str], str]


def _replaced(
    value: Any,
    path: tuple[str, ...],
    replace_url: _Replace,
    replace_header: _Replace,
    replace_command: Callable[[str], str] = lambda command: command,
) -> Any:
    """A value whose URLs, header values and commands of secrets are replaced; `path` is its key's, in lower case and without the indices of lists."""
    if isinstance(value, dict):
        is_sweep = path == ("sweep",)
        paths = {key: _path(str(key)) if is_sweep else (*path, str(key).lower()) for key in value}
        return {key: _replaced(inner, paths[key], replace_url, replace_header, replace_command) for key, inner in value.items()}
    if isinstance(value, list | tuple):
        return [_replaced(inner, path, replace_url, replace_header, replace_command) for inner in value]
    path = path[1:] if path[:1] == ("workloads",) else path  # each workload of a mix has keys of the scenario
    if path[:2] == ("target", "headers") and len(path) > 2:
        return value if value is None or is_shown(".".join(path[2:]), str(value)) else replace_header(path, str(value))
    if not isinstance(value, str):
        return value
    if path[:2] == ("target", "secrets") and path[3:] == ("command",):
        return replace_command(value)
    return replace_url(path, value) if path[:2] in URL_KEYS else value


def _path(key: str) -> tuple[str, ...]:
    return tuple(key.lower().split(".")) if key else ()
