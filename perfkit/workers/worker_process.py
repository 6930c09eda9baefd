"""A worker in a process of its own: orders come on its stdin, what it records goes out on its stdout.

When stdin ends, so does the worker: whoever gave the order is gone.
"""

import asyncio
import contextlib
import os
import sys
import traceback
from collections.abc import Callable

from perfkit.clock import MonotonicClock
from perfkit.errors import PerfkitError
from perfkit.load.loop import Loop
from perfkit.machine.cpus import pinned
from perfkit.units import NS_PER_S
from perfkit.workers.messages import Begin, Crashed, Done, Failed, Logged, Progress, Ready, Stop, message_bytes, read_message
from perfkit.workers.worker_spec import WorkerSpec, execute


async def serve(reader: asyncio.StreamReader, write: Callable[[bytes], object]) -> None:
    """Takes one order and carries it out; `write` takes bytes."""
    order: WorkerSpec = await read_message(reader)
    loops: list[Loop] = []
    stops: list[Stop] = []
    begin: asyncio.Future[int] = asyncio.get_running_loop().create_future()
    clock = MonotonicClock()
    measuring = asyncio.current_task()
    assert measuring is not None

    def send(message: object) -> None:
        write(message_bytes(message))

    async def listen() -> None:
        with contextlib.suppress(EOFError):
            while True:
                match await read_message(reader):
                    case Begin(at_ns):
                        begin.set_result(at_ns)
                    case Stop() as stop if begin.done():
                        stops.append(stop)
                        if loops:
                            loops[0].stop(stop.reason, stop.cause, drain=stop.drain)
                    case Stop():
                        break
        measuring.cancel()  # nobody waits for us any more

    async def live() -> None:
        while True:
            send(Progress())
            await clock.sleep_until_ns(clock.now_ns() + NS_PER_S)

    def on_loop(loop: Loop) -> None:
        loops.append(loop)
        for stop in stops:  # they may come right behind the beginning
            loop.stop(stop.reason, stop.cause, drain=stop.drain)

    async def begin_at() -> int:
        send(Ready())
        return await begin

    with pinned(order.cpus):
        tasks = [asyncio.ensure_future(listen()), asyncio.ensure_future(live())]
        try:
            point = await execute(
                order,
                clock,
                on_loop=on_loop,
                on_interval=lambda start_ns, interval: send(Logged(start_ns, interval)),
                begin_at=begin_at,
            )
            send(Done(point))
        except PerfkitError as error:
            send(Failed(error))
        except Exception:  # noqa: BLE001 - whatever it is, perfkit shows it whole
            send(Crashed(traceback.format_exc()))
        finally:
            for task in tasks:
                task.cancel()


async def _main() -> None:
    loop = asyncio.get_running_loop()
    reader = asyncio.StreamReader(limit=2**20)
    await loop.connect_read_pipe(lambda: asyncio.StreamReaderProtocol(reader), sys.stdin)
    out = os.fdopen(os.dup(sys.stdout.fileno()), "wb", 0)
    os.dup2(sys.stderr.fileno(), sys.stdout.fileno())  # what libraries print must not look like a message
    writer, _ = await loop.connect_write_pipe(asyncio.BaseProtocol, out)
    with contextlib.suppress(EOFError, asyncio.CancelledError):
        await serve(reader, writer.write)
    writer.close()  # behind what is still to be written
    while not writer.is_closing() or writer.get_write_buffer_size():  # noqa: ASYNC110 - asyncio has no call to wait for it
        await asyncio.sleep(0.001)


if __name__ == "__main__":
    import uvloop

    uvloop.run(_main())
