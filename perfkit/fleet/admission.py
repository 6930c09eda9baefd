"""Who is taken into a fleet: callers that know the token, until there are enough."""

import asyncio
import collections
import importlib.metadata
import itertools
from collections.abc import Callable, Collection

from perfkit.clock import Clock
from perfkit.errors import MeasurementError
from perfkit.fleet.connection import Connection, JoinError, UnknownMessageError, accept
from perfkit.fleet.dask_machine import DaskTask
from perfkit.fleet.fleet_machine import FleetMachine
from perfkit.fleet.messages import Accepted, Hello, Refused, RunEnds

_HELLO_WITHIN_S, _SENT_AWAY_WITHIN_S = 30, 1
_MOST_CALLERS, _MOST_REASONS = 64, 10
_LONGEST_HELLO_BYTES, _LONGEST_NAME = 2**20, 200


class Admission:
    """Lets machines join until there are enough; those of the Dask tasks of a run, each once, or without one those that were started by hand."""

    def __init__(self, wanted: int, token: str, clock: Clock, note: Callable[[str], None], run: str | None = None) -> None:
        self.machines: list[FleetMachine] = []
        self._wanted, self._token, self._clock, self._note, self._run = wanted, token, clock, note, run
        self._version = importlib.metadata.version("perfkit")
        self._tasks = set[asyncio.Task[None]]()
        self._callers: dict[asyncio.StreamWriter, asyncio.Future[None]] = {}
        """Callers that have not introduced themselves yet, oldest first."""
        self._joined = set[DaskTask]()
        self._sent_away = collections.Counter[str]()
        """Callers by the reason."""
        self._is_closed = False
        self._complete: asyncio.Future[None] = asyncio.get_running_loop().create_future()

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
            self._count_sent_away(f"a caller from {peer}", str(error))
            return
        finally:
            self._callers.pop(writer).set_result(None)
        name = unused_name(hello.name[:_LONGEST_NAME], {machine.name for machine in self.machines})
        if reason := self._why_not(hello):
            self._count_sent_away(f"{name} ({peer})", reason)
            await _refuse(connection, reason)
            return
        if hello.task is not None:
            self._joined.add(hello.task)
        connection.send(Accepted(name))
        machine = FleetMachine(connection, hello, name, self._clock)
        self.machines.append(machine)
        for work in (self._listen(machine), machine.ping()):
            task = asyncio.ensure_future(work)
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)
        self._note(f"{name} ({peer}) has joined, {len(self.machines)} of {self._wanted}")
        if len(self.machines) == self._wanted and not self._complete.done():
            self._complete.set_result(None)

    def _why_not(self, hello: Hello) -> str:
        """Why a machine cannot join; empty if it can."""
        if hello.version != self._version:
            return f"perfkit {hello.version:.40} is installed there, and {self._version} here: install the same version on both"
        if hello.task is not None and hello.task.run != self._run:
            return "Dask has started it for another run"
        if self._run is not None and hello.task is None:
            return "the machines of this fleet are those that Dask starts for it"
        if hello.task in self._joined:
            return "Dask has started its task again: a machine that was lost does not come back in the same run"
        return "it is complete" if len(self.machines) >= self._wanted else ""

    def _count_sent_away(self, who: str, reason: str) -> None:
        """Notes the first caller that is sent away for a reason; `close` says how many there were."""
        if len(self._sent_away) < _MOST_REASONS or reason in self._sent_away:
            if reason not in self._sent_away:
                self._note(f"{who} was sent away: {reason}")
            self._sent_away[reason] += 1
        else:
            self._sent_away["another reason"] += 1

    async def _listen(self, machine: FleetMachine) -> None:
        """Listens to a machine until it is lost; its place is free then, unless the fleet is complete."""
        await machine.listen()
        self._note(f"{machine.name} was lost: {machine.lost}")
        if not self._complete.done():
            self.machines.remove(machine)

    def machine_ended(self, name: str, how: str) -> None:
        """Notes that a machine started for this fleet has ended; it is not started again, so before all have joined this ends the wait."""
        if self._is_closed:
            return
        if self._complete.done():
            self._note(f"{name}: {how}")
        else:
            self._complete.set_exception(MeasurementError(f"{name}: {how}, before all machines had joined the fleet"))

    async def wait(self, within_s: float, mend: str) -> None:
        """Returns when all machines have joined; raises MeasurementError if they have not in time, with what the user may do."""
        try:
            await asyncio.wait_for(self._complete, within_s)
        except TimeoutError:
            names = f": {', '.join(machine.name for machine in self.machines)}" if self.machines else ""
            raise MeasurementError(
                f"{len(self.machines)} of {self._wanted} machines joined the fleet within {within_s:g} s{names}; {mend}, or raise "
                "fleet.join_within"
            ) from None

    async def close(self) -> None:
        """Tells all machines that the run is over."""
        self._is_closed = True
        self._complete.cancel()
        for task in self._tasks:
            task.cancel()
        if self._callers:
            for writer in self._callers:
                writer.transport.abort()
            await asyncio.wait(self._callers.values(), timeout=_SENT_AWAY_WITHIN_S)
        if (total := self._sent_away.total()) > len(self._sent_away):
            reasons = "; ".join(f"{reason} ({count:,})" for reason, count in self._sent_away.most_common())
            self._note(f"{total:,} callers were sent away: {reasons}")
        await asyncio.gather(*(machine.close(RunEnds()) for machine in self.machines), return_exceptions=True)


def unused_name(name: str, taken: Collection[str]) -> str:
    """The name, with a number if it is taken."""
    return next(one for one in itertools.chain((name,), (f"{name}-{number}" for number in itertools.count(2))) if one not in taken)


async def _read_hello(connection: Connection) -> Hello:
    """A machine's introduction; raises JoinError after the connection is closed."""
    try:
        async with asyncio.timeout(_HELLO_WITHIN_S):
            hello = await connection.receive(longest_bytes=_LONGEST_HELLO_BYTES)
    except UnknownMessageError as error:
        await _refuse(connection, f"this machine {error}")
        raise JoinError(f"it {error}") from None
    except (EOFError, TimeoutError):
        hello = None
    if not isinstance(hello, Hello):
        connection.abort()
        raise JoinError("it did not introduce itself as a machine of a fleet")
    return hello


async def _refuse(connection: Connection, reason: str) -> None:
    connection.send(Refused(reason))
    await connection.close()
