"""The processes of a server on this machine, found by where it listens."""

import contextlib
from collections.abc import Sequence

import psutil

from perfkit.target.address import Address


class ServerProcesses:
    """Whoever listens at the addresses, and their descendants: looked for until found, descendants anew at every call.

    Processes of other users are not seen without permission; nor is who stands behind a proxy, or in a container.
    """

    def __init__(self, addresses: Sequence[Address]) -> None:
        self._ports = {address.port for address in addresses if not address.socket_path}
        self._paths = {address.socket_path for address in addresses if address.socket_path}
        self._listeners: set[int] = set()

    def __call__(self) -> set[int]:
        """Their PIDs; none where they are not seen."""
        self._listeners = {pid for pid in self._listeners if psutil.pid_exists(pid)} or self._find()
        found = set(self._listeners)
        for pid in self._listeners:
            with contextlib.suppress(psutil.Error):
                found |= {child.pid for child in psutil.Process(pid).children(recursive=True)}
        return found

    def _find(self) -> set[int]:
        found: set[int] = set()
        with contextlib.suppress(psutil.Error, OSError):
            if self._ports:
                listening = [one for one in psutil.net_connections("tcp") if one.status == psutil.CONN_LISTEN]
                found |= {one.pid for one in listening if one.pid and one.laddr and one.laddr.port in self._ports}
            if self._paths:  # a Unix socket's address is its path, which the library's types do not know
                found |= {one.pid for one in psutil.net_connections("unix") if one.pid and str(one.laddr) in self._paths}
        return found
