"""A fleet: machines that have joined this perfkit, and load points that they execute together."""

import asyncio
import contextlib
import dataclasses
import functools
import importlib.metadata
import itertools
import pathlib
import secrets
import ssl
from collections.abc import AsyncIterator, Callable, Sequence

from perfkit.calibration.model import Calibration
from perfkit.clock import Clock
from perfkit.errors import MeasurementError, TargetError, UsageError
from perfkit.fleet.checks import limit_faults, version_fault
from perfkit.fleet.clock_offset import clock_error
from perfkit.fleet.connection import Connection, JoinError, UnknownMessageError, accept
from perfkit.fleet.fleet_machine import FleetMachine, RemoteWorker
from perfkit.fleet.messages import Accepted, Hello, Refused, RunEnds
from perfkit.fleet.token import TOKEN_VARIABLE, read_token
from perfkit.load.loop import Stoppable
from perfkit.scenario.fleet import Fleet as FleetSettings
from perfkit.units import NS_PER_S
from perfkit.workers.group import LEAD_NS, GroupListener, WorkerGroup
from perfkit.workers.point_recording import MachineRecording, PointRecording, merge_points
from perfkit.workers.worker_spec import MixSpec, WorkerSpec

_HELLO_WITHIN_S = 30
_TLS_WITHIN_S, _SENT_AWAY_WITHIN_S = 10, 1
_READ_AHEAD_BYTES = 2**20
_BACKLOG, _MOST_CALLERS = 1024, 64


