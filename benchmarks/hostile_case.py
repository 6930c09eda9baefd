"""A case of the hostile trial: what is run, and what it must end in."""

import dataclasses
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager


@dataclasses.dataclass(frozen=True)
class Case:
    """A perfkit command against hostile files or a hostile server."""

    name: str
    item: int
    """The point of the issue that it belongs to."""
    words: tuple[str, ...]
    """The command without `perfkit`; `{url}` is the server's URL."""
    exit_code: int
    text: str
    """Part of a line on stderr."""
    files: Mapping[str, str] = dataclasses.field(default_factory=dict)
    """The files of its folder; `{url}` is the server's URL."""
    server: Callable[[], AbstractContextManager[str]] | None = None
    """A hostile server, which gives its URL."""
    client: str | None = None
    """The function of `hostile_clients` that talks to the bundled server, where `words` start it."""
    peak_mib: int = 300
    seconds: float = 30.0
    interrupt_after_s: float | None = None
    """When Ctrl-C is pressed."""
    interrupt_at_mib: int | None = None
    """The memory at which Ctrl-C is pressed."""
    answered_within_s: float = 2.0
    left_mib: int = 300
    """The most memory that a server may hold after its clients have left."""
