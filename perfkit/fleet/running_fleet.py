"""The fleet that `perfkit fleet up` has started on this machine, as a file says it that the fleet's process holds locked.

The system ends the lock with the process, so that a file which a killed process left is told from one of a running process.
"""

import contextlib
import dataclasses
import fcntl
import json
import os
import pathlib
import platform
from collections.abc import Callable, Iterator
from typing import BinaryIO

import platformdirs
import psutil

from perfkit.clock import utc_now
from perfkit.errors import UsageError

_LONGEST_BYTES = 10_000
_KILLED_WITHIN_S = 5


@dataclasses.dataclass(frozen=True, slots=True)
class RunningFleet:
    """A fleet whose process runs."""

    process: int
    started_at: str
    local: int
    """The number of machines on this one; 0 if they are on other hosts."""
    scheduler: str = ""
    """The URL of Dask's scheduler; empty while the fleet is started."""


def run_command(scheduler: str, local: int) -> str:
    """The command of a run on a fleet; by default a run takes one machine on each host."""
    return f"perfkit run scenario.yaml --fleet {scheduler}{f' --machines {local}' if local > 1 else ''}"


def fleet_file() -> pathlib.Path:
    """The file of this user's fleet on this machine; PERFKIT_STATE_DIR sets its folder.

    It has the machine's name, because home folders may be shared by machines.
    """
    folder = pathlib.Path(os.environ.get("PERFKIT_STATE_DIR") or platformdirs.user_state_dir("perfkit"))
    return folder / f"fleet-{platform.node() or 'machine'}.json"


def open_log(file: pathlib.Path) -> BinaryIO:
    """The new log of a fleet, beside its file."""
    with _needs_writable(file):
        file.parent.mkdir(parents=True, exist_ok=True)
        return file.with_suffix(".log").open("wb")


@contextlib.contextmanager
def claimed(file: pathlib.Path, local: int) -> Iterator[Callable[[str], None]]:
    """Makes this process that of the fleet for the length of the block, which calls the function with the scheduler's URL.

    Raises UsageError if there is a fleet already, or the file cannot be written.
    """
    descriptor = _open(file)
    try:
        if not _lock(descriptor):
            raise UsageError(describe(_read(descriptor)))
        started = RunningFleet(os.getpid(), utc_now().isoformat(timespec="seconds"), local)

        def write(scheduler: str) -> None:
            os.ftruncate(descriptor, 0)
            os.pwrite(descriptor, json.dumps(dataclasses.asdict(dataclasses.replace(started, scheduler=scheduler))).encode(), 0)

        write("")
        try:
            yield write
        finally:
            os.ftruncate(descriptor, 0)  # not removed: another process may have opened it, and would lock a file that is gone
    finally:
        os.close(descriptor)


def find_fleet(file: pathlib.Path) -> tuple[RunningFleet | None, bool]:
    """The fleet whose process runs, and whether one was left by a process that was killed; that one is forgotten by this call."""
    if not file.exists():
        return None, False
    descriptor = _open(file)
    try:
        if not _lock(descriptor):
            return _read(descriptor), False
        was_killed = os.fstat(descriptor).st_size > 0
        os.ftruncate(descriptor, 0)
        return None, was_killed
    finally:
        os.close(descriptor)


def describe(fleet: RunningFleet) -> str:
    """Why a second fleet is not started, and what to do."""
    if not fleet.scheduler:
        return f"a fleet is being started by process {fleet.process}: wait for it, or end it by `perfkit fleet down`"
    return (
        f"a fleet is up already, since {fleet.started_at}: use it by `{run_command(fleet.scheduler, fleet.local)}`, or end it first by "
        "`perfkit fleet down`"
    )


def end_fleet(fleet: RunningFleet, within_s: float) -> None:
    """Ends the process of a fleet and all that it has started on this machine; what does not end in time is killed."""
    with contextlib.suppress(psutil.NoSuchProcess):
        process = psutil.Process(fleet.process)
        started = process.children(recursive=True)
        process.terminate()
        _, left = psutil.wait_procs([process, *started], timeout=within_s)
        for one in left:
            with contextlib.suppress(psutil.NoSuchProcess):
                one.kill()
        psutil.wait_procs(left, timeout=_KILLED_WITHIN_S)


def _open(file: pathlib.Path) -> int:
    with _needs_writable(file):
        file.parent.mkdir(parents=True, exist_ok=True)
        return os.open(file, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)


@contextlib.contextmanager
def _needs_writable(file: pathlib.Path) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise UsageError(f"{file}: {error.strerror}: set PERFKIT_STATE_DIR to a writable folder") from None


def _lock(descriptor: int) -> bool:
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def _read(descriptor: int) -> RunningFleet:
    try:
        found = json.loads(os.pread(descriptor, _LONGEST_BYTES, 0))
        return RunningFleet(int(found["process"]), str(found["started_at"]), int(found["local"]), str(found["scheduler"]))
    except (ValueError, KeyError, TypeError):
        raise UsageError("a fleet is just being started or ended by another process: try again") from None
