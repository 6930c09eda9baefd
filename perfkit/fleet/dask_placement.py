"""Machines of a fleet that a Dask cluster starts: one long task on each chosen Dask worker, which runs `perfkit worker --join`.

Dask only places the machines. They join the driver by TCP as others do, and no message of the run passes through Dask. Any cluster will do: Dask starts
a task again when it has lost the task's worker, and the driver then turns the machine away (`admission`), because its load must not be sent twice.
"""

import asyncio
import collections
import contextlib
import importlib.metadata
import logging
import platform
import secrets
import socket
from collections.abc import AsyncIterator, Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, NamedTuple

from perfkit.errors import MeasurementError, UsageError
from perfkit.fleet.admission import unused_name
from perfkit.fleet.dask_machine import DaskTask, MachineStart, end_machine, run_machine
from perfkit.installation import install_command

if TYPE_CHECKING:
    from distributed import Client, Future

_POLLS_EVERY_S, _LOOKS_EVERY_S, _SETTLED_S = 0.2, 1.0, 3.0
_END_BY_THEMSELVES_WITHIN_S, _ANSWERS_WITHIN_S = 3.0, 10.0
# perfkit says itself what is lost
_QUIET_LOGS = ("distributed.client", "distributed.core", "distributed.comm", "distributed.batched")


class Place(NamedTuple):
    """A Dask worker that runs a machine of the fleet."""

    name: str
    """The machine's, unlike any other of the fleet."""
    host: str
    address: str
    """The Dask worker's, such as tcp://10.0.0.5:41234."""


def choose(hosts: Mapping[str, str], machines: int | None) -> list[str]:
    """The addresses of the Dask workers that run `machines` machines, from their hosts by address; by default one on each host.

    Every host gets one before any gets a second. There may be fewer than asked for.
    """
    by_host = collections.defaultdict[str, list[str]](list)
    for address in sorted(hosts):
        by_host[hosts[address]].append(address)
    rounds = range(max(map(len, by_host.values()), default=0))
    spread = [workers[place] for place in rounds for workers in by_host.values() if place < len(workers)]
    return spread[: len(by_host) if machines is None else machines]


def unlike_names(names: Sequence[str]) -> list[str]:
    """The names; a name that repeats an earlier one gets a number."""
    result: list[str] = []
    for name in names:
        result.append(unused_name(name, result))
    return result


def stands_for_all(host: str) -> bool:
    """Whether to listen at this host is to listen at all addresses of this machine."""
    return host in {"0.0.0.0", "::", ""}  # noqa: S104 - compared, not bound


