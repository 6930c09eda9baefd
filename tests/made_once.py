"""Folders that all test processes of a session share, since they take seconds to make."""

import fcntl
import os
import pathlib
import shutil
from collections.abc import Callable

import pytest


def made_once(factory: pytest.TempPathFactory, name: str, make: Callable[[pathlib.Path], object]) -> pathlib.Path:
    """The folder that `make` fills, in the first process that asks for it; the others wait. It is made under another name. Nobody changes it afterwards."""
    base = factory.getbasetemp()
    base = base.parent if "PYTEST_XDIST_WORKER" in os.environ else base
    folder, unfinished = base / name, base / f"{name}.unfinished"
    with (base / f"{name}.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not folder.exists():
            shutil.rmtree(unfinished, ignore_errors=True)  # of a process that failed
            unfinished.mkdir()
            make(unfinished)
            unfinished.rename(folder)
    return folder
