"""Which processes listen where on this machine, from Linux's /proc: of thousands of sockets, as a loaded machine has, only those are looked at."""

import contextlib
import os
import pathlib
from collections.abc import Mapping

from perfkit.digits import whole_number
from perfkit.machine.cpus import ROOT, read_system_file


def read_listeners(root: pathlib.Path = ROOT) -> list[tuple[int | str, int | None]]:
    """The listening TCP sockets, by port, and the Unix sockets, by path, of this network namespace, each with its process if that is known.

    Empty where the system does not list them.
    """
    sockets = {**_tcp(root), **_unix(root)}
    holders = dict.fromkeys(sockets, None) | _holders(sockets, root)
    return [(place, holders[inode]) for inode, place in sockets.items()]


def _tcp(root: pathlib.Path) -> dict[str, int | str]:
    """The ports by the sockets' inodes; see proc_net_tcp(5)."""
    found: dict[str, int | str] = {}
    for name in ("tcp", "tcp6"):
        for line in (read_system_file(root / "proc/net" / name) or "").splitlines():
            if " 0A " in line:  # the state that listens
                fields = line.split()
                found[fields[9]] = int(fields[1].rpartition(":")[2], 16)
    return found


def _unix(root: pathlib.Path) -> dict[str, int | str]:
    """The paths by the sockets' inodes, of those that have one; see proc_net_unix(5)."""
    rows = (line.split(maxsplit=7) for line in (read_system_file(root / "proc/net/unix") or "").splitlines()[1:])
    return {fields[6]: fields[7] for fields in rows if len(fields) == 8}


def _holders(sockets: Mapping[str, object], root: pathlib.Path) -> dict[str, int]:
    """The first process that has each of these sockets open, as far as this user may see it."""
    found = dict[str, int]()
    pids = sorted(pid for folder in (root / "proc").iterdir() if (pid := whole_number(folder.name)) is not None) if sockets else []
    for pid in pids:
        with contextlib.suppress(OSError), os.scandir(root / f"proc/{pid}/fd") as files:  # it has ended, or is another user's
            for file in files:
                with contextlib.suppress(OSError):
                    target = os.readlink(file.path)  # noqa: PTH115 - a path for each of thousands of files takes three times as long
                    if target.startswith("socket:[") and (inode := target[8:-1]) in sockets:
                        found.setdefault(inode, pid)
    return found
