"""The process that a fleet on Dask lives in: the scheduler's, which also holds the SSH connections. `perfkit fleet up` starts it.

It reads a `DeploymentSpec` from stdin, says on stdout how it goes, and once the fleet is up it stays until SIGTERM. Until then it ends with
its stdin: the command that started it is gone.
"""

import asyncio
import contextlib
import pathlib
import signal
import sys
from typing import BinaryIO

from perfkit.errors import PerfkitError
from perfkit.fleet.deployment import deployed
from perfkit.fleet.deployment_messages import DeploymentSpec, FleetFailed, FleetIsUp, Note
from perfkit.fleet.running_fleet import claimed
from perfkit.process.messages import claim_stdout, load_message, message_bytes, open_stdin


def _say(out: BinaryIO, message: Note | FleetIsUp | FleetFailed) -> None:
    with contextlib.suppress(BrokenPipeError):  # the command that started this process is gone, as its stdin says, too
        out.write(message_bytes(message))
        out.flush()


async def _serve(spec: DeploymentSpec, out: BinaryIO) -> None:
    loop, work = asyncio.get_running_loop(), asyncio.current_task()
    assert work is not None
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, work.cancel)

    def end(_: object) -> None:
        work.cancel()

    command = asyncio.ensure_future((await open_stdin()).read())
    command.add_done_callback(end)
    with claimed(pathlib.Path(spec.state_file), spec.local) as write:
        async with deployed(spec, lambda text: _say(out, Note(text))) as scheduler:
            command.remove_done_callback(end)
            write(scheduler)
            _say(out, FleetIsUp(scheduler))
            await asyncio.Event().wait()


def main() -> None:
    """Runs the process; see the module."""
    spec, out = load_message(sys.stdin.buffer), claim_stdout()
    try:
        asyncio.run(_serve(spec, out))
    except asyncio.CancelledError:
        return
    except PerfkitError as error:
        _say(out, FleetFailed(error))


if __name__ == "__main__":
    main()
