"""The workers of load points as processes on this machine, and their CPUs beside those of a server that perfkit starts."""

import contextlib
import dataclasses
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from typing import TYPE_CHECKING, Any, Self

from perfkit.clock import Clock
from perfkit.errors import UsageError
from perfkit.process.child import Child
from perfkit.process.start_module import WORKER, end_started_ahead, start_ahead, start_module
from perfkit.scenario.model import Scenario
from perfkit.target.address import Address
from perfkit.units import NS_PER_S

if TYPE_CHECKING:
    import asyncio

    from perfkit.workers.group import GroupListener, WorkerGroup
    from perfkit.workers.messages import WorkerSpec

WORKER_FILES = 22
"""The files that a worker process has open besides its connections: interpreter, event loop, libraries; measured, and rounded up."""
ENDS_WITHIN_S = 5
_LEAD_ALONE_NS = NS_PER_S * 3 // 100
"""A worker that starts alone is told of its start so long ahead, besides the time that its load needs to get ready; 30 ms."""


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
        self._ending = contextlib.AsyncExitStack()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        self.close()
        await self._ending.aclose()

    def close(self) -> None:
        """Closes the stdin of all workers, which ends them; leaving the context waits for that."""
        end_started_ahead(WORKER)
        for child in self._running:
            child.close_stdin()

    def start_ahead(self) -> None:
        """Starts a worker, unless one is idle, so that it imports its libraries before it is needed."""
        if not self._idle:
            start_ahead(WORKER)

    @contextlib.asynccontextmanager
    async def group(
        self,
        specs: "Sequence[WorkerSpec]",
        listener: "GroupListener",
        part: Part | None = None,
        begins_after: "asyncio.Future[None] | None" = None,
        begin_at: Callable[[], Awaitable[int]] | None = None,
    ) -> "AsyncIterator[WorkerGroup]":
        """The workers of one load point, one for each spec; by default they are all workers. See `WorkerGroup` for the beginning."""
        from perfkit.workers.group import LEAD_NS, WorkerGroup  # only now: the first request leaves earlier

        children, group = list[Child](), None
        try:
            for spec in specs:
                children.append(await self._take())
                children[-1].send(spec)
            numbers, of, where = (range(len(specs)), len(specs), "") if part is None else (part.numbers, part.of, part.where)
            links = [_link(number, of, child, where) for number, child in zip(numbers, children, strict=True)]
            lead_ns = LEAD_NS if of > 1 else _LEAD_ALONE_NS + specs[0].lead_ns
            group = WorkerGroup(links, self._clock, listener, lead_ns=lead_ns, begins_after=begins_after, begin_at=begin_at, of=of)
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
        child = await self._ending.enter_async_context(start_module(WORKER, stop_within_s=ENDS_WITHIN_S))
        self._running.append(child)
        return child


def _link(number: int, of: int, child: Child, where: str) -> LocalWorker:
    return LocalWorker(f"worker {number + 1:,} of {of:,} (process {child.pid}{where})", child)


@dataclasses.dataclass(frozen=True, slots=True)
class Placement:
    """CPUs to pin to, empty for no pinning; `conflict` is a message about shared CPUs, empty if there are none."""

    server: tuple[int, ...]
    driver: tuple[int, ...]
    conflict: str = ""

    def most_workers(self, usable: int, *, shares_machine: bool) -> int:
        """The most workers of `measure.workers: auto`: one for each CPU of the driver; without such, one for each usable CPU but one for a target on this machine."""
        return len(self.driver) or max(usable - shares_machine, 1)


def place(scenario: Scenario, usable: Sequence[int]) -> Placement:
    """The CPUs that the scenario sets; by default the last one per worker for the load generator, the others for the server.

    A target that perfkit did not start is not pinned. Raises UsageError for a CPU that this process may not use.
    """
    server, driver = scenario.server.cpus or (), scenario.measure.cpus or ()
    missing = sorted({*server, *driver} - set(usable))
    if missing:
        raise UsageError(f"server.cpus and measure.cpus: this process may not use CPU {missing[0]}, only {list(usable)}")
    targets = [one.target for one in scenario.plain_scenarios()]
    if not any(target.is_started for target in targets):
        urls = [url for target in targets for each in target.urls_by_protocol.values() for url in each]
        message = f"The target runs on this machine: server and load generator may compete for its {len(usable)} CPUs."
        return Placement((), driver, message if any(Address.parse(url).is_local for url in urls) else "")
    workers = 1 if scenario.measure.workers == "auto" else scenario.measure.workers
    if len(usable) > 1:
        free = tuple(cpu for cpu in usable if cpu not in server)
        limit = len(free) if server else max(len(free) - 1, 1)  # at least one remains for the server
        driver = driver or free[-min(workers, limit) :] or tuple(usable[-1:])
        server = server or tuple(cpu for cpu in usable if cpu not in driver) or tuple(usable)
    shared = sorted(set(server) & set(driver)) if server and driver else list(usable)
    advice = f"share CPU {', '.join(map(str, shared))}: separate them with server.cpus and measure.cpus."
    name = "The bundled server" if all(target.command is None for target in targets) else "The server"
    return Placement(server, driver, f"{name} and the load generator {advice}" if shared else "")
