"""The worker processes of a load point, as a run starts and ends them."""

import asyncio

import pytest
import uvloop

from perfkit.clock import MonotonicClock
from perfkit.errors import TargetError
from perfkit.load.loop import StopCause
from perfkit.workers.group import GroupListener
from perfkit.workers.local import LocalWorkers
from tests.children import children_running
from tests.conditions import passes
from tests.workers.test_point import worker_spec

PROCESS = "perfkit.workers.worker_process"


@pytest.mark.parametrize("run", [asyncio.run, uvloop.run])
@pytest.mark.parametrize("turns", [1, 5])
def test_an_interruption_while_the_workers_start_leaves_no_process(run, turns):
    async def start():
        async with LocalWorkers(MonotonicClock()) as local, local.group([worker_spec(), worker_spec()], GroupListener()):
            await asyncio.Event().wait()

    async def main():
        task = asyncio.ensure_future(start())
        await passes(turns)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task

    run(main())
    assert children_running(PROCESS) == []


def test_a_target_that_is_lost_before_the_load_begins_is_an_error():
    async def main():
        async with LocalWorkers(MonotonicClock()) as local, local.group([worker_spec(), worker_spec()], GroupListener()) as workers:
            assert len(children_running(PROCESS)) == len(workers.pids) == 2
            workers.stop("the server is gone", StopCause.TARGET_LOST)
            await workers.run()

    with pytest.raises(TargetError, match="the server is gone"):
        asyncio.run(main())
    assert children_running(PROCESS) == []
