"""A fleet: machines that have joined this perfkit, and load points that they execute together."""

import asyncio
import contextlib
import dataclasses
import itertools
import pathlib
import ssl
from collections.abc import AsyncIterator, Callable, Sequence

from perfkit.calibration.model import Calibration
from perfkit.clock import Clock
from perfkit.errors import MeasurementError, TargetError, UsageError
from perfkit.fleet.admission import Admission
from perfkit.fleet.dask_placement import DaskPlacement, dask_placement, stands_for_all
from perfkit.fleet.fleet_machine import FleetMachine, RemoteWorkers, clock_error
from perfkit.fleet.messages import Hello
from perfkit.fleet.token import TOKEN_VARIABLE, new_token, read_token
from perfkit.load.loop import Stoppable
from perfkit.machine.own_addresses import is_loopback
from perfkit.scenario.measure import Fleet as FleetSettings
from perfkit.target.address import Address
from perfkit.units import NS_PER_S
from perfkit.workers.group import LEAD_NS, GroupListener, WorkerGroup
from perfkit.workers.local import WORKER_FILES
from perfkit.workers.messages import WorkerSpec
from perfkit.workers.point_recording import MachineRecording, PointRecording

_TLS_WITHIN_S = 10
_READ_AHEAD_BYTES = 2**20
_BACKLOG = 1024


