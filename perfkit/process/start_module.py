"""Starts perfkit's own Python modules as child processes; nothing else in perfkit starts Python.

A child runs the code of this perfkit, wherever it was imported from, and nothing from the current folder: Python is started with
`-P`, and the folder that holds the package is on the path only while the package itself is imported. It gets the part of the
environment that it needs, and the kernel kills it when the process that started it ends, also while it is stopped (`entry`).
"""

import asyncio
import contextlib
import os
import pathlib
import subprocess
import sys
from collections.abc import Callable, Mapping
from contextlib import AbstractAsyncContextManager

import perfkit
from perfkit.process.child import Child, child_process, end_unused, kill_group, register, spawn, unregister

WORKER, SAMPLER, DRAWING = "perfkit.workers.worker_process", "perfkit.telemetry.sampler_process", "perfkit.cli.drawing_process"
"""The modules that send load, sample telemetry and draw reports."""
_ROOT = str(pathlib.Path(perfkit.__file__).absolute().parents[1])
_START = "import sys; sys.path.insert(0, sys.argv[1]); from perfkit.process.entry import become_module; become_module(dies_with_parent={})"
# No proxies: perfkit and its samplers speak to the target directly, and a proxy's URL often holds a password.
_ALLOWED = {
    *("PATH", "HOME", "USER", "LOGNAME", "LANG", "TZ", "TMPDIR", "TEMP", "TMP", "NO_COLOR", "SOURCE_DATE_EPOCH"),
    *("LD_LIBRARY_PATH", "DYLD_LIBRARY_PATH", "LD_PRELOAD", "MPLCONFIGDIR", "GLIBC_TUNABLES"),
    # of Conda, where CuPy finds CUDA; of NixOS, without which Python itself may not start; of TLS
    *("CONDA_PREFIX", "NIX_LD", "NIX_LD_LIBRARY_PATH", "OPENSSL_CONF", "OPENSSL_MODULES", "SSLKEYLOGFILE"),
    *("PYTHONPATH", "PYTHONHOME", "PYTHONNOUSERSITE", "PYTHONUTF8", "PYTHONIOENCODING", "PYTHONHASHSEED", "PYTHONUNBUFFERED"),
    *("PYTHONDONTWRITEBYTECODE", "PYTHONPYCACHEPREFIX", "PYTHONFAULTHANDLER", "PYTHONMALLOC", "PYTHONWARNINGS"),
}
_ALLOWED_BEGINNINGS = (
    *("LC_", "XDG_", "SSL_", "GRPC_", "PERFKIT_"),
    *("CUDA_", "CUPY_", "NVIDIA_", "OMP_", "KMP_", "MKL_", "OPENBLAS_", "GOMP_", "NPY_", "ORT_", "MALLOC_"),
)
# overrides of scenario keys, which may be header values, are read by the process that reads the scenario
_REFUSED_BEGINNINGS = ("PERFKIT_SET_",)
_SECRET_ENDINGS = ("TOKEN", "SECRET", "PASSWORD", "PASSWD", "CREDENTIALS", "_KEY")
_ahead: "dict[str, subprocess.Popen[bytes]]" = {}
"""The processes started ahead by their modules."""
_slow = set[str]()
"""Modules of which one was not idle in time: none is started ahead again."""


def start_module(
    module: str,
    *arguments: str,
    on_line: Callable[[str], None] | None = None,
    stop_within_s: float = 5,
) -> AbstractAsyncContextManager[Child]:
    """Runs `python -m module` for the length of the block, in the process that `start_ahead` has started, if it still runs; see `child_process`."""
    spawned = None if arguments else _ahead.pop(module, None)
    if spawned is not None and spawned.poll() is not None:  # killed while it waited, as for its memory
        end_unused(spawned)
        spawned = None
    return child_process(
        module_command(module, *arguments),
        environment=module_environment(os.environ),
        on_line=on_line,
        stop_within_s=stop_within_s,
        spawned=spawned,
    )


def start_ahead(module: str, *, reads_stderr: bool = False) -> None:
    """Starts `python -m module`, unless it has been, for the next `start_module` of it, so that it imports its libraries meanwhile.

    It does nothing once `wait_until_idle` has found one of the module too slow. `reads_stderr` says whether `start_module` will get an `on_line`.
    """
    with contextlib.suppress(OSError):  # met again, and told, when the process is needed
        if module not in _ahead and module not in _slow:
            _ahead[module] = spawn(module_command(module), module_environment(os.environ), reads_stderr=reads_stderr)


def is_started_ahead(module: str) -> bool:
    """Whether `start_ahead` has started a process of this module that nobody has used yet."""
    return module in _ahead


async def wait_until_idle(module: str, within_s: float) -> None:
    """Waits until the process that `start_ahead` has started for this module, if any, is idle, which it says by its first output.

    One that has not written in time is ended, so that it disturbs no load; `start_module` starts another.
    """
    process = _ahead.get(module)
    if process is None or process.stdout is None:
        return
    loop, is_idle = asyncio.get_running_loop(), asyncio.Event()
    loop.add_reader(process.stdout.fileno(), is_idle.set)  # also if it has ended, which is told when it is needed
    try:
        await asyncio.wait_for(is_idle.wait(), within_s)
    except TimeoutError:
        is_idle.clear()
    finally:
        loop.remove_reader(process.stdout.fileno())
    if not is_idle.is_set():
        _slow.add(module)
        await asyncio.to_thread(end_started_ahead, module)


def end_started_ahead(*modules: str) -> None:
    """Ends the processes of these modules, by default of all, that `start_ahead` has started and nobody has used."""
    for module in modules or tuple(_ahead):
        if (process := _ahead.pop(module, None)) is not None:
            end_unused(process)


def run_module(module: str, *arguments: str, within_s: float) -> bool:
    """Runs `python -m module` to its end, without input and output; False if it fails, or is killed after `within_s`.

    It blocks the calling thread; `start_module` is for event loops.
    """
    quiet = subprocess.DEVNULL
    process = subprocess.Popen(
        module_command(module, *arguments),
        env=module_environment(os.environ),
        stdin=quiet,
        stdout=quiet,
        stderr=quiet,
        start_new_session=True,
    )
    register(process)
    try:
        return process.wait(within_s) == 0
    except subprocess.TimeoutExpired:
        return False
    finally:
        kill_group(process)
        process.wait()
        unregister(process)


def module_command(module: str, *arguments: str, dies_with_parent: bool = True) -> list[str]:
    """The command that runs a module of this perfkit, or of its bundled server, with some arguments."""
    return [sys.executable, "-P", "-c", _START.format(dies_with_parent), _ROOT, module, *arguments]


def module_environment(environ: Mapping[str, str]) -> dict[str, str]:
    """The part of an environment that perfkit's own processes need: nothing that names a secret, and no proxies."""
    kept = {name: value for name, value in environ.items() if _is_allowed(name)}
    if "PYTHONPATH" in kept:  # an empty entry stands for the current folder
        kept["PYTHONPATH"] = os.pathsep.join(entry for entry in kept["PYTHONPATH"].split(os.pathsep) if entry)
    return kept


def _is_allowed(name: str) -> bool:
    if name.startswith(_REFUSED_BEGINNINGS) or name.upper().endswith(_SECRET_ENDINGS):
        return False
    return name in _ALLOWED or name.startswith(_ALLOWED_BEGINNINGS)
