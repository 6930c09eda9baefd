"""Hosts that are reached over SSH: whether they can be, and whether they have what a fleet needs."""

import asyncio
import collections
import importlib.metadata
import json
import shlex
import socket
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from perfkit.errors import TargetError, UsageError

if TYPE_CHECKING:
    import asyncssh

_CONNECTS_WITHIN_S = 20
_PROBED_WITHIN_S = 60
_KEEPALIVE_S = 15
_PACKAGES = ("perfkit", "distributed")
# only the standard library, since anything else may be missing
_PROBE = """
import importlib.metadata, json
def version(name):
    try:
        return importlib.metadata.version(name)
    except importlib.metadata.PackageNotFoundError:
        return None
print(json.dumps({name: version(name) for name in %r}))
"""


class SshHost(NamedTuple):
    """A host as the user wrote it: `[USER@]HOST`, where HOST may be a name of the SSH configuration."""

    name: str
    user: str | None = None

    def connect_options(self, config: str | None) -> dict[str, Any]:
        """What asyncssh.connect takes beside the name; without a file, it reads the user's own configuration."""
        return {
            "connect_timeout": _CONNECTS_WITHIN_S,
            "login_timeout": _CONNECTS_WITHIN_S,
            "keepalive_interval": _KEEPALIVE_S,
            **({} if config is None else {"config": [config]}),
            **({} if self.user is None else {"username": self.user}),
        }


def parse_hosts(text: str) -> tuple[SshHost, ...]:
    """The hosts of a list such as `host1,user@host2`; raises ValueError."""
    hosts = []
    for entry in text.split(","):
        user, at, name = entry.strip().rpartition("@")
        if not name or (at and not user) or any(letter.isspace() for letter in entry.strip()):
            raise ValueError(f"expected hosts such as host1,user@host2, found {text!r}")
        hosts.append(SshHost(name, user or None))
    names = [host.name for host in hosts]
    if twice := [name for name, count in collections.Counter(names).items() if count > 1]:
        raise ValueError(f"{twice[0]} is there twice; each host is one machine of the fleet")
    return tuple(hosts)


async def check_hosts(hosts: Sequence[SshHost], config: str | None, python: str) -> list[str]:
    """Logs in to all hosts, and returns the addresses of this machine that they are connected to.

    Raises TargetError, which names all hosts that cannot be used, or UsageError if they lack packages.
    """
    outcomes = await asyncio.gather(*(_check_host(host, config, python) for host in hosts), return_exceptions=True)
    failed = [(host, outcome) for host, outcome in zip(hosts, outcomes, strict=True) if isinstance(outcome, BaseException)]
    for _, error in failed:
        if not isinstance(error, TargetError | UsageError):
            raise error
    if failed:
        kind = TargetError if any(isinstance(error, TargetError) for _, error in failed) else UsageError
        raise kind("\n".join(f"{host.name}: {error}" for host, error in failed))
    return [outcome for outcome in outcomes if isinstance(outcome, str)]


async def _check_host(host: SshHost, config: str | None, python: str) -> str:
    import asyncssh

    try:
        async with asyncio.timeout(_PROBED_WITHIN_S), asyncssh.connect(host.name, **host.connect_options(config)) as connection:
            command = shlex.join([python, "-P", "-c", _PROBE % (_PACKAGES,)])
            found = await connection.run(command)
            if fault := probe_fault(found.exit_status, str(found.stdout), str(found.stderr), python):
                raise UsageError(fault)
            return str(connection.get_extra_info("sockname")[0])
    except (OSError, TimeoutError, asyncssh.Error, ValueError) as error:
        raise TargetError(_connect_fault(host, error, config)) from None


def probe_fault(status: int | None, stdout: str, stderr: str, python: str) -> str:
    """What a host lacks, judged by its answer to the probe; empty if nothing."""
    own = {name: importlib.metadata.version(name) for name in _PACKAGES}
    try:
        found: Mapping[str, str | None] = json.loads(stdout) if status == 0 else {}
        differing = [name for name in _PACKAGES if found[name] != own[name]]
    except (ValueError, KeyError, TypeError):
        said = next(iter(reversed(stderr.strip().splitlines())), "nothing")
        return f"{python} does not run there as Python 3.11 or newer (it said: {said}): give --remote-python"
    if not differing:
        return ""
    what = ", ".join(f"{name} {found[name] or 'is missing'}, here {own[name]}" for name in differing)
    return f"{python} has other packages there than here ({what}): install the same versions of perfkit[fleet], or give --remote-python"


def _connect_fault(host: SshHost, error: "OSError | TimeoutError | asyncssh.Error | ValueError", config: str | None) -> str:
    import asyncssh

    command = shlex.join(["ssh", *(["-F", config] if config else []), f"{host.user}@{host.name}" if host.user else host.name])
    if isinstance(error, asyncssh.HostKeyNotVerifiable):
        return f"its host key is not known here ({error.reason}): log in once by `{command}`, and check the key"
    if isinstance(error, asyncssh.PermissionDenied):
        return f"it refused the login ({error.reason}): `{command} true` must work without a password, for instance by ssh-copy-id"
    if isinstance(error, socket.gaierror):
        return f"its name is not known here ({error.strerror}): correct --ssh, or name it in the SSH configuration"
    if isinstance(error, TimeoutError):
        return f"it did not answer within {_CONNECTS_WITHIN_S} s: look at the address and firewalls, and try `{command}`"
    reason = getattr(error, "reason", None) or getattr(error, "strerror", None) or str(error)
    return f"it cannot be reached over SSH ({reason}): try `{command}`"


def address_towards(addresses: Sequence[str]) -> str:
    """The address of this machine that all hosts are given, from those that their connections have.

    One of the loopback serves only hosts that are this machine, which reach the others, too.
    """
    further = [address for address in addresses if not address.startswith("127.") and address != "::1"]
    return (further or addresses)[0]
