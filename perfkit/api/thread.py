"""Cancellable work in a separate thread, which a thread or an event loop can wait for."""

import asyncio
import concurrent.futures
import contextlib
import contextvars
import threading
from collections.abc import Callable, Coroutine
from typing import Any, Generic, TypeVar

import uvloop

_T = TypeVar("_T")
_Result = TypeVar("_Result")


class Runner:
    """Runs coroutines one after another in the calling thread; other threads may cancel them."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._cancel: Callable[[], object] | None = None
        self._is_cancelled = False

    def run(self, coroutine: Coroutine[Any, Any, _T]) -> _T:
        """Runs a coroutine and returns its value; raises CancelledError if `cancel` was called before or meanwhile."""

        async def main() -> _T:
            loop, task = asyncio.get_running_loop(), asyncio.current_task()
            assert task is not None
            with self._lock:
                self._cancel = lambda: loop.call_soon_threadsafe(task.cancel)
                if self._is_cancelled:
                    task.cancel()
            try:
                return await coroutine
            finally:
                coroutine.close()  # without this, Python warns about one that was cancelled before it began
                with self._lock:
                    self._cancel = None

        return uvloop.run(main())

    def cancel(self) -> None:
        """Cancels the running coroutine and all later ones; may be called from any thread."""
        with self._lock:
            self._is_cancelled = True
            if self._cancel is not None:
                self._cancel()


class WorkThread(Generic[_Result]):
    """A thread that runs one function with the context variables of its creator; it starts at once."""

    def __init__(self, work: Callable[[Runner], _Result]) -> None:
        self._runner = Runner()
        self._ended: concurrent.futures.Future[_Result] = concurrent.futures.Future()
        context = contextvars.copy_context()
        self._thread = threading.Thread(target=context.run, args=(self._do, work), name="perfkit", daemon=True)
        self._thread.start()

    def _do(self, work: Callable[[Runner], _Result]) -> None:
        try:
            self._ended.set_result(work(self._runner))
        except BaseException as error:  # noqa: BLE001 - it is raised where the caller waits
            self._ended.set_exception(error)

    def wait(self) -> _Result:
        """Blocks until the work has ended, and returns its value or raises its exception.

        The first Ctrl-C cancels the work and waits for its end; the second stops waiting.
        """
        try:
            return self._ended.result()
        except KeyboardInterrupt:
            self._runner.cancel()
            concurrent.futures.wait([self._ended])
            raise
        finally:
            self._join()

    async def end(self) -> _Result:
        """Awaits the end of the work, and returns its value or raises its exception.

        If cancelled, cancels the work, waits for its end and raises CancelledError.
        """
        ended = asyncio.wrap_future(self._ended)
        try:
            return await asyncio.shield(ended)
        except asyncio.CancelledError:
            self._runner.cancel()
            while not ended.done():  # further cancellations do not shorten the wait
                with contextlib.suppress(asyncio.CancelledError):
                    await asyncio.wait([ended])
            if not ended.cancelled():
                ended.exception()  # marks the exception as retrieved
            raise
        finally:
            self._join()

    def _join(self) -> None:
        """Joins the thread if its work has ended."""
        if self._ended.done():
            self._thread.join()
