"""The driver's side of a fleet: who is taken, who is lost, and what that does to the load points."""

import asyncio
import contextlib
import pathlib
import re
import types
from typing import Any

import pytest

from perfkit.clock import MonotonicClock
from perfkit.errors import MeasurementError, UsageError
from perfkit.fleet.admission import Admission
from perfkit.fleet.connection import JoinError, join
from perfkit.fleet.dask_machine import DaskTask
from perfkit.fleet.fleet import Fleet, open_fleet
from perfkit.fleet.fleet_machine import FleetMachine
from perfkit.fleet.machine import MachineShare
from perfkit.fleet.messages import Accepted, Hello, Ping, Pong, Refused, RunEnds, StartWorkers, WorkersEnded
from perfkit.fleet.token import MAGIC
from perfkit.scenario.measure import Fleet as FleetSettings
from perfkit.target.address import Address
from perfkit.workers.group import GroupListener
from perfkit.workers.local import LocalWorkers
from tests.conditions import until
from tests.workers.test_point import worker_spec

TARGET = Address.parse("http://127.0.0.1:8000")
TOKEN = "a-token-of-the-tests-1b7f"  # noqa: S105


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
        self._opened = open_fleet(FleetSettings.model_validate(section), MonotonicClock(), pathlib.Path(), self._note, [TARGET])
        self._stack = contextlib.AsyncExitStack()

    def _note(self, text):
        self.notes.append(text)
        self._changed.set()

    async def __aenter__(self):
        self.opening = asyncio.ensure_future(self._stack.enter_async_context(self._opened))
        await self.said("waiting for")
        (port,) = re.findall(r":(\d+)` on each", " ".join(self.notes))
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
        return await joined(self.port, name, **changes)


async def joined(port, name, **changes):
    """A machine that has joined, or wanted to, and the answer that it got."""
    connection = await join("127.0.0.1", port, TOKEN, None)
    connection.send(hello(name, **changes))
    return connection, await connection.receive()


@contextlib.asynccontextmanager
async def admission(wanted, run=None):
    """The port of an admission, and what it notes."""
    notes: list[str] = []
    made = Admission(wanted, TOKEN, MonotonicClock(), notes.append, run)
    server = await asyncio.start_server(made.admit, "127.0.0.1", 0)
    try:
        yield server.sockets[0].getsockname()[1], notes
    finally:
        server.close()
        await made.close()


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
            connection._writer.write(connection._sealer.seal(b"\x00of the future"))
            answer = await connection.receive()
            assert isinstance(answer, Refused)
            assert "install the same version on both" in answer.reason
            await driver.said("a caller from 127.0.0.1 was sent away: it sent what this version of perfkit cannot read")
            await connection.close()

    asyncio.run(main())


@pytest.mark.parametrize(
    ("run", "task", "reason"),
    [
        (None, DaskTask("r1", 0), "Dask has started it for another run"),
        ("r1", DaskTask("r2", 0), "Dask has started it for another run"),
        ("r1", None, "the machines of this fleet are those that Dask starts for it"),
    ],
)
def test_a_machine_of_another_run_is_turned_away(run, task, reason):
    async def main():
        async with admission(1, run) as (port, notes):
            connection, answer = await joined(port, "alpha", task=task)
            assert answer == Refused(reason)
            assert notes == [f"alpha (127.0.0.1) was sent away: {reason}"]
            await connection.close()

    asyncio.run(main())


def test_a_machine_whose_dask_task_is_started_again_is_turned_away():
    async def main():
        async with admission(2, "r1") as (port, notes):
            first, accepted = await joined(port, "alpha", task=DaskTask("r1", 0))
            assert accepted == Accepted("alpha")
            await first.close()
            await until(lambda: "alpha was lost: its connection broke" in notes)
            again, answer = await joined(port, "alpha", task=DaskTask("r1", 0))
            assert answer == Refused("Dask has started its task again: a machine that was lost does not come back in the same run")
            other, accepted = await joined(port, "beta", task=DaskTask("r1", 1))
            assert accepted == Accepted("beta")
            for connection in (again, other):
                await connection.close()

    asyncio.run(main())


def test_callers_that_are_sent_away_are_counted_and_said_once():
    async def main():
        async with admission(1) as (port, notes):
            for _ in range(50):
                with pytest.raises(JoinError):
                    await join("127.0.0.1", port, "another-token-of-the-tests-9c0d", None)
            reader, writer = await asyncio.open_connection("127.0.0.1", port)
            writer.write_eof()
            await reader.read()
            writer.close()
            await until(lambda: len(notes) == 2)
        assert notes == [
            "a caller from 127.0.0.1 was sent away: it has another token",
            "a caller from 127.0.0.1 was sent away: it did not join",
            "51 callers were sent away: it has another token (50); it did not join (1)",
        ]

    asyncio.run(main())


@pytest.mark.parametrize(
    ("listen", "is_local", "host"),
    [(None, True, "127.0.0.1"), (None, False, "0.0.0.0"), ("[::1]:7", False, "::1")],  # noqa: S104 - compared, not bound
)
def test_a_fleet_for_a_target_on_this_machine_listens_on_loopback(listen, is_local, host):
    assert FleetSettings(kind="worker", workers=1, listen=listen).listen_at(target_is_local=is_local)[0] == host


def test_connections_that_others_can_read_are_warned_of(monkeypatch):
    async def main():
        async with Driver(monkeypatch, 1, listen="0.0.0.0:0") as driver:
            assert [note for note in driver.notes if "are not encrypted: who reads the network reads the requests" in note]

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


@pytest.mark.parametrize("listen", [None, "127.0.0.1:8790", "0.0.0.0:8790", "localhost:8790"])
def test_the_port_of_the_target_is_named_and_another_one_proposed(listen):
    settings = FleetSettings(kind="worker", workers=1, listen=listen)

    async def main():
        async with open_fleet(settings, MonotonicClock(), pathlib.Path(), print, [Address.parse("http://127.0.0.1:8790")]):
            pytest.fail("it listens")

    with pytest.raises(
        UsageError, match=r"fleet.listen: port 8790 is that of the target, http://127.0.0.1:8790: give another, such as .*:8791"
    ):
        asyncio.run(main())


@pytest.mark.parametrize(("ports", "proposed"), [((8790, 8791, 8793), 8792), ((65_535,), 65_534), ((65_534, 65_535), 65_533)])
def test_the_port_that_is_proposed_is_that_of_no_target(ports, proposed):
    settings = FleetSettings(kind="worker", workers=1, listen=f"127.0.0.1:{ports[0]}")
    targets = [Address.parse(f"http://127.0.0.1:{port}") for port in ports]

    async def main():
        async with open_fleet(settings, MonotonicClock(), pathlib.Path(), print, targets):
            pytest.fail("it listens")

    with pytest.raises(UsageError, match=rf"give another, such as .*:{proposed}`"):
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