class DaskPlacement:
    """The places of a fleet's machines on a Dask cluster; `start` starts the machines."""

    def __init__(self, client: "Client", scheduler: str, places: Sequence[Place]) -> None:
        self.places, self.run = places, secrets.token_hex(8)
        """Where they are, and the name of this run among all of the cluster."""
        self._client, self._scheduler = client, scheduler
        self._started: dict[str, tuple[Place, Future]] = {}
        self._watches: list[asyncio.Task[None]] = []

    async def start(
        self, listens_at: tuple[str, int], token: str, certificate: str | None, join_within_s: float, on_end: Callable[[str, str], None]
    ) -> None:
        """Starts each machine, which tries for so long to join the driver at this host and port.

        A host that stands for all addresses is replaced by the one from which this machine reaches theirs. `certificate` is what they verify
        the driver's with. `on_end` is called once with a machine's name and a reason, when it has ended or its Dask worker is lost.
        """
        host, port = listens_at
        for number, place in enumerate(self.places):
            own = await asyncio.to_thread(_address_towards, place.host) if stands_for_all(host) else host
            url = f"tcp://{f'[{own}]' if ':' in own else own}:{port}"
            key = f"perfkit-worker-{place.name}-{self.run}"
            future = self._client.submit(
                run_machine,
                key,
                MachineStart(url, place.name, DaskTask(self.run, number), token, certificate, join_within_s),
                key=key,
                workers=[place.address],
                allow_other_workers=False,
                pure=False,
                retries=0,
            )
            self._started[key] = place, future
            self._watches.append(asyncio.ensure_future(self._watch(place, future, on_end)))

    async def stop(self, within_s: float) -> None:
        """Waits until the machines have ended, which have been told that the run is over; those that have not in time are ended."""
        if not self._watches:
            return
        _, pending = await asyncio.wait(self._watches, timeout=within_s)
        if pending and self._client.status == "running":
            with contextlib.suppress(Exception):  # Dask's failures are of many kinds, and the machines also end with their connection
                async with asyncio.timeout(_ANSWERS_WITHIN_S):
                    await asyncio.gather(
                        *(self._end(key, place.address) for key, (place, future) in self._started.items() if not future.done())
                    )
                    await asyncio.wait(pending)
        for watch in self._watches:
            watch.cancel()
        with contextlib.suppress(Exception):
            async with asyncio.timeout(_ANSWERS_WITHIN_S):  # those that have not begun yet
                await self._client.cancel([future for _, future in self._started.values() if not future.done()], force=True)

    async def _end(self, key: str, address: str) -> None:
        await self._client.run(end_machine, key, workers=[address], on_error="ignore")

    async def _watch(self, place: Place, future: "Future", on_end: Callable[[str, str], None]) -> None:
        """Waits for the end of a task, or of its Dask worker, of which Dask says nothing if it would start the task again."""
        ended = asyncio.ensure_future(self._end_of(place, future))
        try:
            while not (await asyncio.wait([ended], timeout=_LOOKS_EVERY_S))[0]:
                if await self._is_lost(place):
                    on_end(place.name, f"its Dask worker {place.address} was lost")
                    return
        finally:
            ended.cancel()
        on_end(place.name, ended.result())

    async def _is_lost(self, place: Place) -> bool:
        try:
            return place.address not in await self._client.processing()
        except Exception:  # noqa: BLE001 - Dask's failures are of many kinds; that of a lost scheduler also ends the task
            return False

    async def _end_of(self, place: Place, future: "Future") -> str:
        from distributed import KilledWorker
        from distributed.client import FutureCancelledError

        try:
            return f"perfkit worker {await future}"
        except KilledWorker:
            return f"its Dask worker {place.address} was lost"
        except FutureCancelledError as error:
            is_lost = error.reason == "scheduler-connection-lost"
            return f"the Dask scheduler {self._scheduler} was lost" if is_lost else f"its Dask task was cancelled ({error.reason})"
        except Exception as error:  # noqa: BLE001 - whatever the task, or Dask on its way, has raised
            how = f"its Dask task failed: {type(error).__name__}: {' '.join(str(error).split())}"
            if isinstance(error, ImportError) or "deserialization" in str(error):
                own = importlib.metadata.version("perfkit")
                how += f"; the Python of the Dask scheduler and of each Dask worker needs perfkit {own}, as here"
            return how


@contextlib.asynccontextmanager
async def dask_placement(
    scheduler: str, machines: int | None, within_s: float, note: Callable[[str], None]
) -> AsyncIterator[DaskPlacement]:
    """Chooses Dask workers for so many machines, spread over hosts; without a number, one on every host.

    Waits until there are enough that do nothing else, or without a number until no more come. Machines that were started are ended with the
    block. Raises UsageError if Dask is not installed, and MeasurementError if the scheduler or the Dask workers are not there in time.
    """
    try:
        from distributed import Client
    except ImportError:
        raise UsageError(f"a fleet on Dask needs its packages: {install_command('fleet')}") from None
    with _quiet_logs():
        client = Client(scheduler, asynchronous=True, timeout=within_s, set_as_default=False)
        try:
            await _connect(client, scheduler, within_s)
            placement = DaskPlacement(client, scheduler, await _places(client, await _idle_workers(client, scheduler, machines, within_s)))
            if shared := _shared_hosts(placement.places):
                note(shared)
            try:
                yield placement
            except BaseException:
                await placement.stop(0)
                raise
            await placement.stop(_END_BY_THEMSELVES_WITHIN_S)
        finally:
            with contextlib.suppress(Exception):  # also of a scheduler that is gone
                await asyncio.wait_for(client.close(), _ANSWERS_WITHIN_S)


