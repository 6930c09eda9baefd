"""The workers' processes, as a run starts and ends them."""

import asyncio

import psutil
import pytest
import uvloop

from perfkit.clock import MonotonicClock
from perfkit.workers.local import local_workers
from tests.children import children_running
from tests.conditions import passes
from tests.workers.test_point import worker_spec


@pytest.mark.parametrize("run", [asyncio.run, uvloop.run])
@pytest.mark.parametrize("turns", [1, 2, 3])
def test_an_interruption_while_one_starts_leaves_none(run, turns):
    async def go():
        async with local_workers([worker_spec(), worker_spec()], MonotonicClock(), print, print):
            pytest.fail("it was not interrupted")

    async def main():
        task = asyncio.ensure_future(go())
        await passes(turns)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task

    run(main())
    assert children_running("perfkit.workers.worker_process") == []


@pytest.mark.parametrize("run", [asyncio.run, uvloop.run])
def test_nothing_stays_open_behind_it(run):
    async def main():
        opened = []
        for _ in range(3):
            async with local_workers([worker_spec()], MonotonicClock(), print, print):
                pass
            opened.append(psutil.Process().num_fds())
        return opened

    opened = run(main())
    assert opened[-1] <= opened[0]  # the loop keeps some for itself from its first process on
