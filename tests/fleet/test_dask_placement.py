"""Machines on Dask: which Dask workers run them, what is refused, and how their end is reported; a scheduler and workers in this process."""

import asyncio
import contextlib
import itertools
import pathlib
import re
import threading

import dask.config
import distributed
import pytest
import trustme

from perfkit.errors import MeasurementError, UsageError
from perfkit.fleet.dask_machine import DaskTask, MachineStart
from perfkit.fleet.dask_placement import choose, dask_placement, unlike_names
from tests.conditions import until

_OTHER_WORK_ENDS = threading.Event()
SECRET = "a-token-of-the-tests-1b7f"  # noqa: S105
TWO_HOSTS = {"tcp://a:1": "a", "tcp://a:2": "a", "tcp://a:3": "a", "tcp://b:1": "b"}


def other_work():
    _OTHER_WORK_ENDS.wait(60)


@contextlib.asynccontextmanager
async def cluster(workers=1, scheme="tcp", **settings):
    with dask.config.set({"distributed.worker.profile.enabled": False, **settings}):
        async with (
            distributed.Scheduler(host=f"{scheme}://127.0.0.1", port=0, dashboard=False, dashboard_address="127.0.0.1:0") as scheduler,
            contextlib.AsyncExitStack() as stack,
        ):
            for _ in range(workers):
                await stack.enter_async_context(
                    distributed.Worker(scheduler.address, host=f"{scheme}://127.0.0.1", nthreads=1, dashboard=False)
                )
            yield scheduler


@pytest.mark.parametrize(
    ("machines", "chosen"),
    [
        (None, ["tcp://a:1", "tcp://b:1"]),
        (1, ["tcp://a:1"]),
        (2, ["tcp://a:1", "tcp://b:1"]),
        (3, ["tcp://a:1", "tcp://b:1", "tcp://a:2"]),
        (9, ["tcp://a:1", "tcp://b:1", "tcp://a:2", "tcp://a:3"]),
    ],
)
def test_each_host_runs_one_machine_before_any_runs_a_second(machines, chosen):
    for order in itertools.permutations(TWO_HOSTS):
        assert choose({address: TWO_HOSTS[address] for address in order}, machines) == chosen
    assert choose({}, machines) == []


def test_machines_of_one_name_are_told_apart():
    assert unlike_names(["a", "b", "a", "a-2", "a"]) == ["a", "b", "a-2", "a-2-2", "a-3"]


def test_the_token_is_not_in_the_text_of_a_task():
    start = MachineStart("tcp://127.0.0.1:1", "alpha", DaskTask("r1", 0), "a-secret", "PEM", 30)
    assert "alpha" in repr(start)
    assert "a-secret" not in f"{start} {start!r}"


def test_too_few_dask_workers_and_no_scheduler_are_said():
    async def main():
        async with cluster() as scheduler:
            with pytest.raises(MeasurementError, match=r"had 1 Dask workers after 2 s, and 2 idle ones are needed"):
                async with dask_placement(scheduler.address, 2, 2, print):
                    pass
            address = scheduler.address
        with pytest.raises(MeasurementError, match=f"the Dask scheduler {address} cannot be reached within 0.3 s"):
            async with dask_placement(address, 1, 0.3, print):
                pass

    asyncio.run(main())


@pytest.mark.parametrize("page", ["docs/how-to/fleets.md", "docs/how-to/fleet-deployment.md"])
def test_every_documented_command_of_dask_binds_all_of_its_ports_to_an_address(page):
    text = (pathlib.Path(__file__).parents[2] / page).read_text().replace("\\\n", " ")
    blocks = re.findall(r"^```bash\n(.*?)^```", text, re.MULTILINE | re.DOTALL)
    commands = [line for block in blocks for line in block.splitlines() if re.search(r"\bdask (scheduler|worker|ssh)\b", line)]
    assert len(commands) >= 2
    for command in commands:
        hosts = re.findall(r'--(?:host|dashboard-address) "?(\S+)', command)
        assert len(hosts) == 2
        assert all(host.startswith(("127.0.0.1", "tls://")) for host in hosts)


