"""Work in a thread of its own, which an event loop elsewhere can wait for and which can be cancelled."""

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
    """Runs coroutines, one after another, in an event loop of the thread that calls it; another thread may cancel them."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._cancel: Callable[[], object] | None = None
        self._is_cancelled = False

    def run(self, coroutine: Coroutine[Any, Any, _T]) -> _T:
        """What the coroutine returns; raises CancelledError if `cancel` was called before or meanwhile."""

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
                coroutine.close()  # one that was cancelled before it began
                with self._lock:
                    self._cancel = None

        return uvloop.run(main())

    def cancel(self) -> None:
        """Cancels the coroutine that runs now, or the next one; from any thread."""
        with self._lock:
            self._is_cancelled = True
            if self._cancel is not None:
                self._cancel()


class WorkThread(Generic[_Result]):
    """Work that has started in a thread of its own, with the context variables of its caller."""

    def __init__(self, work: Callable[[Runner], _Result]) -> None:
        self._runner = Runner()
        self._ended: concurrent.futures.Future[_Result] = concurrent.futures.Future()
        context = contextvars.copy_context()
        self._thread = threading.Thread(target=context.run, args=(self._do, work), name="perfkit", daemon=True)
        self._thread.start()

    def _do(self, work: Callable[[Runner], _Result]) -> None:
        try:
            self._ended.set_result(work(self._runner))
        except BaseException as error:  # noqa: BLE001 - it is raised where the result is waited for
            self._ended.set_exception(error)

    def wait(self) -> _Result:
        """Blocks until the end. A Ctrl-C cancels the work and waits until it has ended; a second one leaves it alone."""
        try:
            return self._ended.result()
        except KeyboardInterrupt:
            self._runner.cancel()
            concurrent.futures.wait([self._ended])
            raise
        finally:
            self._join()

    async def end(self) -> _Result:
        """Awaits the end. Cancelled, it cancels the work, and raises CancelledError when that has ended."""
        ended = asyncio.wrap_future(self._ended)
        try:
            return await asyncio.shield(ended)
        except asyncio.CancelledError:
            self._runner.cancel()
            while not ended.done():  # a second cancellation ends nothing sooner
                with contextlib.suppress(asyncio.CancelledError):
                    await asyncio.wait([ended])
            if not ended.cancelled():
                ended.exception()  # has been seen
            raise
        finally:
            self._join()

    def _join(self) -> None:
        """Waits for the thread's last steps after its work has ended."""
        if self._ended.done():
            self._thread.join()
