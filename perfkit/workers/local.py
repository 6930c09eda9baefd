"""The workers of load points as processes on this machine."""

import contextlib
import dataclasses
import subprocess
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from typing import Any, Self

from perfkit.clock import Clock
from perfkit.process.child import Child, end_unused
from perfkit.process.start_module import spawn_module, start_module
from perfkit.workers.group import GroupListener, WorkerGroup
from perfkit.workers.worker_spec import WorkerSpec

MODULE = "perfkit.workers.worker_process"
WORKER_FILES = 22
"""The files that a worker process has open besides its connections: interpreter, event loop, libraries; measured, with some to spare."""
ENDS_WITHIN_S = 5


@dataclasses.dataclass(frozen=True)
class LocalWorker:
    """The link to a worker process; see `WorkerLink`."""

    name: str
    _child: Child

    @property
    def workers(self) -> int:
        """See `WorkerLink.workers`."""
        return 1

    @property
    def pids(self) -> tuple[int, ...]:
        """See `WorkerLink.pids`."""
        return (self._child.pid,)

    def send(self, message: object) -> None:
        """See `WorkerLink.send`."""
        self._child.send(message)

    async def receive(self) -> Any:
        """See `WorkerLink.receive`."""
        return await self._child.receive()

    async def wait_for_end(self) -> str:
        """See `WorkerLink.wait_for_end`."""
        return await self._child.wait_for_end(ENDS_WITHIN_S)

    def kill(self) -> None:
        """See `WorkerLink.kill`."""
        self._child.kill()


@dataclasses.dataclass(frozen=True)
class Part:
    """Workers that are only some of those that send a load."""

    numbers: Sequence[int]
    """Theirs, from 0."""
    of: int
    where: str
    """Where they are, such as ` on alpha`."""


class LocalWorkers:
    """The worker processes of this machine. They stay between load points, so that a run starts them once; leaving the context ends them."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._running, self._idle = list[Child](), list[Child]()
        self._ahead: subprocess.Popen[bytes] | None = None
        self._ending = contextlib.AsyncExitStack()

    def start_ahead(self) -> None:
        """Starts the first worker, so that it imports its libraries while others are waited for."""
        with contextlib.suppress(OSError):  # met again, and told, when the worker is needed
            self._ahead = spawn_module(MODULE)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        if self._ahead is not None:
            end_unused(self._ahead)
        for child in self._running:  # all at once, before the first is waited for
            child.close_stdin()
        await self._ending.aclose()

    @contextlib.asynccontextmanager
    async def group(
        self,
        specs: Sequence[WorkerSpec],
        listener: GroupListener,
        part: Part | None = None,
        begin_at: Callable[[], Awaitable[int]] | None = None,
    ) -> AsyncIterator[WorkerGroup]:
        """The workers of one load point, one for each spec; by default they are all workers. See `WorkerGroup` for `begin_at`."""
        children, group = list[Child](), None
        try:
            for spec in specs:
                children.append(await self._take())
                children[-1].send(spec)
            numbers, of, where = (range(len(specs)), len(specs), "") if part is None else (part.numbers, part.of, part.where)
            links = [_link(number, of, child, where) for number, child in zip(numbers, children, strict=True)]
            group = WorkerGroup(links, self._clock, listener, begin_at=begin_at, of=of)
            yield group
        finally:
            outcomes = [(None, "")] * len(children) if group is None else group.recordings
            for child, (point, loss) in zip(children, outcomes, strict=True):
                if point is None or loss:  # it may be at work on the load point still
                    child.close_stdin()
                else:
                    self._idle.append(child)

    async def _take(self) -> Child:
        """A worker without a load point."""
        while self._idle:
            if not (child := self._idle.pop(0)).ended.done():
                return child
        ahead, self._ahead = self._ahead, None
        child = await self._ending.enter_async_context(start_module(MODULE, stop_within_s=ENDS_WITHIN_S, spawned=ahead))
        self._running.append(child)
        return child


def _link(number: int, of: int, child: Child, where: str) -> LocalWorker:
    return LocalWorker(f"worker {number + 1:,} of {of:,} (process {child.pid}{where})", child)
