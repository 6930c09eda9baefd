"""The secret that the machines of a fleet share."""

import os
import pathlib

from perfkit.errors import UsageError
from perfkit.scenario.measure import Fleet

TOKEN_VARIABLE = "PERFKIT_FLEET_TOKEN"  # noqa: S105 - the name of a variable


def check_known_token(settings: Fleet, folder: pathlib.Path) -> None:
    """Raises UsageError if a token would be made for a run that does not print it, so that no machine could join."""
    if settings.scheduler is None and not read_token(folder / settings.token_file if settings.token_file else None):
        raise UsageError(
            f"--quiet: the token that is made for the machines of the fleet would not be printed: set {TOKEN_VARIABLE} here and on each machine, or "
            "fleet.token_file, or leave out --quiet"
        )


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
