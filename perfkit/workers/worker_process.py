"""A worker in a process of its own: takes a `WorkerSpec` for each load point on stdin, and sends its recording to stdout.

It ends when its stdin does: the process that started it is gone.
"""

import asyncio
import contextlib
import gc
import pathlib
import traceback
from collections.abc import Callable

from perfkit.clock import Clock, MonotonicClock
from perfkit.errors import PerfkitError
from perfkit.load.loop import Stoppable, run_with_side_tasks
from perfkit.machine.cpus import pinned, take_short_slices
from perfkit.process.loop_pipe import pipe_of_loop
from perfkit.process.message_stream import opened_stdin, read_message
from perfkit.process.messages import claim_stdout, message_bytes
from perfkit.transport.base import Reply
from perfkit.units import NS_PER_S
from perfkit.workers.messages import Begin, Crashed, Piece, Progress, Ready, RenewedAddresses, Replied, StopOrder, WorkerSpec
from perfkit.workers.prepared_workload import RenewedHeaders
from perfkit.workers.reply_file import ReplyFile
from perfkit.workers.worker import execute

_COLLECT_AFTER = 4000
"""New objects until Python looks for garbage: more than a batch of replies, which the recorder drops before that."""


class Worker:
    """Executes load points, one after the other, as it is told; `write` takes the bytes of its messages."""

    def __init__(self, write: Callable[[bytes], object], clock: Clock) -> None:
        self._write, self._clock = write, clock
        self._begin: asyncio.Future[int] = asyncio.get_running_loop().create_future()
        self._loop: Stoppable | None = None
        self._stop: StopOrder | None = None
        self._renewal = RenewedHeaders()

    async def serve(self, reader: asyncio.StreamReader) -> None:
        """Follows orders until there are no more, or a load point is stopped before it has begun."""
        point: asyncio.Task[None] | None = None
        try:
            while True:
                match await read_message(reader):
                    case WorkerSpec() as spec:
                        self._begin, self._loop, self._stop = asyncio.get_running_loop().create_future(), None, None
                        self._renewal = RenewedHeaders()
                        point = asyncio.ensure_future(self._execute(spec))
                    case Begin(at_ns):
                        self._begin.set_result(at_ns)
                    case RenewedAddresses(addresses):
                        self._renewal.come(addresses)
                    case StopOrder() as stop if self._begin.done():
                        self._stop = stop
                        self._pass_stop_on()
                    case StopOrder():
                        return
        except EOFError:
            pass
        finally:
            if point is not None:
                point.cancel()
                await asyncio.wait([point])

    async def _execute(self, spec: WorkerSpec) -> None:
        try:
            replies = None if spec.replies_file is None else ReplyFile(pathlib.Path(spec.replies_file))
            measuring = execute(
                spec,
                self._clock,
                on_loop=self._set_loop,
                on_live=self._send if spec.is_live else None,
                begin_at=self._begin_at,
                on_reply=replies.take if replies is not None else self._report if spec.reports_replies else None,
                on_piece=self._send,
                renewal=self._renewal,
            )
            with pinned(spec.cpus), contextlib.nullcontext() if replies is None else replies:
                recorded = await run_with_side_tasks(measuring, self._send_progress())
            self._send(Piece(recorded.end_ns, recorded, is_last=True))
        except PerfkitError as error:
            self._send(error)
        except Exception:  # noqa: BLE001 - whatever it is, the parent raises it with this traceback
            self._send(Crashed(traceback.format_exc()))
        finally:
            gc.unfreeze()  # for the next collection, what this load point has left

    async def _begin_at(self) -> int:
        # everything made so far is left out of garbage collection, which so stays short while load is sent. It takes tens of milliseconds;
        # less before the first load point, since what was imported is left out already
        gc.collect()
        gc.freeze()
        self._send(Ready())
        return await self._begin

    def _set_loop(self, loop: Stoppable) -> None:
        """Sets the loop to stop, and stops it if the order to stop has already come."""
        self._loop = loop
        self._pass_stop_on()

    def _pass_stop_on(self) -> None:
        if self._loop is not None and self._stop is not None:
            self._loop.stop(self._stop.reason, self._stop.cause, drain=self._stop.drain)

    def _report(self, reply: Reply) -> None:
        self._send(Replied(reply.outcome, reply.started_ns, reply.finished_ns))

    async def _send_progress(self) -> None:
        while True:
            self._send(Progress())
            await self._clock.sleep_until_ns(self._clock.now_ns() + NS_PER_S)

    def _send(self, message: object) -> None:
        self._write(message_bytes(message))


async def _main() -> None:
    async with opened_stdin() as reader:
        writer, _ = await asyncio.get_running_loop().connect_write_pipe(asyncio.BaseProtocol, pipe_of_loop(claim_stdout()))
        await Worker(writer.write, MonotonicClock()).serve(reader)
        writer.close()  # after what is still to be written
        while not writer.is_closing() or writer.get_write_buffer_size():  # noqa: ASYNC110 - asyncio has no call to wait for it
            await asyncio.sleep(0.001)


if __name__ == "__main__":
    import uvloop

    take_short_slices()
    gc.freeze()
    gc.set_threshold(_COLLECT_AFTER)
    uvloop.run(_main())
