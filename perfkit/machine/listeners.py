"""The listening sockets of this machine and their processes, from Linux's /proc. Other sockets, of which there may be thousands, are skipped."""

import contextlib
import os
import pathlib
import re
from collections.abc import Mapping, Sequence

from perfkit.digits import whole_number
from perfkit.machine.cpus import ROOT, read_system_file
from perfkit.machine.readings import read_times_of

_UNIX_ROW = re.compile(r"^[0-9A-Fa-f]+: \w+ \w+ ([0-9A-Fa-f]+) \w+ \w+ +(\d+) (.+)$", re.MULTILINE)
"""Flags, inode and path."""
_ACCEPTS_CONNECTIONS = 0x10000  # __SO_ACCEPTCON of linux/net.h


def read_listeners(root: pathlib.Path = ROOT) -> list[tuple[int | str, int | None]]:
    """The listening TCP sockets, by port, and the Unix sockets, by path, of this network namespace, each with its process if that is known.

    A socket that several processes hold, such as a server and the processes that it has forked, is there once for each. Empty where the
    system does not list them.
    """
    sockets = {**_tcp(root), **_unix(root)}
    holders = _holders(sockets, root)
    return [(place, pid) for inode, place in sockets.items() for pid in holders.get(inode, (None,))]


def _tcp(root: pathlib.Path) -> dict[str, int | str]:
    """The ports by the listening sockets' inodes; see proc_net_tcp(5)."""
    found: dict[str, int | str] = {}
    for name in ("tcp", "tcp6"):
        for line in (read_system_file(root / "proc/net" / name) or "").splitlines():
            if " 0A " in line:  # the state that listens
                fields = line.split()
                found[fields[9]] = int(fields[1].rpartition(":")[2], 16)
    return found


def _unix(root: pathlib.Path) -> dict[str, int | str]:
    """The paths by the listening sockets' inodes, of those that have one; see proc_net_unix(5). Sockets of accepted connections have it, too."""
    text = read_system_file(root / "proc/net/unix", errors="surrogateescape") or ""  # a path is any bytes
    return {inode: path for flags, inode, path in _UNIX_ROW.findall(text) if int(flags, 16) & _ACCEPTS_CONNECTIONS}


def _holders(sockets: Mapping[str, object], root: pathlib.Path) -> dict[str, Sequence[int]]:
    """The processes that have each of these sockets open, as far as this user may see it.

    PID 1, which opens sockets for the services that it starts, this process and its ancestors count only where no other process holds the socket.
    """
    found = dict[str, list[int]]()
    for pid in _processes(root) if sockets else ():
        with contextlib.suppress(OSError), os.scandir(root / f"proc/{pid}/fd") as files:  # it has ended, or is another user's
            for file in files:
                with contextlib.suppress(OSError):
                    target = os.readlink(file.path)  # noqa: PTH115 - a path for each of thousands of files takes three times as long
                    if target.startswith("socket:[") and (inode := target[8:-1]) in sockets:
                        found.setdefault(inode, []).append(pid)
    starters = _starters(root)
    return {inode: sorted({*pids} - starters or {*pids}) for inode, pids in found.items()}


def _processes(root: pathlib.Path) -> Sequence[int]:
    with contextlib.suppress(OSError):
        return [pid for folder in (root / "proc").iterdir() if (pid := whole_number(folder.name)) is not None]
    return ()


def _starters(root: pathlib.Path) -> set[int]:
    """PID 1, this process, and its ancestors."""
    found, pid = {1}, os.getpid()
    while pid not in found:
        found.add(pid)
        if (times := read_times_of(pid, root)) is not None:
            pid = times.parent
    return found
