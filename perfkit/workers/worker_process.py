"""A worker in a process of its own: takes one `WorkerSpec` on stdin and sends its recording to stdout.

It ends when its stdin does: the process that started it is gone.
"""

import asyncio
import contextlib
import traceback
from collections.abc import Callable

from perfkit.clock import Clock, MonotonicClock
from perfkit.errors import PerfkitError
from perfkit.load.loop import Stoppable
from perfkit.load.tasks import run_with_side_tasks
from perfkit.machine.cpus import pinned
from perfkit.process.messages import claim_stdout, message_bytes, read_message
from perfkit.process.stdin import open_stdin
from perfkit.units import NS_PER_S
from perfkit.workers.messages import Begin, Crashed, Logged, Progress, Ready, Stop
from perfkit.workers.worker import execute
from perfkit.workers.worker_spec import WorkerSpec


async def serve(reader: asyncio.StreamReader, write: Callable[[bytes], object]) -> None:
    """Executes the first message, a WorkerSpec; `write` takes the bytes of messages."""
    spec: WorkerSpec = await read_message(reader)
    clock = MonotonicClock()
    control = _Control()

    def send(message: object) -> None:
        write(message_bytes(message))

    async def begin_at() -> int:
        send(Ready())
        return await control.begin

    measuring = execute(
        spec,
        clock,
        on_loop=control.set_loop,
        on_interval=lambda start_ns, interval: send(Logged(start_ns, interval)),
        on_live=send if spec.is_live else None,
        begin_at=begin_at,
        on_checkpoint=send,
    )
    with pinned(spec.cpus):
        try:
            send(await run_with_side_tasks(measuring, control.listen(reader), _send_progress(send, clock)))
        except PerfkitError as error:
            send(error)
        except EOFError:
            pass  # the recording is not wanted any more
        except Exception:  # noqa: BLE001 - whatever it is, the parent raises it with this traceback
            send(Crashed(traceback.format_exc()))


class _Control:
    """The parent's orders to the worker while it measures."""

    def __init__(self) -> None:
        self.begin: asyncio.Future[int] = asyncio.get_running_loop().create_future()
        self._loop: Stoppable | None = None
        self._stop: Stop | None = None

    def set_loop(self, loop: Stoppable) -> None:
        """Sets the loop to stop, and stops it if the order to stop has already come."""
        self._loop = loop
        self._pass_stop_on()

    def _pass_stop_on(self) -> None:
        if self._loop is not None and self._stop is not None:
            self._loop.stop(self._stop.reason, self._stop.cause, drain=self._stop.drain)

    async def listen(self, reader: asyncio.StreamReader) -> None:
        """Takes orders; raises EOFError when there are no more, or the point is stopped before it has begun."""
        while True:
            match await read_message(reader):
                case Begin(at_ns):
                    self.begin.set_result(at_ns)
                case Stop() as stop if self.begin.done():
                    self._stop = stop
                    self._pass_stop_on()
                case Stop():
                    raise EOFError


async def _send_progress(send: Callable[[object], None], clock: Clock) -> None:
    while True:
        send(Progress())
        await clock.sleep_until_ns(clock.now_ns() + NS_PER_S)


async def _main() -> None:
    reader = await open_stdin()
    writer, _ = await asyncio.get_running_loop().connect_write_pipe(asyncio.BaseProtocol, claim_stdout())
    with contextlib.suppress(EOFError):
        await serve(reader, writer.write)
    writer.close()  # after what is still to be written
    while not writer.is_closing() or writer.get_write_buffer_size():  # noqa: ASYNC110 - asyncio has no call to wait for it
        await asyncio.sleep(0.001)


if __name__ == "__main__":
    import uvloop

    uvloop.run(_main())