class Fleet:
    """The machines of a run. It is used by one load point at a time."""

    def __init__(self, machines: Sequence[FleetMachine], settings: FleetSettings, clock: Clock) -> None:
        self._machines, self._settings, self._clock = machines, settings, clock
        self._ids = itertools.count()

    @property
    def machines(self) -> Sequence[FleetMachine]:
        """Those that are not lost."""
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

    def limit_fault(self, spec: WorkerSpec | MixSpec, workers: int) -> str:
        """Which machine's limits do not suffice for its share of a load, and why; empty if all do."""
        machines = self.machines
        for place, machine in enumerate(machines):
            own = len(range(place, workers, len(machines)))
            for fault in limit_faults(machine.hello, -(-spec.connections * own // workers), own):
                return f"{machine.name}: {fault}"
        return ""

    async def check_targets(self, spec: WorkerSpec | MixSpec) -> None:
        """Raises TargetError for a machine that cannot reach the target; one that is lost meanwhile is left out."""
        machines = self.machines
        for machine, checked in zip(machines, await asyncio.gather(*(one.check_target(spec) for one in machines)), strict=True):
            if checked.fault and not machine.lost:
                raise TargetError(f"{machine.name}: {checked.fault}; every machine of the fleet must reach the target")
            machine.connect_ns = None if checked.fault else checked.connect_ns

    async def run_point(
        self,
        spec: WorkerSpec | MixSpec,
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
        shares: list[tuple[FleetMachine, int, tuple[int, ...]]] = []
        links: list[RemoteWorker] = []
        try:
            for place, (machine, comparison) in enumerate(compared):
                own = tuple(range(place, workers, len(compared)))
                ids = tuple(next(self._ids) for _ in own)
                shares.append((machine, comparison.offset_ns, ids))
                links += machine.start_workers(spec, own, workers, ids, comparison.offset_ns)
            lead_ns = LEAD_NS + 4 * max(comparison.bound_ns for _, comparison in compared)
            group = WorkerGroup(links, self._clock, listener, lead_ns=lead_ns, stops_when_one_is_lost=self._settings.on_loss == "stop")
            set_loop(group)
            recorded = await group.run()
        finally:
            for machine, _, ids in shares:
                machine.release_workers(ids)
        await asyncio.gather(*(machine.compare_clocks() for machine, _, _ in shares))
        outcomes = iter(group.recordings)
        parts = tuple(
            self._machine_recording(machine, offset_ns, list(itertools.islice(outcomes, len(ids))), began_ns)
            for machine, offset_ns, ids in shares
        )
        return dataclasses.replace(recorded, machines=parts)

    @staticmethod
    def _machine_recording(
        machine: FleetMachine, offset_ns: int, outcomes: Sequence[tuple[PointRecording | None, str]], began_ns: int
    ) -> MachineRecording:
        points = [point for point, _ in outcomes if point is not None]
        whole, error = merge_points(points) if points else None, clock_error(offset_ns, machine.comparisons_since(began_ns))
        return MachineRecording(
            name=machine.name,
            workers=len(outcomes),
            recording=None if whole is None else whole.recording,
            shares=None if whole is None else whole.shares,
            clock_offset_ns=offset_ns,
            clock_drift_ppm=error.drift_ppm,
            clock_bound_ns=error.bound_ns,
            lost=tuple(lost for _, lost in outcomes if lost),
        )


@contextlib.asynccontextmanager
async def open_fleet(settings: FleetSettings, clock: Clock, folder: pathlib.Path, note: Callable[[str], None]) -> AsyncIterator[Fleet]:
    """Waits until the machines of a fleet have joined, and ends them at the end of the block.

    `note` gets sentences for the user, such as what to run on each machine; `folder` is where relative paths of the scenario begin. Raises
    UsageError for settings that cannot be used, and MeasurementError if not all machines join in time.
    """
    token, is_new = _read_token(settings, folder)
    admission = _Admission(settings.workers, token, clock, note)
    host, port = settings.listen_at
    tls = _server_tls(settings, folder)
    handshake_s = None if tls is None else _TLS_WITHIN_S
    try:
        server = await asyncio.start_server(
            admission.admit, host, port, ssl=tls, ssl_handshake_timeout=handshake_s, limit=_READ_AHEAD_BYTES, backlog=_BACKLOG
        )
    except OSError as error:
        raise UsageError(f"fleet.listen: {settings.listen}: {error.strerror or error}; give another address or port") from None
    port = server.sockets[0].getsockname()[1]
    try:
        note(_how_to_join(settings, host, port, token if is_new else None))
        await admission.wait(settings.join_within_ns / NS_PER_S)
        yield Fleet(admission.machines, settings, clock)
    finally:
        server.close()  # its end is not awaited: that would be the end of all connections
        await admission.close()


class _Admission:
    """Lets machines join until there are enough."""

    def __init__(self, wanted: int, token: str, clock: Clock, note: Callable[[str], None]) -> None:
        self.machines: list[FleetMachine] = []
        self._wanted, self._token, self._clock, self._note = wanted, token, clock, note
        self._version = importlib.metadata.version("perfkit")
        self._tasks = set[asyncio.Task[None]]()
        self._callers: dict[asyncio.StreamWriter, asyncio.Future[None]] = {}
        """Those who have not said yet what they are, in their order."""
        self._is_complete = asyncio.Event()

    async def admit(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Takes a caller into the fleet, or sends it away. Of too many callers at a time, the one that has waited longest makes room."""
        peer = (writer.get_extra_info("peername") or ("an unknown address",))[0]
        if len(self._callers) >= _MOST_CALLERS + self._wanted:
            next(iter(self._callers)).transport.abort()
        self._callers[writer] = asyncio.get_running_loop().create_future()
        try:
            connection = await accept(reader, writer, self._token)
            hello = await _read_hello(connection)
        except JoinError as error:
            self._note(f"a caller from {peer} was sent away: {error}")
            return
        finally:
            self._callers.pop(writer).set_result(None)
        name = self._unused(hello.name)
        reason = version_fault(hello, self._version) or ("it is complete" if len(self.machines) >= self._wanted else "")
        if reason:
            self._note(f"{name} ({peer}) was sent away: {reason}")
            await _refuse(connection, reason)
            return
        connection.send(Accepted(name))
        machine = FleetMachine(connection, hello, name, self._clock)
        self.machines.append(machine)
        for work in (self._listen(machine), machine.ping()):
            task = asyncio.ensure_future(work)
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)
        self._note(f"{name} ({peer}) has joined, {len(self.machines)} of {self._wanted}")
        if len(self.machines) == self._wanted:
            self._is_complete.set()

    async def _listen(self, machine: FleetMachine) -> None:
        """Listens to a machine until it is lost; its place is free then, unless the fleet is complete."""
        await machine.listen()
        self._note(f"{machine.name} was lost: {machine.lost}")
        if not self._is_complete.is_set():
            self.machines.remove(machine)

    async def wait(self, within_s: float) -> None:
        """Returns when all machines have joined; raises MeasurementError if they have not in time."""
        try:
            await asyncio.wait_for(self._is_complete.wait(), within_s)
        except TimeoutError:
            names = f": {', '.join(machine.name for machine in self.machines)}" if self.machines else ""
            raise MeasurementError(
                f"{len(self.machines)} of {self._wanted} machines joined the fleet within {within_s:g} s{names}; start `perfkit worker` on "
                "the others, or raise fleet.join_within"
            ) from None

    async def close(self) -> None:
        """Tells all machines that the run is over."""
        for task in self._tasks:
            task.cancel()
        if self._callers:
            for writer in self._callers:
                writer.transport.abort()
            await asyncio.wait(self._callers.values(), timeout=_SENT_AWAY_WITHIN_S)
        await asyncio.gather(*(machine.close(RunEnds()) for machine in self.machines), return_exceptions=True)

    def _unused(self, name: str) -> str:
        names = {machine.name for machine in self.machines}
        return next(one for one in itertools.chain((name,), (f"{name}-{number}" for number in itertools.count(2))) if one not in names)


async def _read_hello(connection: Connection) -> Hello:
    """What a machine says of itself; raises JoinError after the connection is closed."""
    try:
        async with asyncio.timeout(_HELLO_WITHIN_S):
            hello = await connection.receive()
    except UnknownMessageError as error:
        await _refuse(connection, f"this machine {error}")
        raise JoinError(f"it {error}") from None
    except (EOFError, TimeoutError):
        hello = None
    if not isinstance(hello, Hello):
        connection.abort()
        raise JoinError("it did not say what it is")
    return hello


async def _refuse(connection: Connection, reason: str) -> None:
    connection.send(Refused(reason))
    await connection.close()


def _read_token(settings: FleetSettings, folder: pathlib.Path) -> tuple[str, bool]:
    """The shared token, and whether it was made just now."""
    token = read_token(folder / settings.token_file if settings.token_file else None)
    return (token, False) if token else (_new_token(), True)


@functools.cache
def _new_token() -> str:
    """The same for all runs of a command, so that a machine can stay for the next."""
    return secrets.token_urlsafe(24)


def _server_tls(settings: FleetSettings, folder: pathlib.Path) -> ssl.SSLContext | None:
    if settings.tls_cert is None or settings.tls_key is None:
        return None
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    try:
        context.load_cert_chain(folder / settings.tls_cert, folder / settings.tls_key)
    except (OSError, ssl.SSLError) as error:
        raise UsageError(f"fleet.tls_cert and fleet.tls_key: {error}") from None
    return context


def _how_to_join(settings: FleetSettings, host: str, port: int, token: str | None) -> str:
    shown = "THIS_HOST" if host in {"0.0.0.0", "::", ""} else f"[{host}]" if ":" in host else host  # noqa: S104 - compared, not bound
    secret = f"{TOKEN_VARIABLE}={token} " if token else ""
    tls = " --tls-ca FILE" if settings.tls_cert else ""
    machines = f"{settings.workers} machine{'s' * (settings.workers != 1)}"
    return f"waiting for {machines}: run `{secret}perfkit worker --join tcp://{shown}:{port}{tls}` on each"
