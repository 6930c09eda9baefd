"""The driver's side of a fleet: who is taken, who is lost, and what that does to the load points."""

import asyncio
import contextlib
import pathlib
import re
import types
from typing import Any

import pytest

from perfkit.clock import MonotonicClock
from perfkit.errors import MeasurementError
from perfkit.fleet.connection import join
from perfkit.fleet.fleet import Fleet, open_fleet
from perfkit.fleet.fleet_machine import FleetMachine
from perfkit.fleet.frames import MAGIC
from perfkit.fleet.machine_share import MachineShare
from perfkit.fleet.messages import Accepted, Hello, Ping, Pong, Refused, RunEnds, StartWorkers, WorkersEnded
from perfkit.scenario.fleet import Fleet as FleetSettings
from perfkit.workers.group import GroupListener
from perfkit.workers.local import LocalWorkers
from tests.workers.test_point import worker_spec

TOKEN = "of the tests"  # noqa: S105


def hello(name, **changes):
    import importlib.metadata

    known = {"version": importlib.metadata.version("perfkit"), "cpus": (0,), "open_files": 1000, "ports": 500, "calibration": None}
    return Hello(name=name, **{**known, **changes})


class Driver:
    """A fleet that waits for its machines, and what it says."""

    def __init__(self, monkeypatch, machines, **settings):
        monkeypatch.setenv("PERFKIT_FLEET_TOKEN", TOKEN)
        self.notes = []
        self._changed = asyncio.Event()
        section = {"kind": "worker", "listen": "127.0.0.1:0", "workers": machines, "join_within": "30s", **settings}
        self._opened = open_fleet(FleetSettings.model_validate(section), MonotonicClock(), pathlib.Path(), self._note)
        self._stack = contextlib.AsyncExitStack()

    def _note(self, text):
        self.notes.append(text)
        self._changed.set()

    async def __aenter__(self):
        self.opening = asyncio.ensure_future(self._stack.enter_async_context(self._opened))
        await self.said("waiting for")
        (port,) = re.findall(r":(\d+)` on each", self.notes[0])
        self.port = int(port)
        return self

    async def __aexit__(self, *_):
        self.opening.cancel()
        await asyncio.gather(self.opening, return_exceptions=True)
        await self._stack.aclose()

    async def said(self, text):
        while not any(text in note for note in self.notes):
            self._changed.clear()
            await self._changed.wait()

    async def joined(self, name, **changes):
        connection = await join("127.0.0.1", self.port, TOKEN, None)
        connection.send(hello(name, **changes))
        return connection, await connection.receive()


async def answer_pings(connection):
    with contextlib.suppress(EOFError):
        while not isinstance(message := await connection.receive(), RunEnds):
            if isinstance(message, Ping):
                connection.send(Pong(message.number, MonotonicClock().now_ns()))


def test_a_machine_that_is_lost_while_others_are_awaited_frees_its_place_and_its_name(monkeypatch):
    async def main():
        async with Driver(monkeypatch, 2) as driver:
            first, accepted = await driver.joined("alpha")
            assert accepted == Accepted("alpha")
            await first.close()
            await driver.said("alpha was lost: its connection broke")
            again, accepted = await driver.joined("alpha")
            assert accepted == Accepted("alpha")
            other, accepted = await driver.joined("alpha")
            assert accepted == Accepted("alpha-2")
            fleet = await driver.opening
            assert [machine.name for machine in fleet.machines] == ["alpha", "alpha-2"]
            late, answer = await driver.joined("gamma")
            assert answer == Refused("it is complete")
            for connection in (again, other, late):
                await connection.close()

    asyncio.run(main())


@pytest.mark.parametrize("on_loss", ["stop", "continue"])
def test_a_machine_lost_between_load_points_ends_the_run_if_the_fleet_stops_then(monkeypatch, on_loss):
    async def main():
        async with Driver(monkeypatch, 2, on_loss=on_loss) as driver:
            alpha, _ = await driver.joined("alpha")
            beta, _ = await driver.joined("beta")
            fleet = await driver.opening
            answering = asyncio.ensure_future(answer_pings(alpha))
            await beta.close()
            await driver.said("beta was lost: its connection broke")
            assert [one["lost"] for one in fleet.describe()] == ["", "its connection broke"]
            listener = GroupListener()
            began = asyncio.ensure_future(fleet.run_point(worker_spec(), 0, listener, lambda _: None))
            # without workers there is nothing to begin
            expected = "stopped: beta was lost: its connection broke" if on_loss == "stop" else "no worker is left"
            with pytest.raises(MeasurementError, match=expected):
                await began
            await alpha.close()
            await answering

    asyncio.run(main())


def test_a_machine_whose_messages_cannot_be_read_is_told_to_install_the_same_version(monkeypatch):
    async def main():
        async with Driver(monkeypatch, 1) as driver:
            connection = await join("127.0.0.1", driver.port, TOKEN, None)
            connection._writer.write(connection._sealer.seal(b"cperfkit.fleet.messages\nHelloOfTheFuture\n."))
            answer = await connection.receive()
            assert isinstance(answer, Refused)
            assert "install the same version on both" in answer.reason
            await driver.said("a caller from 127.0.0.1 was sent away: it sent what this version of perfkit cannot read")
            await connection.close()

    asyncio.run(main())


def test_callers_that_say_nothing_make_room_for_others(monkeypatch):
    async def main():
        async with Driver(monkeypatch, 1) as driver:
            silent = []
            for _ in range(70):
                silent.append(await asyncio.open_connection("127.0.0.1", driver.port))
                await silent[-1][0].readexactly(len(MAGIC))
            reader, _ = silent[0]
            await reader.read()  # ended by the driver, which would wait ten seconds for each otherwise
            machine, accepted = await driver.joined("alpha")
            assert accepted == Accepted("alpha")
            await machine.close()
            for _, writer in silent:
                writer.close()
                with contextlib.suppress(ConnectionError):
                    await writer.wait_closed()

    asyncio.run(main())


def test_limits_are_those_of_a_machine_for_its_share():
    connection: Any = None
    machines = [FleetMachine(connection, hello(name, open_files=files), name, MonotonicClock()) for name, files in (("a", 100), ("b", 50))]
    fleet = Fleet(machines, FleetSettings(kind="worker", workers=2), MonotonicClock())

    def fault(connections):
        spec: Any = types.SimpleNamespace(connections=connections)
        return fleet.limit_fault(spec, 2)

    assert fault(56) == "", "28 on each, and 22 further files"
    assert fault(58).startswith("b: each of its 1 worker processes needs 51 open files and sockets")


def test_a_worker_that_cannot_be_started_is_reported_at_once(monkeypatch):
    def refuse(*_, **__):
        raise BlockingIOError(11, "Resource temporarily unavailable")

    async def main():
        sent: list[Any] = []
        clock = MonotonicClock()
        await MachineShare(StartWorkers(7, worker_spec(), (1, 3), 4), "beta", (0, 1), clock, LocalWorkers(clock), sent.append).run()
        return sent

    monkeypatch.setattr("perfkit.workers.local.start_module", refuse)
    assert asyncio.run(main()) == [WorkersEnded("could not start its workers: Resource temporarily unavailable")]
