"""Side tasks end with the main one, and their failures are its failures."""

import asyncio

import pytest

from perfkit.load.loop import run_with_side_tasks


async def wait_for_ever():
    await asyncio.get_running_loop().create_future()


async def fail(message, after=None):
    if after is not None:
        await after.wait()
    raise RuntimeError(message)


async def give(value):
    await asyncio.sleep(0)
    return value


def run(main):
    async def watched():
        try:
            return await main
        finally:
            assert asyncio.all_tasks() == {asyncio.current_task()}, "no task is left"

    return asyncio.run(watched())


def test_the_main_task_gives_the_result_and_ends_the_others():
    assert run(run_with_side_tasks(give(7), wait_for_ever(), give(8))) == 7


def test_a_side_task_that_fails_ends_the_main_one_with_its_error():
    with pytest.raises(RuntimeError, match="side"):
        run(run_with_side_tasks(wait_for_ever(), wait_for_ever(), fail("side")))


def test_the_main_task_s_own_error_is_raised():
    with pytest.raises(RuntimeError, match="main"):
        run(run_with_side_tasks(fail("main"), wait_for_ever()))


def test_a_side_task_that_fails_as_the_main_one_ends_is_noticed():
    async def main():
        ended = asyncio.Event()

        async def end():
            ended.set()
            await asyncio.sleep(0)

        await run_with_side_tasks(end(), fail("late", ended))

    with pytest.raises(RuntimeError, match="late"):
        run(main())


def test_a_cancellation_ends_all():
    async def main():
        task = asyncio.ensure_future(run_with_side_tasks(wait_for_ever(), wait_for_ever()))
        await asyncio.sleep(0)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task

    run(main())
