"""A Dask cluster on which the machines of a fleet can be placed: its scheduler in this process, and one Dask worker on each host.

Dask's own classes start and end the workers. They do so over SSH, or as processes of this machine for trying.
"""

import asyncio
import contextlib
import shlex
import sys
from collections.abc import AsyncIterator, Callable
from typing import TYPE_CHECKING, Any

from perfkit.errors import MeasurementError, TargetError, UsageError
from perfkit.fleet.dask_placement import SCHEDULER_SETTINGS
from perfkit.fleet.deployment_messages import DeploymentSpec
from perfkit.fleet.ssh_hosts import address_towards, check_hosts
from perfkit.installation import install_command

if TYPE_CHECKING:
    from distributed import SpecCluster

WORKER_MEMORY_BYTES = 2**30
"""What the Dask worker of a machine may use itself before its nanny starts it again; the processes that send the load are not part of it."""
_STARTED_WITHIN_S, _REGISTERED_WITHIN_S, _ENDED_WITHIN_S = 90, 30, 15
_POLLS_EVERY_S = 0.1


@contextlib.asynccontextmanager
async def deployed(spec: DeploymentSpec, note: Callable[[str], None]) -> AsyncIterator[str]:
    """Starts a scheduler and its workers, gives the scheduler's URL, and ends all of them with the block.

    `note` gets sentences for the user. Raises UsageError for what cannot be used, such as a port, TargetError for a host that cannot be
    reached, and MeasurementError for one whose worker does not start.
    """
    import dask.config

    # for this process, which is the scheduler's, and by Dask for those of its workers
    dask.config.set({**SCHEDULER_SETTINGS, "distributed.worker.profile.enabled": False})
    if spec.hosts:
        seen_from = await check_hosts(spec.hosts, spec.ssh_config, spec.remote_python)
        address = spec.address or address_towards(seen_from)
        note(f"{len(spec.hosts)} hosts have the same versions of perfkit and Dask as this machine")
    else:
        address = "127.0.0.1"
    cluster = _cluster(spec, address)
    try:
        await _start(cluster, spec)
        yield str(getattr(cluster.scheduler, "contact_address", None) or cluster.scheduler.address)
    finally:
        with contextlib.suppress(Exception):  # Dask's failures are of many kinds; what it leaves ends with this process
            async with asyncio.timeout(_ENDED_WITHIN_S):
                await cluster.close()


def check_packages(*, needs_ssh: bool) -> None:
    """Raises UsageError if a package that a fleet on Dask needs is not installed."""
    try:
        import distributed  # noqa: F401 - whether it is there

        if needs_ssh:
            import asyncssh  # noqa: F401
    except ImportError:
        raise UsageError(f"a fleet on Dask needs its packages: {install_command('fleet')}") from None


def _cluster(spec: DeploymentSpec, address: str) -> "SpecCluster":
    from distributed import Nanny, Scheduler, SpecCluster

    options = {"nthreads": 1, "memory_limit": WORKER_MEMORY_BYTES, "dashboard": False}
    workers: dict[str, dict[str, Any]] = {f"local-{number}": {"cls": Nanny, "options": options} for number in range(spec.local)}
    for host in spec.hosts:
        ssh = {
            "address": host.name,
            "connect_options": host.connect_options(spec.ssh_config),
            "kwargs": {**options, "name": host.name},
            "remote_python": _remote_python(spec.remote_python),
        }
        workers[host.name] = {"cls": _ssh_worker_class(), "options": ssh}
    # an address that was given may be one that only others can use, such as that of a gateway
    listens_at = {"contact_address": f"tcp://{_bracketed(address)}:{spec.port}"} if spec.address else {"host": address}
    scheduler = {"port": spec.port, "dashboard": False, "dashboard_address": "127.0.0.1:0", **listens_at}
    return SpecCluster(workers, {"cls": Scheduler, "options": scheduler}, asynchronous=True, name="perfkit")


def _remote_python(python: str) -> str:
    """Dask begins its command with this; what it starts so ends with the SSH connection, also if this process is killed."""
    return shlex.join([python, "-P", "-m", "perfkit.process.ends_with_stdin", python, "-P"])


def _bracketed(address: str) -> str:
    return f"[{address}]" if ":" in address else address


async def _start(cluster: "SpecCluster", spec: DeploymentSpec) -> None:
    try:
        async with asyncio.timeout(_STARTED_WITHIN_S):
            await cluster
    except TargetError:
        raise
    except TimeoutError:
        raise MeasurementError(f"the Dask workers did not start within {_STARTED_WITHIN_S} s") from None
    except RuntimeError as error:  # of the scheduler
        if isinstance(cause := _first_cause(error), OSError):
            raise UsageError(
                f"--port {spec.port}: the scheduler cannot listen there ({cause.strerror or cause}): give another --port"
            ) from None
        raise
    wanted = set(cluster.worker_spec)
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(_REGISTERED_WITHIN_S):
            while wanted - (there := {str(worker.name) for worker in cluster.scheduler.workers.values()}):  # noqa: ASYNC110 - Dask has no event for it
                await asyncio.sleep(_POLLS_EVERY_S)
            return
    raise TargetError(
        f"{', '.join(sorted(wanted - there))}: cannot connect to the scheduler on this machine, {cluster.scheduler_address}, though SSH works: "
        "let the port through the firewall, or say by --address how this machine is reached from there"
    )


def _first_cause(error: BaseException) -> BaseException:
    while error.__cause__ is not None:
        error = error.__cause__
    return error


def _ssh_worker_class() -> Any:
    """Dask's worker over SSH, which names its host if it fails, and whose output is read as long as it runs."""
    from distributed.deploy.ssh import Worker

    class SshWorker(Worker):  # type: ignore[misc] # Dask's types are not read
        async def start(self) -> None:
            try:
                await super().start()
            except Exception as error:
                raise TargetError(f"{self.address}: its Dask worker did not start: {error}") from error
            self.reading = asyncio.ensure_future(_pass_on(self.address, self.proc.stderr))

    return SshWorker


async def _pass_on(host: str, stderr: "asyncio.StreamReader") -> None:
    """Writes what a host says to this process's own log; if nobody read it, the host would come to wait."""
    async for line in stderr:
        sys.stderr.write(f"{host}: {str(line).rstrip()}\n")
        sys.stderr.flush()
