"""Perfkit's processes, forked from one that has imported its modules: most of what a short run costs is imports.

`start` stands in for `subprocess.Popen`. What it starts is a child of this process, with the command line, environment and pipes that it
would have as a Python of its own. A process with a single thread forks it: a fork of this one would hang where gRPC has threads.
"""

import atexit
import contextlib
import ctypes
import gc
import importlib
import json
import os
import pathlib
import runpy
import signal
import socket
import subprocess
import sys
import threading
import time
import traceback
import types
from collections.abc import Iterator, Mapping
from typing import Any

import psutil

from perfkit.process import child, start_module
from perfkit.process.entry import die_with_parent
from perfkit.process.start_module import module_command, module_environment

_STARTING = [child, start_module]
with contextlib.suppress(ImportError):  # where only some tests are, as in those of the wheel
    from benchmarks import processes

    _STARTING.append(processes)
_ROOT = str(pathlib.Path(__file__).parents[1])
_SET_CHILD_SUBREAPER = 36  # linux/prctl.h
_LONGEST_REQUEST_BYTES = 2**18
_ROOM_BYTES = 2**12
_IMPORTED = (
    *("perfkit.measurement.lifecycle", "perfkit.report.live", "perfkit.report.terminal_summary", "perfkit.cli.run", "perfkit.cli.worker"),
    *("perfkit.workers.worker_process", "perfkit.telemetry.sampler_process", "perfkit.report.run", "perfkit.report.run_charts", "jinja2"),
    *("server_stub.server", "server_stub.options", "pyarrow.parquet"),
)
_BEGIN = module_command("")[:-1]
_LOCK = threading.Lock()
_connections = dict[int, socket.socket]()
"""To the process that forks for a process, by the number of the latter."""
_ending = list[contextlib.ExitStack]()


def _of_start(environ: Mapping[str, str]) -> dict[str, str]:
    """What the loader and Python read when they start."""
    return {name: value for name, value in module_environment(environ).items() if name.startswith(("LD_", "PYTHON"))}


_OF_START = _of_start(os.environ)


def start(command: list[str], **options: Any) -> "subprocess.Popen[Any]":
    """Starts a command; one of perfkit's own modules by a fork, as long as `by_forks` is used, and Python would start as it did here."""
    is_own = [word.partition(".")[0] for word in _words(command)[:1]] in (["perfkit"], ["server_stub"])
    is_alike = _of_start(options.get("env") or os.environ) == _OF_START
    return (_Forked if is_own and is_alike and vars(child)["subprocess"] is by_forks else subprocess.Popen)(command, **options)


run = types.FunctionType(subprocess.run.__code__, {**vars(subprocess), "Popen": start})
"""`subprocess.run`, whose process is started so."""
run.__kwdefaults__ = subprocess.run.__kwdefaults__


def use(module: object) -> None:
    """Has perfkit and its benchmarks start their processes by this module: `by_forks`, or `subprocess`."""
    for starting in _STARTING:
        vars(starting)["subprocess"] = module


by_forks = types.SimpleNamespace(**{**vars(subprocess), "Popen": start, "run": run})
"""The module `subprocess` with forks."""


@contextlib.contextmanager
def forking() -> Iterator[None]:
    """Perfkit's processes are forked for the length of the block."""
    use(by_forks)
    with contextlib.ExitStack() as ending:
        _ending.append(ending)
        yield
    use(subprocess)


def is_server(process: psutil.Process) -> bool:
    """Whether a process only forks others."""
    try:
        return _import_and_serve.__name__ in " ".join(process.cmdline())
    except psutil.Error:
        return False


def _words(command: list[str]) -> list[str]:
    """The module that a command runs, and its arguments."""
    if command[: len(_BEGIN)] == _BEGIN:
        return command[len(_BEGIN) :]
    return command[2:] if command[:2] == [sys.executable, "-m"] else []


class _Forked(subprocess.Popen[Any]):
    def _execute_child(self, args, *rest):
        folder, environ, pipes, is_session = rest[4], rest[5], rest[9:15], rest[20]
        request = {
            "command": list(map(os.fspath, args)),
            "environ": dict(os.environ if environ is None else environ),
            "folder": str(folder or pathlib.Path.cwd()),
            "parent": os.getpid(),
            "is_session": is_session,
        }
        own = [pipe if pipe >= 0 else standard for standard, pipe in enumerate((pipes[0], pipes[3], pipes[5]))]
        libc = ctypes.CDLL(None)
        with _LOCK:
            connection = _connections.get(os.getpid()) or _start_server()
            libc.prctl(_SET_CHILD_SUBREAPER, 1)  # this process adopts the fork, and only that: other orphans go where they always go
            try:
                socket.send_fds(connection, [json.dumps(request).encode()], own)
                self.pid = int(connection.recv(64))
            finally:
                libc.prctl(_SET_CHILD_SUBREAPER, 0)
        self._child_created = True
        vars(subprocess.Popen)["_close_pipe_fds"](self, *pipes)


