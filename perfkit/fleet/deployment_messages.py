"""What `perfkit fleet up` and the process of its Dask cluster tell each other."""

import dataclasses
import sys

from perfkit.errors import PerfkitError
from perfkit.fleet.ssh_hosts import SshHost

DEFAULT_PORT = 8786


@dataclasses.dataclass(frozen=True, slots=True)
class DeploymentSpec:
    """Where a fleet shall be."""

    state_file: str
    """Which file says that the fleet is up, see `running_fleet`; an absolute path, since the process has another current folder."""
    hosts: tuple[SshHost, ...] = ()
    """Reached over SSH; none if the machines are processes of this one."""
    local: int = 0
    port: int = DEFAULT_PORT
    """The scheduler's; 0 for any."""
    address: str | None = None
    """This machine's, as the hosts reach it; None for the one that their SSH connections come from."""
    ssh_config: str | None = None
    remote_python: str = sys.executable


@dataclasses.dataclass(frozen=True, slots=True)
class Note:
    """A sentence for the user."""

    text: str


@dataclasses.dataclass(frozen=True, slots=True)
class FleetIsUp:
    """The last message of a fleet that was started."""

    scheduler: str
    """The URL of Dask's scheduler."""


@dataclasses.dataclass(frozen=True, slots=True)
class FleetFailed:
    """The last message of a fleet that could not be started."""

    error: PerfkitError
