"""Whether a run can open the files and sockets that it needs, computed before any load is sent. Pure."""

import dataclasses

from perfkit.workers.local import WORKER_FILES

# measured, with some to spare: reading and writing files, and starting a process; before that, the pipes of children that are still to start
_DRIVER_FILES, _FILES_OF_CHILDREN_TO_START = 8, 8
_FILES_PER_WORKER = 3
# the interpreter, the event loop, libraries, listening sockets; measured, with some to spare
_SERVER_FILES = 28


@dataclasses.dataclass(frozen=True, slots=True)
class FileNeed:
    """The files and sockets that one process of a run needs, with the arithmetic."""

    process: str
    files: int
    arithmetic: str


def file_needs(*, open_now: int, has_started: bool, connections: int, workers: int, has_server: bool) -> list[FileNeed]:
    """What each process of a run needs.

    `open_now` are the files that this process has open, `has_started` says whether they include the pipes of its children, and
    `connections` are those of all workers together. Pipes of workers that have stayed from an earlier load point count twice.
    """
    needs, spare = [], _DRIVER_FILES + (0 if has_started else _FILES_OF_CHILDREN_TO_START)
    own = f"{open_now} that are open, {spare} for its child processes and files"
    pipes, share = _FILES_PER_WORKER * workers, -(-connections // workers)
    needs.append(FileNeed("the load generator", open_now + spare + pipes, f"{own}, {pipes} for {workers} workers"))
    needs.append(FileNeed("each worker", WORKER_FILES + share, f"{WORKER_FILES} of its own, {share} for connections"))
    if has_server:
        needs.append(
            FileNeed("the bundled server", _SERVER_FILES + connections, f"{_SERVER_FILES} of its own, {connections} for connections")
        )
    return needs


def describe_shortage(needs: list[FileNeed], limit: int) -> str:
    """A sentence about the process that lacks most, with the remedy; empty if each has what it needs."""
    need = max(needs, key=lambda one: one.files)
    if need.files <= limit:
        return ""
    return (
        f"the file limit is too low: {need.process} needs {need.files} open files and sockets ({need.arithmetic}), and the limit is {limit}: "
        f"raise it, such as `ulimit -n {max(1024, 2 * need.files)}`, or lower the concurrency or target.max_connections"
    )
