"""Output folders and files: written completely or not at all, a folder by one command at a time.

What cannot be written is found before any load is sent.
"""

import contextlib
import ctypes
import errno
import fcntl
import json
import os
import pathlib
import platform
import shutil
from collections.abc import Iterator

from perfkit.clock import utc_now
from perfkit.errors import ResultError

INNER_LOCK = ".perfkit.lock"
"""The name of a lock file inside its folder."""
_LEAST_FREE_BYTES = 2**20
_LONGEST_HOLDER_BYTES = 1000


def results_folder() -> pathlib.Path:
    """Where results go by default: `reports` of the current folder; `results` if that is perfkit's own checkout, whose `reports` are perfkit's."""
    is_checkout = pathlib.Path("perfkit", "__init__.py").is_file() and pathlib.Path("pyproject.toml").is_file()
    return pathlib.Path("results" if is_checkout else "reports")


def default_folder(name: str) -> pathlib.Path:
    """The folder of a result that is made now, if none is given."""
    return results_folder() / f"{name}-{utc_now():%Y%m%dT%H%M%SZ}"


@contextlib.contextmanager
def locked(folder: pathlib.Path, *, may_lock_inside: bool = False) -> Iterator[None]:
    """Keeps other commands from writing to a folder for the length of the block, by a lock on `<folder>.lock` beside it.

    With `may_lock_inside` it is `INNER_LOCK` in a folder that exists where nothing else can be written, such as a container's volume.
    The system ends the lock with the process; a file that a crash left holds nobody up. Raises ResultError if another process
    writes there, or the place cannot be written.
    """
    try:
        place = folder.resolve()
        place.parent.mkdir(parents=True, exist_ok=True)
        file = place.with_name(place.name + ".lock")
        if may_lock_inside and place.is_dir() and not os.access(place.parent, os.W_OK):
            file = place / INNER_LOCK
        descriptor = _open_locked(folder, file)
    except OSError as error:
        raise ResultError(f"--out {folder}: {error.filename or folder} cannot be written: {error.strerror}") from None
    except ValueError:
        raise ResultError(f"--out {folder}: this cannot be an output folder; give another one") from None
    try:
        with contextlib.suppress(OSError):  # a full disk is found by `ensure_writable`, which says so
            os.ftruncate(descriptor, 0)
            holder = {"process": os.getpid(), "host": platform.node(), "started_at": utc_now().isoformat(timespec="seconds")}
            os.pwrite(descriptor, json.dumps(holder).encode(), 0)
        yield
    finally:
        file.unlink(missing_ok=True)
        os.close(descriptor)


def ensure_writable(folder: pathlib.Path, out: pathlib.Path) -> None:
    """Raises ResultError, which names the option's value `out`, if no file of 1 MiB can be written to a folder."""
    probe = folder / ".perfkit-probe"
    try:
        try:
            probe.write_bytes(bytes(_LEAST_FREE_BYTES))
        finally:
            probe.unlink(missing_ok=True)
    except OSError as error:
        need = "; 1 MiB is needed to begin with" if error.errno in (errno.ENOSPC, errno.EDQUOT) else ""
        raise ResultError(f"--out {out}: {folder} cannot be written: {error.strerror}{need}") from None


def _open_locked(folder: pathlib.Path, file: pathlib.Path) -> int:
    """A descriptor of the lock file, which this process has locked; raises ResultError if another process has."""
    while True:
        descriptor = os.open(file, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            holder = _describe_holder(descriptor)
            os.close(descriptor)
            raise ResultError(f"--out {folder}: another perfkit writes there: {holder}; wait for its end, or give another --out") from None
        except OSError:
            return descriptor  # a file system without locks
        with contextlib.suppress(FileNotFoundError):
            if os.path.samestat(os.fstat(descriptor), file.stat()):
                return descriptor
        os.close(descriptor)  # the process that held the lock removed the file after it was opened here


def _describe_holder(descriptor: int) -> str:
    try:
        holder = json.loads(os.pread(descriptor, _LONGEST_HOLDER_BYTES, 0))
        return f"process {int(holder['process'])} on {holder['host']}, started at {holder['started_at']}"
    except (ValueError, KeyError, TypeError):
        return "a process that has just started"


_AT_FDCWD, _RENAME_EXCHANGE = -100, 2


def write_whole(file: pathlib.Path, text: str, *, survives_power_cut: bool = False) -> None:
    """Writes a file, replacing an existing one; raises OSError, and then leaves no temporary file behind.

    To survive a power cut it waits for the disk: only then does the new file replace the old one.
    """
    new = file.with_name(file.name + ".new")
    try:
        with new.open("w", encoding="utf-8") as stream:
            stream.write(text)
            if survives_power_cut:
                stream.flush()
                os.fsync(stream.fileno())
        new.replace(file)
        if survives_power_cut:
            sync_folder(file.parent)
    finally:
        new.unlink(missing_ok=True)


def sync_folder(folder: pathlib.Path) -> None:
    """Has the system write the names in a folder to the disk; raises OSError."""
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def put_in_place(new: pathlib.Path, place: pathlib.Path) -> None:
    """Moves a folder to its place, replacing an existing one, in one step if the system can; raises OSError."""
    if not place.exists():
        new.rename(place)
    elif _exchange(new, place):
        shutil.rmtree(new)
    else:
        shutil.rmtree(place)
        new.rename(place)


def _exchange(first: pathlib.Path, second: pathlib.Path) -> bool:
    """Swaps two folders in one step; False if the system has no such call."""
    try:
        rename = ctypes.CDLL(None, use_errno=True).renameat2
    except (AttributeError, OSError):
        return False
    return bool(rename(_AT_FDCWD, os.fsencode(first), _AT_FDCWD, os.fsencode(second), _RENAME_EXCHANGE) == 0)
