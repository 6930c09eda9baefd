"""Hosts on one machine: network namespaces joined by a bridge, on links with or without delay, and with clocks of their own.

    with Laboratory() as laboratory:
        server = laboratory.add_host("server")
        far = laboratory.add_host("far", delays_ns=(5_000_000, 5_000_000), clock_shift_ns=100_000_000)
        subprocess.run([*far.prefix, "ping", "-c1", server.ip])

Each namespace is held by a process that ends with its stdin, so that nothing is left of the hosts whatever ends this process, and nothing
of them is seen outside. It needs root, Linux, and the programs `ip`, `unshare`, `nsenter` and `setpriv`.
"""

import contextlib
import dataclasses
import os
import pathlib
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from types import TracebackType
from typing import IO, Self

_PROGRAMS = ("ip", "unshare", "nsenter", "setpriv", "mount", "hostname")
_NETWORK = "10.77.0."
_BRIDGE = "switch"
_LINK_PROGRAM = pathlib.Path(__file__).with_name("delayed_link.py")
_ENDS_WITHIN_S = 10
# a program enters its new time namespace with exec, after which the clock cannot be set
_NEW_CLOCK = """
import ctypes, os, sys
if ctypes.CDLL(None, use_errno=True).unshare(0x80):  # CLONE_NEWTIME
    sys.exit(os.strerror(ctypes.get_errno()))
shift = "%d %d" % divmod(int(sys.argv[1]), 10**9)
with open("/proc/self/timens_offsets", "w") as file:
    file.write(f"monotonic {shift}\\nboottime {shift}\\n")
os.execvp(sys.argv[2], sys.argv[2:])
"""


class NamespacesUnavailableError(Exception):
    """Hosts cannot be made on this machine; the message says why."""


@dataclasses.dataclass(frozen=True, slots=True)
class Host:
    """A host of a laboratory. Commands that begin with `prefix` run on it, and are killed when the process that started them ends."""

    name: str
    ip: str
    prefix: tuple[str, ...]
    port: str
    """Its port of the bridge."""
    network: int
    """The inode of its network namespace."""
    holder: int
    """The process that holds its namespaces."""
    switch: tuple[str, ...] = dataclasses.field(repr=False)
    """What commands that run on the bridge begin with."""

    def start(
        self,
        command: Sequence[str],
        *,
        stdin: IO[str] | int | None = subprocess.DEVNULL,
        stdout: IO[str] | int | None = subprocess.DEVNULL,
        stderr: IO[str] | int | None = None,
        environment: Mapping[str, str] | None = None,
    ) -> "subprocess.Popen[str]":
        """Starts a command on the host; the process is the command's own, not that of a program which enters the host."""
        return subprocess.Popen([*self.prefix, *command], stdin=stdin, stdout=stdout, stderr=stderr, env=environment, text=True)

    def run(self, command: Sequence[str], within_s: float = 60) -> str:
        """Runs a command on the host to its end, and returns what it printed; raises CalledProcessError and TimeoutExpired."""
        return subprocess.run([*self.prefix, *command], check=True, capture_output=True, text=True, timeout=within_s).stdout

    def cut(self) -> None:
        """Drops all that the host sends and all that is sent to it, as a broken cable does: nobody is told."""
        _run([*self.switch, "ip", "link", "set", self.port, "nomaster"])

    def mend(self) -> None:
        """Ends what `cut` did."""
        _run([*self.switch, "ip", "link", "set", self.port, "master", _BRIDGE])

    def processes(self) -> dict[int, str]:
        """The command lines of the processes that run on the host, by their ids."""
        return {pid: line for pid, line in _processes_in(self.network).items() if pid != self.holder}


