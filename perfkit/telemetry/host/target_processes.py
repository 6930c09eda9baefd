"""The target's processes on this machine, recognised by the ports and sockets at which they listen."""

import contextlib
import ipaddress
import pathlib
import socket
from collections.abc import Callable, Iterable, Sequence

import psutil

from perfkit.machine.cpus import ROOT, read_system_file
from perfkit.target.address import Address

# programs that listen in place of a container's processes
_CONTAINER_PROXIES = frozenset({"docker-proxy", "rootlessport", "rootlesskit", "slirp4netns", "pasta", "pasta.avx2", "conmon"})

Listeners = Callable[[], Iterable[tuple[int | str, int | None]]]
"""Reads all listening sockets: the port or path of each, and its process if that is known."""


def read_listeners() -> list[tuple[int | str, int | None]]:
    """The listening TCP sockets and the Unix sockets of this network namespace; empty where they cannot be listed."""
    found: list[tuple[int | str, int | None]] = []
    with contextlib.suppress(psutil.Error, OSError):
        for one in psutil.net_connections("all"):
            if one.family == socket.AF_UNIX and one.laddr:  # whose address is its path, which psutil's types do not declare
                found.append((str(one.laddr), one.pid))
            elif one.status == psutil.CONN_LISTEN and one.laddr:
                found.append((one.laddr.port, one.pid))
    return found


class TargetProcesses:
    """The processes that listen at the target's addresses, and their descendants.

    Not visible: processes of other users without permission, and those in other containers; see `may_be_hidden`.
    """

    def __init__(self, addresses: Sequence[Address], listeners: Listeners = read_listeners, root: pathlib.Path = ROOT) -> None:
        self._addresses, self._read, self._root = addresses, listeners, root
        self._listeners: set[int] = set()
        self._is_complete = False
        self._here: set[int | str] | None = None
        self._may_be_in_container = False

    def __call__(self) -> set[int]:
        """Their PIDs. Listeners are searched until found, descendants at every call."""
        if not self._listeners or not all(psutil.pid_exists(pid) for pid in self._listeners):
            self._find()
        pids = set(self._listeners)
        for pid in self._listeners:
            with contextlib.suppress(psutil.Error):
                pids |= {child.pid for child in psutil.Process(pid).children(recursive=True)}
        return pids

    @property
    def may_be_hidden(self) -> bool:
        """Whether the target may run on this machine in processes that the last call did not return."""
        return self._may_be_in_container or (bool(self._here) and not self._is_complete)

    def _find(self) -> None:
        if self._here is None:
            places = [(address, place_of(address, self._root)) for address in self._addresses]
            self._here = {address.socket_path or address.port for address, place in places if place == "here"}
            self._may_be_in_container = any(place == "perhaps here" for _, place in places)
        found = [(where, pid) for where, pid in self._read() if where in self._here] if self._here else []
        self._listeners = {pid for _, pid in found if pid}
        proxies = {pid for pid in self._listeners if _name(pid) in _CONTAINER_PROXIES}
        self._is_complete = not proxies and all(pid for _, pid in found) and {where for where, _ in found} == self._here


def place_of(address: Address, root: pathlib.Path = ROOT) -> str:
    """`here`, `elsewhere`, or `perhaps here`: at an address of this machine's containers, or unknown from within a container."""
    if address.is_local:
        return "here"
    hosts = set[str]()
    with contextlib.suppress(OSError, UnicodeError):
        hosts = {str(info[4][0]).partition("%")[0] for info in socket.getaddrinfo(address.host, address.port, type=socket.SOCK_STREAM)}
    for interface, settings in psutil.net_if_addrs().items():
        for one in settings:
            if one.family not in (socket.AF_INET, socket.AF_INET6):
                continue
            own = one.address.partition("%")[0]
            if own in hosts:
                return "here"
            if one.family == socket.AF_INET and one.netmask and (root / "sys/class/net" / interface / "bridge").exists():
                network = ipaddress.ip_network(f"{own}/{one.netmask}", strict=False)
                if any(ipaddress.ip_address(host) in network for host in hosts):
                    return "perhaps here"
    # PID 2 is the kernel's thread kthreadd, except in a container, where other containers' processes cannot be seen
    is_in_container = (read_system_file(root / "proc/2/comm") or "").strip() != "kthreadd"
    return "perhaps here" if is_in_container else "elsewhere"


def _name(pid: int) -> str:
    with contextlib.suppress(psutil.Error):
        return psutil.Process(pid).name()
    return ""