class Fleet:
    """The machines of a run. It is used by one load point at a time."""

    def __init__(self, machines: Sequence[FleetMachine], settings: FleetSettings, clock: Clock) -> None:
        self._machines, self._settings, self._clock = machines, settings, clock
        self._numbers = itertools.count()

    @property
    def machines(self) -> Sequence[FleetMachine]:
        """The machines that are not lost."""
        return [machine for machine in self._machines if not machine.lost]

    def describe(self) -> list[dict[str, object]]:
        """The machines, for `environment.fleet` of a result."""
        return [
            {
                "name": machine.name,
                "perfkit": machine.hello.version,
                "usable_cpus": list(machine.hello.cpus),
                "open_files": machine.hello.open_files,
                "ports": machine.hello.ports,
                "is_calibrated": machine.hello.calibration is not None,
                "connect_ns": machine.connect_ns,
                "lost": machine.lost,
            }
            for machine in self._machines
        ]

    def describe_losses(self) -> str:
        """Why no machine is left."""
        return f"no machine of the fleet is left: {'; '.join(f'{one.name}: {one.lost}' for one in self._machines)}"

    @property
    def cpus(self) -> int:
        """The CPUs of all machines together."""
        return sum(len(machine.hello.cpus) for machine in self.machines)

    @property
    def calibration(self) -> Calibration | None:
        """The calibration of the machine whose requests cost most; None unless every machine has one."""
        calibrations = [machine.hello.calibration for machine in self.machines]
        known = [one for one in calibrations if one is not None]
        if len(known) < len(calibrations):
            return None
        return max(known, key=lambda one: max(cost.cpu_ns_per_request for cost in one.costs), default=None)

    def limit_fault(self, spec: WorkerSpec, workers: int) -> str:
        """Which machine's limits do not suffice for its share of a load, and why; empty if all do."""
        machines = self.machines
        for place, machine in enumerate(machines):
            own = len(range(place, workers, len(machines)))
            if fault := limit_fault(machine.hello, -(-spec.connections * own // workers), own):
                return f"{machine.name}: {fault}"
        return ""

    async def check_targets(self, spec: WorkerSpec) -> None:
        """Raises TargetError for a machine that cannot reach the target; one that is lost meanwhile is left out."""
        machines = self.machines
        for machine, checked in zip(machines, await asyncio.gather(*(one.check_target(spec) for one in machines)), strict=True):
            if checked.fault and not machine.lost:
                raise TargetError(f"{machine.name}: {checked.fault}; every machine of the fleet must reach the target")
            machine.connect_ns = None if checked.fault else checked.connect_ns

    async def run_point(
        self,
        spec: WorkerSpec,
        workers: int,
        listener: GroupListener,
        set_loop: Callable[[Stoppable], None],
    ) -> PointRecording:
        """Executes a load point with so many workers on all machines; see `WorkerGroup.run`.

        Worker i of n runs on machine i mod m. Raises MeasurementError if no machine is left, or if one was lost before and the fleet stops then.
        """
        began_ns, machines = self._clock.now_ns(), self.machines
        for machine in machines:
            machine.forget_comparisons()
        before = await asyncio.gather(*(machine.compare_clocks() for machine in machines))
        compared = [(machine, one) for machine, one in zip(machines, before, strict=True) if one is not None]
        if not compared:
            raise MeasurementError(self.describe_losses())
        if self._settings.on_loss == "stop" and (lost := [f"{one.name} was lost: {one.lost}" for one in self._machines if one.lost]):
            raise MeasurementError(f"stopped: {'; '.join(lost)}")
        shares: list[tuple[FleetMachine, int, int]] = []
        links: list[RemoteWorkers] = []
        try:
            for place, (machine, comparison) in enumerate(compared):
                own = tuple(range(place, workers, len(compared)))
                shares.append((machine, comparison.offset_ns, number := next(self._numbers)))
                if own:
                    links.append(machine.start_workers(spec, own, workers, number, comparison.offset_ns))
            lead_ns = 2 * LEAD_NS + 4 * max(comparison.bound_ns for _, comparison in compared)
            group = WorkerGroup(
                links,
                self._clock,
                listener,
                lead_ns=lead_ns,
                stops_when_one_is_lost=self._settings.on_loss == "stop",
            )
            set_loop(group)
            recorded = await group.run()
        finally:
            for machine, _, number in shares:
                machine.release_workers(number)
        await asyncio.gather(*(machine.compare_clocks() for machine, _, _ in shares))
        outcomes = {link.name: (link.workers, *outcome) for link, outcome in zip(links, group.recordings, strict=True)}
        parts = tuple(
            self._machine_recording(machine, offset_ns, *outcomes.get(machine.name, (0, None, "")), began_ns)
            for machine, offset_ns, _ in shares
        )
        return dataclasses.replace(recorded, machines=parts)

    @staticmethod
    def _machine_recording(
        machine: FleetMachine, offset_ns: int, workers: int, point: PointRecording | None, loss: str, began_ns: int
    ) -> MachineRecording:
        error = clock_error(offset_ns, machine.comparisons_since(began_ns))
        return MachineRecording(
            name=machine.name,
            workers=workers,
            recording=None if point is None else point.recording,
            shares=None if point is None else point.shares,
            clock_offset_ns=offset_ns,
            clock_drift_ppm=error.drift_ppm,
            clock_bound_ns=error.bound_ns,
            lost=(*((loss,) if loss else ()), *(() if point is None else point.lost)),
        )


def limit_fault(hello: Hello, connections: int, workers: int) -> str:
    """What a machine lacks for its share of the load, `connections` by `workers` processes; empty if nothing."""
    files = WORKER_FILES + -(-connections // max(workers, 1))
    if files > hello.open_files:
        return (
            f"each of its {workers} worker processes needs {files:,} open files and sockets, and the limit there is {hello.open_files:,}: "
            f"raise it there, such as `ulimit -n {2 * files}` before `perfkit worker`, or use more machines"
        )
    if hello.ports is not None and connections > hello.ports:
        return (
            f"it needs {connections:,} connections, and has {hello.ports:,} local ports for one address: widen "
            "net.ipv4.ip_local_port_range there, lower target.max_connections, or use more machines"
        )
    return ""


@contextlib.asynccontextmanager
async def open_fleet(
    settings: FleetSettings, clock: Clock, folder: pathlib.Path, note: Callable[[str], None], targets: Sequence[Address]
) -> AsyncIterator[Fleet]:
    """Waits until the machines of a fleet have joined, and ends them at the end of the block.

    Those on Dask are started first. `note` gets sentences for the user, such as what to run on each machine; `folder` is where relative paths
    of the scenario begin, and `targets` are the addresses that get the load. Raises UsageError for settings that cannot be used, and MeasurementError if not all machines join in time.
    """
    given = read_token(folder / settings.token_file if settings.token_file else None)
    token, listens_at = given or new_token(), settings.listen_at(target_is_local=all(one.is_private for one in targets))
    _check_port(*listens_at, targets)
    tls, within_s = _server_tls(settings, folder), settings.join_within_ns / NS_PER_S
    async with contextlib.AsyncExitStack() as stack:
        placement: DaskPlacement | None = None
        if settings.scheduler is not None:
            placement = await stack.enter_async_context(dask_placement(settings.scheduler, settings.workers, within_s, note))
        wanted = len(placement.places) if placement is not None else settings.workers or 1
        admission = Admission(wanted, token, clock, note, None if placement is None else placement.run)
        host, port = await stack.enter_async_context(_listening(admission, *listens_at, tls))
        if tls is None and not Address("http", host, port).is_private:
            note(
                f"the fleet's connections at {Address('http', host, port).authority} are not encrypted: who reads the network reads the requests and their "
                "headers; give fleet.tls_cert and fleet.tls_key"
            )
        if placement is None:
            note(_how_to_join(settings, wanted, host, port, None if given else token))
            mend = "start `perfkit worker` on the others"
        else:
            note(f"waiting for {_machines(wanted)} on Dask: {', '.join(place.name for place in placement.places)}")
            certificate = None if settings.tls_cert is None else (folder / settings.tls_cert).read_text(encoding="utf-8")
            await placement.start((host, port), token, certificate, within_s / 2, admission.machine_ended)
            mend = "see the logs of the others' Dask workers"
        await admission.wait(within_s, mend)
        yield Fleet(admission.machines, settings, clock)


def _check_port(host: str, port: int, targets: Sequence[Address]) -> None:
    """Raises UsageError if a target on this machine has the port."""
    for target in targets:
        is_same = stands_for_all(host) or host == target.host or (is_loopback(host) and is_loopback(target.host))
        if target.is_local and not target.socket_path and target.port == port and is_same:
            taken = {one.port for one in targets}
            free = next(one for one in (*range(port + 1, 65_536), *range(port - 1, 1_023, -1)) if one not in taken)
            other = Address("http", host, free).authority
            raise UsageError(
                f"fleet.listen: port {port} is that of the target, {target}: give another, such as `fleet.listen: {other}` (--fleet listen://{other})"
            )


@contextlib.asynccontextmanager
async def _listening(admission: Admission, host: str, port: int, tls: ssl.SSLContext | None) -> AsyncIterator[tuple[str, int]]:
    """Lets machines join; yields the host and the port where they do. At the end of the block they are told that the run is over."""
    handshake_s = None if tls is None else _TLS_WITHIN_S
    try:
        server = await asyncio.start_server(
            admission.admit, host, port, ssl=tls, ssl_handshake_timeout=handshake_s, limit=_READ_AHEAD_BYTES, backlog=_BACKLOG
        )
    except OSError as error:
        raise UsageError(
            f"fleet.listen: {Address('http', host, port).authority}: {error.strerror or error}; give another address or port"
        ) from None
    try:
        yield host, server.sockets[0].getsockname()[1]
    finally:
        server.close()  # its end is not awaited: that would be the end of all connections
        await admission.close()


def _server_tls(settings: FleetSettings, folder: pathlib.Path) -> ssl.SSLContext | None:
    if settings.tls_cert is None or settings.tls_key is None:
        return None
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    try:
        context.load_cert_chain(folder / settings.tls_cert, folder / settings.tls_key)
    except (OSError, ssl.SSLError) as error:
        raise UsageError(f"fleet.tls_cert and fleet.tls_key: {error}") from None
    return context


def _how_to_join(settings: FleetSettings, wanted: int, host: str, port: int, token: str | None) -> str:
    shown = f"THIS_HOST:{port}" if stands_for_all(host) else Address("http", host, port).authority
    secret = f"{TOKEN_VARIABLE}={token} " if token else ""
    tls = " --tls-ca FILE" if settings.tls_cert else ""
    return f"waiting for {_machines(wanted)}: run `{secret}perfkit worker --join tcp://{shown}{tls}` on each"


def _machines(count: int) -> str:
    return f"{count} machine{'s' * (count != 1)}"
