"""The processes that a test's own process has started."""

import contextlib

import psutil


def children_running(module):
    """Those that run that module."""
    found = []
    for one in psutil.Process().children():
        with contextlib.suppress(psutil.Error):  # one that has ended, of whatever test, has no command any more
            if module in " ".join(one.cmdline()):
                found.append(one)
    return found
