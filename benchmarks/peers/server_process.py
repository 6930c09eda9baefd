"""A peer's server as a child process. It uses the standard library only, as the installer does."""

import contextlib
import os
import pathlib
import shlex
import socket
import subprocess
import time
import urllib.request
from collections.abc import Callable, Iterator, Sequence

_POLL_INTERVAL_S, _STOP_WITHIN_S = 0.05, 20


class PeerError(Exception):
    """A peer is not installed or did not start; the message is a sentence for the user."""


def free_ports(*requested: int) -> list[int]:
    """The requested ports, with each 0 replaced by a port that is free now: some servers do not take port 0."""
    with contextlib.ExitStack() as stack:
        sockets = [stack.enter_context(socket.socket()) for _ in requested]
        for bound in sockets:
            bound.bind(("127.0.0.1", 0))
        return [port or bound.getsockname()[1] for port, bound in zip(requested, sockets, strict=True)]


@contextlib.contextmanager
def ready_server(
    command: Sequence[str], is_ready: Callable[[], bool], log: pathlib.Path, *, within_s: float, cpus: Sequence[int] = ()
) -> Iterator[None]:
    """Runs a server for the length of the block; `is_ready` may raise OSError while it is not.

    Raises PeerError, with the end of the server's log, if it is not ready in time.
    """
    with log.open("wb") as stream:
        # a session of its own: on Ctrl-C the benchmark stops the server itself
        process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=stream, stderr=stream, start_new_session=True)
    try:
        if cpus:
            os.sched_setaffinity(process.pid, cpus)
        _wait_until_ready(process, command, is_ready, log, within_s)
        yield
    finally:
        process.terminate()
        try:
            process.wait(_STOP_WITHIN_S)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


def answers(url: str) -> bool:
    """Whether a URL answers with a status below 400; raises OSError otherwise, as `is_ready` may."""
    with urllib.request.urlopen(url, timeout=5):  # noqa: S310 - loopback
        return True


def _wait_until_ready(
    process: "subprocess.Popen[bytes]", command: Sequence[str], is_ready: Callable[[], bool], log: pathlib.Path, within_s: float
) -> None:
    deadline_s = time.monotonic() + within_s
    while process.poll() is None and time.monotonic() < deadline_s:
        with contextlib.suppress(OSError):
            if is_ready():
                return
        time.sleep(_POLL_INTERVAL_S)
    how = f"was not ready within {within_s:g} s" if process.returncode is None else f"ended with exit code {process.returncode}"
    output = "\n".join(log.read_text(encoding="utf-8", errors="replace").splitlines()[-10:]) or "nothing"
    raise PeerError(f"`{shlex.join(map(str, command))}` {how}; its last output:\n{output}")
