"""Replies that an event loop's futures bring: of streams that are given up early, and of engines that send each request in a task."""

import abc
import asyncio
from collections.abc import Awaitable

from perfkit.transport.base import Prepared, Reply


class LeavingReply(asyncio.Future[Reply]):
    """The reply to a streamed request that is given up with its n-th response; with `after_responses` 0 it is not."""

    after_responses = 0


class TaskSender(abc.ABC):
    """A `Sender` of an engine that sends each request in a task of its own, and makes the heads itself."""

    def __init__(self) -> None:
        self._in_flight: set[asyncio.Task[Reply]] = set()

    def send(self, prepared: Prepared) -> Awaitable[Reply]:
        """Sends a request."""
        task = asyncio.ensure_future(self._send(prepared))
        self._in_flight.add(task)
        task.add_done_callback(self._in_flight.discard)
        return task

    def send_leaving(self, prepared: Prepared, after_responses: int) -> "asyncio.Future[Reply]":
        """Sends a request; these engines send no streams."""
        return asyncio.ensure_future(self.send(prepared))

    def give_up(self, reply: "asyncio.Future[Reply]") -> None:
        """Cancels the task of the request."""
        reply.cancel()

    def with_traceparent(self, prepared: Prepared, traceparent: str) -> Prepared:
        """The same request with the header beside its buffers."""
        return prepared.with_header("traceparent", traceparent)

    def abandon(self) -> None:
        """Cancels the tasks of all requests in flight."""
        for task in tuple(self._in_flight):
            task.cancel()

    @abc.abstractmethod
    async def _send(self, prepared: Prepared) -> Reply:
        """The reply to a request; UNFINISHED if the task is cancelled."""
