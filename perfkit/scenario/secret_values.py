"""The values of `target.secrets`, which files or commands give, and which are read again once they are older than `every`."""

import dataclasses
import pathlib
import subprocess
import threading

from perfkit.clock import MonotonicClock
from perfkit.errors import ScenarioError
from perfkit.input_file import open_input
from perfkit.scenario.target import SecretSource, Target
from perfkit.target.command import command_words

_WITHIN_S = 30
_MAX_BYTES = 1 << 16
_read: dict[tuple[SecretSource, pathlib.Path], tuple[int, str]] = {}
"""When each was read, in monotonic time, and its value: of this process, since several addresses take the same secrets."""
_lock = threading.Lock()


@dataclasses.dataclass(frozen=True)
class SecretRereading:
    """Secrets that are read again while load is sent: one that cannot be read keeps its value."""

    failures: list[str] = dataclasses.field(default_factory=list)
    """What could not be read, and why."""


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
    try:
        value = _new_value(key, source, folder)
    except ScenarioError as error:
        if rereading is None or known is None:
            raise
        rereading.failures.append(str(error))
        value = known[1]
    _read[source, folder] = now_ns, value
    return value


def _new_value(key: str, source: SecretSource, folder: pathlib.Path) -> str:
    raw = _of_file(key, folder / source.file) if source.file is not None else _of_command(key, source.command or "", folder)
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


def _of_command(key: str, command: str, folder: pathlib.Path) -> bytes:
    words = command_words(command)
    try:
        done = subprocess.run(words, cwd=folder, stdin=subprocess.DEVNULL, capture_output=True, timeout=_WITHIN_S, check=False)
    except subprocess.TimeoutExpired:
        raise ScenarioError(f"{key}: `{words[0]}` has not ended within {_WITHIN_S} s") from None
    except OSError as error:
        raise ScenarioError(f"{key}: `{words[0]}` cannot be run: {error.strerror or error}") from None
    if done.returncode:
        raise ScenarioError(f"{key}: `{words[0]}` ended with status {done.returncode}: run it by hand to see why")
    return done.stdout[:_MAX_BYTES]
