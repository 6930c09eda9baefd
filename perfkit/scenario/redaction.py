"""Scenarios without their secrets: as shown in results, and as files that read the secrets from environment variables."""

import re
from collections.abc import Callable, Mapping
from typing import Any

from perfkit.scenario.credentials import has_variable, is_shown
from perfkit.scenario.error_messages import URL_KEYS, KeyPath
from perfkit.target.address import redacted_url, split_credentials

REDACTED = "<redacted>"


def without_secrets(value: Any, key: str = "") -> Any:
    """A scenario's document, or the value of the dotted `key`, with header values and credentials of URLs redacted."""
    return _replaced(value, _path(key), lambda _, url: redacted_url(url), lambda *_: REDACTED)


def shown_override(key_path: KeyPath, key: str, value: Any, text: str) -> str:
    """An override with its secrets redacted, for results; `text` is the value as written."""
    holds_secrets = key_path == ("target",) and isinstance(value, dict) and bool({"headers", "url", "urls", "metrics_url"} & set(value))
    holds_secrets |= "@" in text and (key_path[:1] == ("metrics",) or (key_path[:2] in URL_KEYS and not isinstance(value, str)))
    holds_secrets |= key_path[:1] in (("sweep",), ("workloads",)) and ("@" in text or "headers" in text)
    if key_path[:2] == ("target", "headers") or holds_secrets:
        return f"{key}={REDACTED}"
    return f"{key}={redacted_url(str(value)) if key_path[:2] in URL_KEYS and isinstance(value, str) else text}"


def shown_setting(setting: str) -> str:
    """A `KEY=VALUE` of the command line with its secrets redacted."""
    key, equals, text = setting.partition("=")
    path = _path(key)
    if not equals:
        return key.partition(":")[0]  # the text after a key may be a secret
    if path[0] not in ("target", "metrics", "sweep", "workloads") or not ("@" in text or "headers" in setting.lower()):
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


def _replaced(value: Any, path: tuple[str, ...], replace_url: _Replace, replace_header: _Replace) -> Any:
    """A value whose URLs and header values are replaced; `path` is its key's, in lower case and without the indices of lists."""
    if isinstance(value, dict):
        is_sweep = path == ("sweep",)
        paths = {key: _path(str(key)) if is_sweep else (*path, str(key).lower()) for key in value}
        return {key: _replaced(inner, paths[key], replace_url, replace_header) for key, inner in value.items()}
    if isinstance(value, list | tuple):
        return [_replaced(inner, path, replace_url, replace_header) for inner in value]
    path = path[1:] if path[:1] == ("workloads",) else path  # each workload of a mix has keys of the scenario
    if path[:2] == ("target", "headers") and len(path) > 2:
        return value if value is None or is_shown(".".join(path[2:]), str(value)) else replace_header(path, str(value))
    return replace_url(path, value) if isinstance(value, str) and path[:2] in URL_KEYS else value


def _path(key: str) -> tuple[str, ...]:
    return tuple(key.lower().split(".")) if key else ()
