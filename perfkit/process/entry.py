"""The first thing that a child started by `start_module` runs; it imports little, since some modules must be imported late."""

import contextlib
import ctypes
import gc
import importlib
import os
import runpy
import signal
import sys
from collections.abc import Iterator

_PR_SET_PDEATHSIG = 1  # linux/prctl.h
# read when NumPy is imported. perfkit multiplies no large matrices, and the threads for that, one for each CPU, wait for work in a loop at first
_BLAS_THREADS = "OPENBLAS_NUM_THREADS"
_is_collection_paused = False


def become_module(*, dies_with_parent: bool) -> None:
    """Turns this process, whose arguments are a folder, a module and the module's arguments, into `python -m module`.

    The folder has been put first on the path, to import this perfkit; it is taken off again, since it may be a source folder whose
    other files are not meant to be imported.
    """
    folder, module = sys.argv[1:3]
    del sys.argv[1:3]
    if dies_with_parent:
        die_with_parent()
    if module.startswith("perfkit."):
        os.environ.setdefault(_BLAS_THREADS, "1")
    importlib.import_module(module.partition(".")[0])  # perfkit, or the bundled server of the same version
    sys.path.remove(folder)
    try:
        runpy.run_module(module, run_name="__main__", alter_sys=True)
    finally:
        end_without_collection()


@contextlib.contextmanager
def without_blas_threads() -> Iterator[None]:
    """Has NumPy start no threads if it is imported in the block; afterwards the environment, which servers inherit, is as it was."""
    is_set = _BLAS_THREADS in os.environ
    os.environ.setdefault(_BLAS_THREADS, "1")
    try:
        yield
    finally:
        if not is_set:
            del os.environ[_BLAS_THREADS]


def start_without_collection() -> None:
    """Pauses garbage collection until `collect_from_now_on`: imports leave little garbage, and collections take a tenth of their time."""
    global _is_collection_paused  # noqa: PLW0603 - as the collection, it is the process's
    if gc.isenabled():
        gc.disable()
        _is_collection_paused = True


def collect_from_now_on() -> None:
    """Resumes garbage collection after `start_without_collection`, without the objects made so far, which stay. Otherwise it does nothing."""
    global _is_collection_paused  # noqa: PLW0603 - as above
    if _is_collection_paused:
        _is_collection_paused = False
        gc.freeze()
        gc.enable()


def end_without_collection() -> None:
    """Leaves all objects out of the interpreter's last garbage collection, so that it ends in half the time."""
    gc.freeze()


def die_with_parent() -> None:
    """Has the kernel kill this process when the thread that started it ends, also while this process is stopped.

    Only Linux can do it; elsewhere a child ends when its stdin does, unless it is stopped.
    """
    with contextlib.suppress(AttributeError, OSError):
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, int(signal.SIGKILL))