def _start_server() -> socket.socket:
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    code = f"import sys; sys.path.insert(0, {_ROOT!r}); from tests import forked; forked._import_and_serve({theirs.fileno()})"
    command = [sys.executable, "-P", "-c", code + " " * _ROOM_BYTES]  # room for the command lines of forks
    environ = {**os.environ, "OPENBLAS_NUM_THREADS": "1"}  # none besides the first
    server = subprocess.Popen(command, pass_fds=[theirs.fileno()], env=environ, stdin=subprocess.DEVNULL, start_new_session=True)
    theirs.close()
    _ending[-1].enter_context(server)
    _connections[os.getpid()] = _ending[-1].enter_context(ours)  # closed first, which ends the server
    return ours


def _import_and_serve(descriptor: int) -> None:
    for module in _IMPORTED:
        importlib.import_module(module)
    sys.path.remove(_ROOT)
    gc.collect()
    gc.freeze()
    _serve(socket.socket(fileno=descriptor))


def _serve(connection: socket.socket) -> None:
    """Forks for each request, until the process that asks has ended."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the terminal's is for the others
    while True:
        data, descriptors, _, _ = socket.recv_fds(connection, _LONGEST_REQUEST_BYTES, 3)
        if not data:
            os._exit(0)
        reading, writing = os.pipe()
        if (first := os.fork()) == 0:  # with its end the fork becomes a child of the process that asks
            between = os.getpid()
            if os.fork() == 0:
                _become(json.loads(data), descriptors, between, writing)
            os._exit(0)
        os.close(writing)
        os.waitpid(first, 0)
        connection.send(os.read(reading, 64) or os._exit(0))  # nothing: the process that asked has ended
        for one in (*descriptors, reading):
            os.close(one)


def _become(request: dict[str, Any], descriptors: list[int], between: int, begun: int) -> None:
    """Does what the command would do, and ends this process; writes its number to `begun` once others see its command line."""
    while os.getppid() == between:
        time.sleep(0.0002)
    if os.getppid() != request["parent"]:  # it was killed meanwhile
        os._exit(1)
    for standard, one in enumerate(descriptors):
        os.dup2(one, standard)
    os.closerange(3, begun)
    os.closerange(begun + 1, os.sysconf("SC_OPEN_MAX"))
    if request["is_session"]:
        os.setsid()
    os.environ.clear()
    os.environ.update(request["environ"])
    os.chdir(request["folder"])
    command, words = request["command"], _words(request["command"])
    if words[0] == "perfkit":
        _fork_server(begun)
    _show_command_line(command)
    os.write(begun, b"%d" % os.getpid())
    os.close(begun)
    signal.signal(signal.SIGINT, signal.default_int_handler)
    if command[: len(_BEGIN)] == _BEGIN:
        die_with_parent()
    for name, standard, errors in (("stdin", 0, "strict"), ("stdout", 1, "strict"), ("stderr", 2, "backslashreplace")):
        stream = open(standard, "w" if standard else "r", 1 if standard == 2 else -1, errors=errors, closefd=False)  # noqa: SIM115
        setattr(sys, name, stream)
        setattr(sys, f"__{name}__", stream)
    sys.argv[:] = ["-c", *words[1:]]
    vars(gc)["unfreeze"] = lambda: None  # to look for garbage among all imports would touch each of their pages, and so copy it
    os._exit(_run(words[0]))  # to take down all that was imported would cost more than most of what runs


def _fork_server(begun: int) -> None:
    """Has this process's own children forked, by a process that is as it is now."""
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    if os.fork() == 0:
        with open(os.devnull, "r+b") as null:  # noqa: PTH123
            for standard in range(3):
                os.dup2(null.fileno(), standard)
        ours.close()
        os.close(begun)
        _serve(theirs)
    theirs.close()
    _connections[os.getpid()] = ours
    use(by_forks)


def _show_command_line(command: list[str]) -> None:
    """Where other processes see the command line of this one, between two addresses, there is this one from then on."""
    fields = pathlib.Path("/proc/self/stat").read_text().rpartition(")")[2].split()
    first, last = map(int, fields[45:47])
    text = b"\0".join(word.encode() for word in command)[: last - first - 1]
    ctypes.memmove(first, text.ljust(last - first, b"\0"), last - first)


def _run(module: str) -> int:
    """The exit code of `python -m module`."""
    code: object = 0
    if "." in module:
        sys.modules.pop(module, None)  # it is run as the main module
    try:
        runpy.run_module(module, run_name="__main__", alter_sys=True)
    except SystemExit as end:
        code = end.code or 0
    except BaseException:  # noqa: BLE001 - as the interpreter does
        traceback.print_exc()
        code = 1
    threading._shutdown()  # type: ignore[attr-defined]
    atexit._run_exitfuncs()
    if not isinstance(code, int):
        sys.stderr.write(f"{code}\n")
        code = 1
    for stream in (sys.stdout, sys.stderr):
        with contextlib.suppress(OSError, ValueError):
            stream.flush()
    return code