def test_a_scheduler_with_tls_needs_certificates_in_the_configuration_of_dask(tmp_path):
    authority = trustme.CA()
    authority.cert_pem.write_to_path(tmp_path / "ca.pem")
    authority.issue_cert("127.0.0.1").private_key_and_cert_chain_pem.write_to_path(tmp_path / "own.pem")
    own = {"cert": str(tmp_path / "own.pem"), "key": None}
    tls = {"ca-file": str(tmp_path / "ca.pem"), "scheduler": own, "worker": own, "client": own}

    async def main():
        async with cluster(scheme="tls", **{f"distributed.comm.tls.{key}": value for key, value in tls.items()}) as scheduler:
            async with dask_placement(scheduler.address, 1, 30, print) as machines:
                (place,) = machines.places
                assert (place.host, place.address[:16]) == ("127.0.0.1", "tls://127.0.0.1:")
            with (
                dask.config.set({"distributed.comm.tls.ca-file": None, "distributed.comm.tls.client.cert": None}),
                pytest.raises(UsageError, match="TLS"),
            ):
                async with dask_placement(scheduler.address, 1, 30, print):
                    pass

    asyncio.run(main())


def test_a_dask_worker_that_does_other_work_runs_no_machine():
    async def main():
        async with cluster(workers=2) as scheduler, distributed.Client(scheduler.address, asynchronous=True) as client:
            busy, idle = (worker.address for worker in scheduler.workers.values())
            other = client.submit(other_work, workers=[busy], pure=False)
            await until(lambda: scheduler.workers[busy].processing)
            async with dask_placement(scheduler.address, 1, 30, print) as machines:
                assert [place.address for place in machines.places] == [idle]
            with pytest.raises(MeasurementError, match="had 2 Dask workers, 1 of them busy with other tasks, after"):
                async with dask_placement(scheduler.address, 2, 2, print):
                    pass
            _OTHER_WORK_ENDS.set()
            await other

    asyncio.run(main())


def test_a_machine_whose_process_ends_is_reported_with_its_name_and_the_reason():
    async def main():
        ended = asyncio.get_running_loop().create_future()
        nobody = await asyncio.start_server(lambda _, writer: writer.close(), "127.0.0.1", 0)
        async with nobody, cluster() as scheduler, dask_placement(scheduler.address, 1, 30, print) as machines:
            await machines.start(nobody.sockets[0].getsockname(), SECRET, None, 30, lambda *end: ended.set_result(end))
            name, how = await ended
            (task,) = scheduler.tasks.values()
            assert task.worker_restrictions == {machines.places[0].address}
            assert not task.loose_restrictions
            assert SECRET not in str(task.key)
        assert name == machines.places[0].name
        assert how.startswith("perfkit worker ended with exit code 6: perfkit: tcp://127.0.0.1:")
        assert "no perfkit that drives a fleet listens there" in how

    asyncio.run(main())


def test_a_lost_dask_worker_is_the_reason_why_its_machine_is_lost():
    async def main():
        joined, ended = (asyncio.get_running_loop().create_future() for _ in range(2))

        async def silent(reader, writer):
            joined.set_result(None)
            with contextlib.suppress(OSError):
                await reader.read()
            writer.close()

        async with (
            await asyncio.start_server(silent, "127.0.0.1", 0) as server,
            cluster() as scheduler,
            dask_placement(scheduler.address, 1, 30, print) as machines,
        ):
            await machines.start(server.sockets[0].getsockname(), SECRET, None, 30, lambda *end: ended.set_result(end))
            await joined
            (place,) = machines.places
            await scheduler.remove_worker(place.address, stimulus_id="test")
            assert await ended == (place.name, f"its Dask worker {place.address} was lost")

    asyncio.run(main())


def test_a_machine_that_does_not_end_is_ended_with_the_block(monkeypatch):
    monkeypatch.setattr("perfkit.fleet.dask_placement._END_BY_THEMSELVES_WITHIN_S", 0)

    async def main():
        joined = asyncio.get_running_loop().create_future()
        ended = asyncio.get_running_loop().create_future()

        async def silent(reader, writer):
            joined.set_result(None)
            with contextlib.suppress(OSError):
                ended.set_result(await reader.read())
            writer.close()

        async with await asyncio.start_server(silent, "127.0.0.1", 0) as server, cluster() as scheduler:
            async with dask_placement(scheduler.address, 1, 30, print) as machines:
                await machines.start(server.sockets[0].getsockname(), SECRET, None, 30, lambda *_: None)
                await joined
            assert await ended == b""

    asyncio.run(main())