@contextlib.contextmanager
def _quiet_logs() -> Iterator[None]:
    """Keeps Dask's own words on lost connections from the terminal."""
    logs = [logging.getLogger(name) for name in _QUIET_LOGS]
    levels = [log.level for log in logs]
    for log in logs:
        log.setLevel(logging.CRITICAL)
    try:
        yield
    finally:
        for log, level in zip(logs, levels, strict=True):
            log.setLevel(level)


async def _connect(client: "Client", scheduler: str, within_s: float) -> None:
    try:
        await client
    except TypeError as error:  # Dask's for an address with TLS without its configuration
        raise UsageError(f"the Dask scheduler {scheduler}: {error}") from None
    except (OSError, RuntimeError, ValueError) as error:
        raise MeasurementError(
            f"the Dask scheduler {scheduler} cannot be reached within {within_s:g} s ({type(error).__name__}): start it, or correct fleet.scheduler"
        ) from None


async def _idle_workers(client: "Client", scheduler: str, machines: int | None, within_s: float) -> dict[str, str]:
    """The chosen Dask workers with their hosts: as soon as there are enough, or without a number when no more have come for a while."""
    from distributed.comm import get_address_host

    loop = asyncio.get_running_loop()
    ends_at, settles_at, before = loop.time() + within_s, 0.0, set[str]()
    while True:
        tasks = await client.processing()
        hosts = {address: get_address_host(address) for address, keys in tasks.items() if not keys}
        if set(hosts) != before:
            before, settles_at = set(hosts), loop.time() + _SETTLED_S
        chosen = choose(hosts, machines)
        if chosen and (len(chosen) == machines if machines is not None else loop.time() >= settles_at):
            return {address: hosts[address] for address in chosen}
        if loop.time() >= ends_at:
            busy = f", {len(tasks) - len(hosts)} of them busy with other tasks," if len(hosts) < len(tasks) else ""
            raise MeasurementError(
                f"the Dask scheduler {scheduler} had {len(tasks)} Dask workers{busy} after {within_s:g} s, and {machines or 1} idle ones are "
                f"needed: start more (`dask worker {scheduler} --host HOST --dashboard-address HOST:0`), lower fleet.workers, or raise fleet.join_within"
            )
        await asyncio.sleep(_POLLS_EVERY_S)


async def _places(client: "Client", hosts: Mapping[str, str]) -> list[Place]:
    """The Dask workers as places, each named after its machine."""
    nodes = await client.run(platform.node, workers=list(hosts), on_error="ignore")
    names = unlike_names([nodes.get(address) or host for address, host in hosts.items()])
    return [Place(name, host, address) for name, (address, host) in zip(names, hosts.items(), strict=True)]


def _shared_hosts(places: Sequence[Place]) -> str:
    """What to know if machines share a host; empty if none do."""
    counts = collections.Counter(place.host for place in places)
    shared = ", ".join(f"{count} on {host}" for host, count in counts.items() if count > 1)
    return f"machines of the fleet share hosts and their CPUs ({shared}): good for trying, not for measuring" if shared else ""


def _address_towards(host: str) -> str:
    """The address of this machine from which packets to a host leave; none is sent."""
    family, kind, protocol, _, address = socket.getaddrinfo(host, 9, type=socket.SOCK_DGRAM)[0]
    with socket.socket(family, kind, protocol) as probe:
        probe.connect(address)
        return str(probe.getsockname()[0])
