"""Processes that a test has started."""

import contextlib

import psutil


def children_running(name):
    """The children whose command line contains a name."""
    children = []
    for child in psutil.Process().children():
        with contextlib.suppress(psutil.Error):  # one that has ended has no command line
            while not (words := child.cmdline()) and child.status() != psutil.STATUS_ZOMBIE:
                pass  # the kernel tells its parent of an execution before the new command line is there
            if name in " ".join(words):
                children.append(child)
    return children


def listening(processes):
    """The addresses at which processes and all that they have started accept connections."""
    found = set[str]()
    for started in processes:
        with contextlib.suppress(psutil.NoSuchProcess):
            for process in (own := psutil.Process(started.pid), *own.children(recursive=True)):
                found |= {one.laddr.ip for one in process.net_connections("inet") if one.status == psutil.CONN_LISTEN}
    return found
