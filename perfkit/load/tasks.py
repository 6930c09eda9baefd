"""Tasks beside a main one: none outlives it, and none fails unnoticed."""

import asyncio
from collections.abc import Coroutine
from typing import Any, TypeVar

_T = TypeVar("_T")


async def run_with_side_tasks(main: Coroutine[Any, Any, _T], *side: "Coroutine[Any, Any, object] | asyncio.Task[Any]") -> _T:
    """Runs `main` to its end while the others run beside it; they are cancelled then.

    The first that fails, whichever it is, cancels all others, and its exception is raised.
    """
    main_task = asyncio.ensure_future(main)
    side_tasks = [asyncio.ensure_future(task) for task in side]
    try:
        running: set[asyncio.Task[Any]] = {main_task, *side_tasks}
        while not main_task.done():
            done, running = await asyncio.wait(running, return_when=asyncio.FIRST_COMPLETED)
            for task in done - {main_task}:
                task.result()
        return main_task.result()
    finally:
        for task in (main_task, *side_tasks):
            task.cancel()
        await asyncio.gather(main_task, *side_tasks, return_exceptions=True)


async def any_of(*waits: Coroutine[Any, Any, object], also: "asyncio.Future[Any] | None" = None) -> None:
    """Returns when one is done; the coroutines, but not `also`, are cancelled then."""
    tasks = [asyncio.ensure_future(wait) for wait in waits]
    try:
        await asyncio.wait([*tasks, also] if also else tasks, return_when=asyncio.FIRST_COMPLETED)
    finally:
        for task in tasks:
            task.cancel()