class Laboratory:
    """A bridge and the hosts at it; a context manager, at whose end all processes on the hosts are killed and the hosts are gone."""

    def __init__(self) -> None:
        self.hosts: list[Host] = []
        self._stack = contextlib.ExitStack()
        self._switch: tuple[str, ...] = ()
        self._networks: dict[int, int] = {}

    def __enter__(self) -> Self:
        """Makes the bridge; raises NamespacesUnavailableError."""
        if not sys.platform.startswith("linux"):
            raise NamespacesUnavailableError("network namespaces need Linux")
        if os.geteuid() != 0:
            raise NamespacesUnavailableError("network namespaces need root")
        if missing := [program for program in _PROGRAMS if shutil.which(program) is None]:
            raise NamespacesUnavailableError(f"these programs are not installed: {', '.join(missing)}")
        with contextlib.ExitStack() as stack:
            self._stack = stack
            holder = self._hold(_BRIDGE, "true")
            self._switch = _prefix(holder, has_clock=False)
            _run([*self._switch, "ip", "link", "add", _BRIDGE, "type", "bridge"])
            _run([*self._switch, "ip", "link", "set", _BRIDGE, "up"])
            self._stack = stack.pop_all()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self._stack.close()

    def add_host(
        self,
        name: str,
        *,
        delays_ns: tuple[int, int] | None = None,
        clock_shift_ns: int = 0,
        names: Mapping[str, Sequence[str]] | None = None,
    ) -> Host:
        """Adds a host with that host name.

        `delays_ns` are those of what it sends and of what it gets. `clock_shift_ns` is how far its monotonic clock is ahead of this machine's.
        `names` are IP addresses by host name, which replace those of /etc/hosts there. Raises NamespacesUnavailableError.
        """
        number, has_clock = len(self.hosts) + 1, bool(clock_shift_ns)
        ip, port = f"{_NETWORK}{number}", f"port{number}"
        if has_clock and not pathlib.Path("/proc/self/timens_offsets").exists():
            raise NamespacesUnavailableError("this kernel has no time namespaces")
        setup = f"mount --bind {self._hosts_file(names)} /etc/hosts" if names is not None else "true"
        holder = self._hold(name, setup, clock_shift_ns)
        prefix, on_switch = _prefix(holder, has_clock=has_clock), self._switch
        if delays_ns is None:
            _run([*on_switch, "ip", "link", "add", port, "type", "veth", "peer", "name", f"host{number}"])
        else:
            self._start_link(on_switch, f"host{number}", port, delays_ns)
        _run([*on_switch, "ip", "link", "set", f"host{number}", "netns", str(holder), "name", "eth0"])
        _run([*on_switch, "ip", "link", "set", port, "master", _BRIDGE, "up"])
        _run([*prefix, "ip", "address", "add", f"{ip}/24", "dev", "eth0"])
        _run([*prefix, "ip", "link", "set", "eth0", "up"])
        host = Host(name, ip, prefix, port, self._networks[holder], holder, on_switch)
        self.hosts.append(host)
        return host

    def _hold(self, name: str, setup: str, clock_shift_ns: int = 0) -> int:
        """Makes namespaces and the process that holds them, whose id is returned."""
        script = f"{setup} && hostname {name} && ip link set lo up && echo held && exec cat"
        new_clock = (sys.executable, "-c", _NEW_CLOCK, str(clock_shift_ns)) if clock_shift_ns else ()
        command = [*new_clock, "unshare", "--net", "--mount", "--uts", "sh", "-c", script]
        pipe = subprocess.PIPE
        process = subprocess.Popen(command, stdin=pipe, stdout=pipe, stderr=pipe, text=True)
        assert process.stdout is not None
        assert process.stderr is not None
        if process.stdout.readline() != "held\n":
            reason = process.stderr.read().strip()
            process.communicate()
            raise NamespacesUnavailableError(f"namespaces cannot be made: {reason}")
        self._networks[process.pid] = pathlib.Path(f"/proc/{process.pid}/ns/net").stat().st_ino
        self._stack.callback(self._let_go, process)
        return process.pid

    def _let_go(self, holder: "subprocess.Popen[str]") -> None:
        """Kills what runs in the namespaces, and removes them."""
        for pid in _processes_in(self._networks[holder.pid]):
            if pid != holder.pid:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
        holder.communicate(timeout=_ENDS_WITHIN_S)

    def _start_link(self, on_switch: Sequence[str], host_end: str, port: str, delays_ns: tuple[int, int]) -> None:
        """Starts the program that relays frames between the host's end of its link and its port of the bridge."""
        pipe = subprocess.PIPE
        command = [*on_switch, sys.executable, str(_LINK_PROGRAM), host_end, port, *map(str, delays_ns)]
        process = subprocess.Popen(command, stdin=pipe, stdout=pipe, stderr=pipe, text=True)
        self._stack.callback(process.communicate)
        assert process.stdout is not None
        assert process.stderr is not None
        if process.stdout.readline() != "ready\n":
            raise NamespacesUnavailableError(f"a link with delay cannot be made: {process.stderr.read().strip().rpartition(chr(10))[2]}")

    def _hosts_file(self, names: Mapping[str, Sequence[str]]) -> str:
        file = pathlib.Path(self._stack.enter_context(tempfile.TemporaryDirectory(prefix="perfkit-hosts-")), "hosts")
        lines = ["127.0.0.1 localhost", *(f"{ip} {name}" for name, ips in names.items() for ip in ips)]
        file.write_text("\n".join(lines) + "\n", encoding="ascii")
        return str(file)


def _prefix(holder: int, *, has_clock: bool) -> tuple[str, ...]:
    """What a command begins with that is to run in the namespaces of a process."""
    clock = ("--time",) if has_clock else ()
    # without fork, so that the process that was started is the command's own
    enter = ("nsenter", f"--target={holder}", "--net", "--mount", "--uts", *clock, "--no-fork", f"--wdns={pathlib.Path.cwd()}", "--")
    return (*enter, "setpriv", "--pdeathsig", "KILL", "--")


def _processes_in(network: int) -> dict[int, str]:
    """The command lines of the processes in a network namespace; without those that have ended and are not waited for yet."""
    found = {}
    for folder in pathlib.Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):  # of a process that has ended
            if (folder / "ns/net").stat().st_ino == network:
                found[int(folder.name)] = (folder / "cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace").strip()
    return found


def _run(command: Sequence[str]) -> None:
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        raise NamespacesUnavailableError(f"{' '.join(command[command.index('ip') :])}: {done.stderr.strip()}")
