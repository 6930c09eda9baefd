"""Child processes of the test's own process."""

import contextlib

import psutil


def children_running(name):
    """The children whose command line contains a name."""
    children = []
    for child in psutil.Process().children():
        with contextlib.suppress(psutil.Error):  # one that has ended has no command line
            if name in " ".join(child.cmdline()):
                children.append(child)
    return children
