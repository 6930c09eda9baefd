"""The secret that the machines of a fleet share."""

import os
import pathlib

from perfkit.errors import UsageError

TOKEN_VARIABLE = "PERFKIT_FLEET_TOKEN"  # noqa: S105 - the name of a variable


def read_token(file: pathlib.Path | None) -> str:
    """The token from a file, or else the environment; empty if there is none. Raises UsageError."""
    if file is None:
        return os.environ.get(TOKEN_VARIABLE, "").strip()
    try:
        token = file.read_text(encoding="utf-8").strip()
    except (OSError, UnicodeDecodeError) as error:
        raise UsageError(f"the token file {file} cannot be read: {getattr(error, 'strerror', None) or error}") from None
    if not token:
        raise UsageError(f"the token file {file} is empty")
    return token
