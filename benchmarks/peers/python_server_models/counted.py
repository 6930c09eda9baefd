"""A count of requests that another process can read: a file that grows by a byte for each."""

import os

_FILE = os.open(os.environ["COUNT_FILE"], os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)


def count() -> None:
    """Counts a request."""
    os.write(_FILE, b".")
