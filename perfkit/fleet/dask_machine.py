"""The task that a Dask worker runs for a fleet: it starts `perfkit worker --join` and waits for its end. Dask finds the functions by name."""

import asyncio
import contextlib
import dataclasses
import os
import pathlib
import sys
import tempfile
from collections.abc import Iterator
from typing import NamedTuple

from perfkit.fleet.token import TOKEN_VARIABLE
from perfkit.process.child import child_process
from perfkit.process.start_module import module_command, module_environment

TASK_VARIABLE = "PERFKIT_FLEET_TASK"
"""The environment variable by which a task tells `perfkit worker` its `DaskTask`."""

_running: "dict[str, tuple[asyncio.AbstractEventLoop, asyncio.Task[str]]]" = {}
"""The tasks of this process by their keys."""


class DaskTask(NamedTuple):
    """Which machine of which run a task on Dask is. Dask may start a task again, and so the machine."""

    run: str
    number: int

    @classmethod
    def parse(cls, text: str) -> "DaskTask":
        """The task that was written by `str`, as it is passed on in the task's environment; raises ValueError."""
        run, _, number = text.rpartition("/")
        return cls(run, int(number))

    def __str__(self) -> str:
        return f"{self.run}/{self.number}"


@dataclasses.dataclass(frozen=True, slots=True)
class MachineStart:
    """How a machine joins its driver. Its text has no secret: Dask logs the arguments of a task that fails."""

    url: str
    name: str
    task: DaskTask
    token: str = dataclasses.field(repr=False)
    certificate: str | None = dataclasses.field(repr=False)
    """What the driver's certificate is verified with, in PEM; None without TLS."""
    join_within_s: float


def run_machine(key: str, start: MachineStart) -> str:
    """Runs `perfkit worker` until it ends, and says how it ended. It is ended with this process, and by `end_machine`.

    It blocks its thread, with which the kernel ends what the thread started.
    """
    return asyncio.run(_run(key, start))


def end_machine(key: str) -> None:
    """Ends the machine of a task of this process, if there is one."""
    if (found := _running.get(key)) is not None:
        loop, task = found
        with contextlib.suppress(RuntimeError):  # it has just ended
            loop.call_soon_threadsafe(task.cancel)


async def _run(key: str, start: MachineStart) -> str:
    work = asyncio.ensure_future(_run_child(start))
    _running[key] = asyncio.get_running_loop(), work
    try:
        return await work
    except asyncio.CancelledError:
        return "was ended by the driver"
    finally:
        del _running[key]


async def _run_child(start: MachineStart) -> str:
    def log(line: str) -> None:
        sys.stderr.write(f"{line}\n")  # the Dask worker's log

    with _certificate_file(start.certificate) as file:
        tls = [] if file is None else ["--tls-ca", str(file)]
        options = ["--join", start.url, "--name", start.name, "--join-within", f"{start.join_within_s:g}s", *tls]
        environment = {**module_environment(os.environ), TOKEN_VARIABLE: start.token, TASK_VARIABLE: str(start.task)}
        command = module_command("perfkit", "worker", *options)
        async with child_process(command, environment=environment, on_line=log, ends_with_stdin=False) as child:
            return await child.wait_for_end()


@contextlib.contextmanager
def _certificate_file(certificate: str | None) -> Iterator[pathlib.Path | None]:
    if certificate is None:
        yield None
        return
    with tempfile.TemporaryDirectory(prefix="perfkit-") as folder:
        file = pathlib.Path(folder) / "driver.pem"
        file.write_text(certificate, encoding="utf-8")
        yield file
