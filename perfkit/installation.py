"""Where perfkit is published and how it is installed: what changes here is all that messages need to know of a release."""

import os
import pathlib

REPOSITORY = "https://github.com/OWNER/perfkit"
"""The address of the repository. OWNER stands for the account that publishes it; RELEASING.md says when it gets its name."""

INSTALL_FROM = "."
"""What pip installs: the checkout that is the current folder. `perfkit`, once a package index has *this* perfkit under that name."""


def cache_folder() -> pathlib.Path:
    """Where perfkit keeps what is made once: PERFKIT_CACHE_DIR, or the user's folder for caches.

    A user without a home has none: the folder of that name cannot be made, and PERFKIT_CACHE_DIR is what mends it.
    """
    return _folder("PERFKIT_CACHE_DIR", "user_cache_dir")


def state_folder() -> pathlib.Path:
    """Where perfkit keeps what a later command must know: PERFKIT_STATE_DIR, or the user's folder for state; else like `cache_folder`."""
    return _folder("PERFKIT_STATE_DIR", "user_state_dir")


def _folder(variable: str, kind: str) -> pathlib.Path:
    if given := os.environ.get(variable):
        return pathlib.Path(given)
    import platformdirs  # by commands that need it

    try:
        return pathlib.Path(getattr(platformdirs, kind)("perfkit"))
    except RuntimeError:  # neither HOME nor an entry of this user in the system's list
        return pathlib.Path(os.devnull, "perfkit")


def install_command(extra: str) -> str:
    """The command that installs perfkit with an extra, and where it has to be run."""
    return f"pip install '{INSTALL_FROM}[{extra}]'" + (" in perfkit's repository" if INSTALL_FROM == "." else "")
