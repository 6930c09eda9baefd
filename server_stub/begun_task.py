"""Starts coroutines at once, without a task: only a coroutine that has to wait for something gets one.

A request to a model on the event loop never waits, so that it costs no task and no turn of the loop.
"""

import asyncio
from collections.abc import Coroutine, Generator
from typing import Any, TypeVar

from perfkit.override import override

_Result = TypeVar("_Result")


class _Begun(Coroutine[Any, Any, _Result]):
    """A coroutine that has begun and waits for `awaited`, a future or None, so that a task can run the rest of it."""

    def __init__(self, coroutine: Coroutine[Any, Any, _Result], awaited: Any) -> None:
        self._coroutine, self._awaited = coroutine, [awaited]  # emptied once the task has it

    @override
    def send(self, value: Any) -> Any:
        return self._awaited.pop() if self._awaited else self._coroutine.send(value)

    @override
    def throw(self, *error: Any) -> Any:
        if self._awaited:
            awaited = self._awaited.pop()
            if awaited is not None and isinstance(error[0], asyncio.CancelledError):
                awaited.cancel()  # a task would cancel what it waits for
        return self._coroutine.throw(*error)

    @override
    def close(self) -> None:
        self._coroutine.close()

    @override
    def __await__(self) -> Generator[Any, Any, _Result]:
        raise TypeError("only a task runs it")


def begin_task(loop: asyncio.AbstractEventLoop, coroutine: Coroutine[Any, Any, None]) -> asyncio.Task[None] | None:
    """Run a coroutine to its end or to its first wait, and return the task that runs the rest; None if there is none.

    Before that wait it has no current task, so that it may not use `asyncio.timeout` or `TaskGroup` there.
    An exception goes to the loop's exception handler, like that of a task that nobody awaits.
    """
    try:
        awaited = coroutine.send(None)
    except StopIteration:
        return None
    except Exception as error:  # noqa: BLE001 - the caller is the connection, which an error in one request must not end
        loop.call_exception_handler({"message": "a request failed", "exception": error})
        return None
    return loop.create_task(_Begun(coroutine, awaited))
