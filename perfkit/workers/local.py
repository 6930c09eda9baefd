"""The workers of one load point as processes on this machine."""

import contextlib
import dataclasses
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from typing import Any

from perfkit.clock import Clock
from perfkit.process.child import Child
from perfkit.process.start_module import start_module
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
    begin_at: Callable[[], Awaitable[int]]
    """See `WorkerGroup`."""


@contextlib.asynccontextmanager
async def local_workers(
    specs: Sequence[WorkerSpec], clock: Clock, listener: GroupListener, part: Part | None = None
) -> AsyncIterator[WorkerGroup]:
    """Runs a worker process for each spec, for the length of the block; by default they are all workers."""
    running: list[Child] = []
    async with contextlib.AsyncExitStack() as children:
        try:
            for spec in specs:
                child = await children.enter_async_context(start_module(MODULE, stop_within_s=ENDS_WITHIN_S))
                running.append(child)
                child.send(spec)
            if part is None:
                links = [_link(number, len(specs), child) for number, child in enumerate(running)]
                yield WorkerGroup(links, clock, listener, workloads=len(specs[0].workloads))
            else:
                links = [_link(number, part.of, child, part.where) for number, child in zip(part.numbers, running, strict=True)]
                yield WorkerGroup(links, clock, listener, begin_at=part.begin_at, of=part.of)
        finally:
            for child in running:  # all at once, before the first is waited for
                child.close_stdin()


def _link(number: int, of: int, child: Child, where: str = "") -> LocalWorker:
    return LocalWorker(f"worker {number + 1:,} of {of:,} (process {child.pid}{where})", child)
