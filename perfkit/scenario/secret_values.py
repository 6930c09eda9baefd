"""The values of `target.secrets`, which files or commands give, and which are read again once they are older than `every`."""

import dataclasses
import os
import pathlib
import subprocess
import threading

from perfkit.clock import MonotonicClock
from perfkit.errors import ScenarioError
from perfkit.input_file import open_input
from perfkit.process.child import kill_group, register, unregister
from perfkit.scenario.target import SecretSource, Target
from perfkit.target.command import command_words
from perfkit.units import NS_PER_S

_WITHIN_S = 30
_MAX_BYTES = 1 << 16
_POLL_S = 0.02
_read: dict[tuple[SecretSource, pathlib.Path], tuple[int, str]] = {}
"""When each was read, in monotonic time, and its value: of this process, since several addresses take the same secrets."""
_lock = threading.Lock()


@dataclasses.dataclass(frozen=True)
class SecretRereading:
    """Secrets that are read again while load is sent: one that cannot be read keeps its value."""

    stopped: threading.Event = dataclasses.field(default_factory=threading.Event)
    """When set, the command that runs is ended, and no other one is started."""
    failures: dict[tuple[SecretSource, pathlib.Path], str] = dataclasses.field(default_factory=dict)
    """Why a source could not be read; it is not tried again in the same round."""


def secret_values(target: Target, folder: pathlib.Path, rereading: SecretRereading | None = None) -> dict[str, str]:
    """The value of each secret, without the space around it; paths and programs are relative to the folder.

    Blocks while a command runs. Raises ScenarioError, which does not show what a command wrote; with `rereading` only if no value is known.
    """
    with _lock:
        return {name: _value(f"target.secrets.{name}", source, folder, rereading) for name, source in target.secrets.items()}


def _value(key: str, source: SecretSource, folder: pathlib.Path, rereading: SecretRereading | None) -> str:
    now_ns, known = MonotonicClock().now_ns(), _read.get((source, folder))
    if known is not None and now_ns - known[0] < source.every_ns:
        return known[1]
    if rereading is not None and known is not None and (source, folder) in rereading.failures:
        return known[1]
    try:
        value = _new_value(key, source, folder, threading.Event() if rereading is None else rereading.stopped)
    except ScenarioError as error:
        if rereading is None or known is None:
            raise
        rereading.failures[source, folder] = str(error)
        return known[1]
    _read[source, folder] = now_ns, value
    return value


def _new_value(key: str, source: SecretSource, folder: pathlib.Path, stopped: threading.Event) -> str:
    raw = _of_file(key, folder / source.file) if source.file is not None else _of_command(key, source.command or "", folder, stopped)
    try:
        value = raw.decode("ascii").strip()
    except UnicodeDecodeError:
        value = ""
    if not value or not value.isprintable():
        raise ScenarioError(f"{key}: expected a line of ASCII, found {'nothing' if not raw.strip() else 'something else'}")
    return value


def _of_file(key: str, path: pathlib.Path) -> bytes:
    try:
        with open_input(path) as file:
            return file.read(_MAX_BYTES)
    except OSError as error:
        raise ScenarioError(f"{key}: {path} cannot be read: {error.strerror or error}") from None


def _of_command(key: str, command: str, folder: pathlib.Path, stopped: threading.Event) -> bytes:
    words, quiet = command_words(command), subprocess.DEVNULL
    if stopped.is_set():
        raise ScenarioError(f"{key}: `{words[0]}` was not started")
    try:
        process = subprocess.Popen(words, cwd=folder, stdin=quiet, stdout=subprocess.PIPE, stderr=quiet, bufsize=0, start_new_session=True)
    except OSError as error:
        raise ScenarioError(f"{key}: `{words[0]}` cannot be run: {error.strerror or error}") from None
    register(process)
    try:
        output = _output(f"{key}: `{words[0]}`", process, stopped)
    finally:
        kill_group(process)
        process.wait()
        unregister(process)
    if process.returncode:
        raise ScenarioError(f"{key}: `{words[0]}` ended with status {process.returncode}: run it by hand to see why")
    return output


def _output(named: str, process: "subprocess.Popen[bytes]", stopped: threading.Event) -> bytes:
    """What a process writes until it ends. A child of it that lives on with the same stdout is not waited for."""
    assert process.stdout is not None
    output, clock = b"", MonotonicClock()
    ends_ns = clock.now_ns() + _WITHIN_S * NS_PER_S
    with process.stdout:
        os.set_blocking(process.stdout.fileno(), False)
        while True:
            has_ended = process.poll() is not None
            output += process.stdout.read(_MAX_BYTES) or b""
            if len(output) > _MAX_BYTES:
                raise ScenarioError(f"{named} has written more than {_MAX_BYTES:,} bytes")
            if has_ended:
                return output
            if clock.now_ns() > ends_ns:
                raise ScenarioError(f"{named} has not ended within {_WITHIN_S} s")
            if stopped.wait(_POLL_S):
                raise ScenarioError(f"{named} was stopped")
