"""Coroutines that begin at once, and the tasks of those that wait."""

import asyncio

import pytest

from server_stub.begun_task import begin_task


async def test_a_coroutine_that_never_waits_is_over_at_once():
    steps = []

    async def run():
        steps.append("ran")

    assert begin_task(asyncio.get_running_loop(), run()) is None
    assert steps == ["ran"]


async def test_a_coroutine_that_waits_goes_on_in_a_task():
    steps, answer = [], asyncio.get_running_loop().create_future()

    async def run():
        steps.append("began")
        steps.append(await answer)
        async with asyncio.timeout(60):  # needs the current task
            await asyncio.sleep(0)
        steps.append("ended")

    task = begin_task(asyncio.get_running_loop(), run())
    assert task is not None
    assert steps == ["began"]
    answer.set_result("answered")
    await task
    assert steps == ["began", "answered", "ended"]


async def test_what_is_awaited_may_be_done_before_the_task_first_runs():
    answers, taken = [asyncio.get_running_loop().create_future() for _ in range(2)], []

    async def run():
        taken.extend([await answer for answer in answers])

    task = begin_task(asyncio.get_running_loop(), run())
    for number, answer in enumerate(answers):
        answer.set_result(number)
    assert task is not None
    await task
    assert taken == [0, 1]


@pytest.mark.parametrize("turns", [0, 1, 2])
async def test_a_cancellation_reaches_the_place_where_the_coroutine_waits(turns):
    """Also before the task has run for the first time."""
    steps, answer = [], asyncio.get_running_loop().create_future()

    async def run():
        try:
            await answer
        except asyncio.CancelledError:
            steps.append("cancelled")
            raise

    task = begin_task(asyncio.get_running_loop(), run())
    assert task is not None
    for _ in range(turns):
        await asyncio.sleep(0)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert steps == ["cancelled"]
    assert answer.cancelled(), "as a task cancels what it waits for"


async def test_a_cancellation_reaches_a_coroutine_that_waits_for_its_next_turn():
    async def run():
        await asyncio.sleep(0)

    task = begin_task(asyncio.get_running_loop(), run())
    assert task is not None
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task


async def test_an_error_before_the_first_wait_goes_to_the_handler_of_the_loop():
    loop, errors = asyncio.get_running_loop(), []
    loop.set_exception_handler(lambda _, context: errors.append(context["exception"]))

    async def run():
        raise ValueError("broken")

    assert begin_task(loop, run()) is None
    assert [str(error) for error in errors] == ["broken"]
