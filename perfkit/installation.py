"""Where perfkit is published and how it is installed: what changes here is all that messages need to know of a release."""

REPOSITORY = "https://github.com/OWNER/perfkit"
"""The address of the repository. OWNER stands for the account that publishes it; RELEASING.md says when it gets its name."""

INSTALL_FROM = "."
"""What pip installs: the checkout that is the current folder. `perfkit`, once a package index has *this* perfkit under that name."""


def install_command(extra: str) -> str:
    """The command that installs perfkit with an extra, and where it has to be run."""
    return f"pip install '{INSTALL_FROM}[{extra}]'" + (" in perfkit's repository" if INSTALL_FROM == "." else "")
