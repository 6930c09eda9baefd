"""Writes files and folders atomically: completely, or not at all."""

import ctypes
import os
import pathlib
import shutil

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
