"""Marks of models whose configuration perfkit has changed on a running server and not yet put back, in the user's state folder.

The process that changes a model locks its mark. The kernel releases the lock with the process, however it ends, so that a mark which
nobody locks says that its process was killed.
"""

import contextlib
import fcntl
import hashlib
import json
import os
import pathlib
import shlex
import threading
from collections.abc import Iterable, Sequence
from typing import Self

from perfkit.errors import MeasurementWarning, UsageError
from perfkit.installation import state_folder
from perfkit.target.address import Address

_TRIES, _RETRIES_AFTER_S = 20, 0.01
_FOLDER = "changed-models"


class ChangedModel:
    """The mark of one model of one server; `set` it before the first change, `clear` it once the model is as before."""

    def __init__(self, address: Address, model: str, folder: pathlib.Path) -> None:
        self.file = _mark(address, model)
        self._document = {"server": str(address), "model": model, "folder": str(folder.resolve())}
        self._descriptor: int | None = None

    def set(self) -> Self:
        """Writes and locks the mark; raises UsageError if another process has it, or it cannot be written."""
        try:
            self.file.parent.mkdir(parents=True, exist_ok=True)
            descriptor = _locked(self.file)
        except OSError as error:
            raise UsageError(f"{self.file} cannot be written: {error.strerror}: set PERFKIT_STATE_DIR to a writable folder") from None
        if descriptor is None:
            server, model = self._document["server"], self._document["model"]
            raise UsageError(f"{server}: another perfkit changes the configuration of model '{model}': wait for its end")
        os.ftruncate(descriptor, 0)
        os.pwrite(descriptor, json.dumps(self._document).encode(), 0)
        os.fsync(descriptor)
        self._descriptor = descriptor
        return self

    def clear(self) -> None:
        """Removes the mark, if this object has set it."""
        if self._descriptor is not None:
            self.file.unlink(missing_ok=True)
            self.release()

    def release(self) -> None:
        """Leaves the mark, for the next perfkit to find."""
        if self._descriptor is not None:
            os.close(self._descriptor)
            self._descriptor = None


class ChangedModels:
    """The marks of several models at each of a server's addresses, as one."""

    def __init__(self, addresses: Iterable[Address], models: Sequence[str], folder: pathlib.Path) -> None:
        self._marks = [ChangedModel(address, model, folder) for address in addresses for model in models]

    def set(self) -> Self:
        """Sets all, or none; raises UsageError like `ChangedModel.set`."""
        try:
            for mark in self._marks:
                mark.set()
        except UsageError:
            self.clear()
            raise
        return self

    def clear(self) -> None:
        """Removes those that this object has set."""
        for mark in self._marks:
            mark.clear()

    def release(self) -> None:
        """Leaves them, for the next perfkit to find."""
        for mark in self._marks:
            mark.release()


def clear_marks_of(folder: pathlib.Path) -> None:
    """Removes what is left of the marks of a command's folder, at whatever address, once its server is put back."""
    for file in (state_folder() / _FOLDER).glob("*.json"):
        if _marked_folder(file) == folder.resolve():
            file.unlink(missing_ok=True)


def find_changed(address: Address, model: str) -> pathlib.Path | None:
    """The folder of the command that was killed before it put this model's configuration back; None if there is none."""
    return _marked_folder(_mark(address, model))


def _marked_folder(file: pathlib.Path) -> pathlib.Path | None:
    """The folder that a mark names; None without a mark, and while its process lives."""
    with contextlib.suppress(OSError, ValueError, KeyError, TypeError):
        descriptor = os.open(file, os.O_RDWR | os.O_NOFOLLOW | os.O_CLOEXEC)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)  # fails while its process lives
            return pathlib.Path(json.loads(os.read(descriptor, 2**16))["folder"])
        finally:
            os.close(descriptor)
    return None


def changed_model_warnings(targets: Iterable[tuple[Address, str]]) -> list[MeasurementWarning]:
    """A warning for each address with a model that was not put back."""
    found = [(model, find_changed(address, model)) for address, model in targets]
    return [MeasurementWarning("changed_model", describe_changed(model, folder)) for model, folder in found if folder is not None]


def describe_changed(model: str, folder: pathlib.Path) -> str:
    """The note on a model that was not put back."""
    return (
        f"The model '{model}' has a configuration that a perfkit tune tried, which was killed: `{restore_command(folder)}` puts back the "
        "one before"
    )


def restore_command(folder: pathlib.Path) -> str:
    """The command that puts a model's configuration back."""
    return shlex.join(["perfkit", "tune", "--restore", str(folder)])


def _locked(file: pathlib.Path) -> int | None:
    """A descriptor of a file that is there, locked; None if another process has it."""
    for _ in range(_TRIES):
        descriptor = os.open(file, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            if os.path.samestat(os.fstat(descriptor), file.stat()):
                return descriptor
            os.close(descriptor)  # another process has removed the file and made it again
        except FileNotFoundError:
            os.close(descriptor)  # another process has removed the file
        except OSError:
            os.close(descriptor)
            threading.Event().wait(_RETRIES_AFTER_S)  # it may be read by `find_changed` just now
    return None


def _mark(address: Address, model: str) -> pathlib.Path:
    name = hashlib.sha256(f"{address} {model}".encode()).hexdigest()[:32]
    return state_folder() / _FOLDER / f"{name}.json"
