"""The folder of a bisection: its progress while it lasts, `bisection.json` when it has ended.

It has its final name from the start, since what is built in its worktrees may contain their paths.
"""

import json
import pathlib
from collections.abc import Iterator
from typing import Annotated, Any

from pydantic import Field

from perfkit.bisection.model import Bisection, RevisionGate
from perfkit.bisection.threshold import LOOKS
from perfkit.errors import MeasurementError, ResultError
from perfkit.result.atomic_write import write_whole
from perfkit.result.checks import refuse
from perfkit.result.json_file import read_json
from perfkit.result.output_folder import ensure_writable
from perfkit.result.part import Part

PROGRESS_SCHEMA = "perfkit.bisection-progress/1"
PROGRESS_FILE, BISECTION_FILE, GATES_FOLDER, WORKTREES_FOLDER = "progress.json", "bisection.json", "gates", "worktrees"


class BisectionInputs(Part):
    """The inputs of a bisection; an interrupted one continues only with the same."""

    scenario: dict[str, Any]
    repository: str
    good: str
    """The commit's full name."""
    bad: str
    """The commit's full name."""
    build: str | None
    serve: str
    pairs: int = LOOKS[-1]
    """The most pairs of each gate after the first."""
    perfkit: str
    """The version: another one may define its metrics differently."""


class Progress(Part):
    """The progress of a bisection, `progress.json`."""

    schema_version: Annotated[str, Field(alias="schema")] = PROGRESS_SCHEMA
    inputs: BisectionInputs
    seed: int
    started_at: str
    gates: tuple[RevisionGate, ...] = ()


class BisectionFolder:
    """Stores the progress of a bisection; an interrupted one with the same folder continues from there.

    Raises ResultError if the folder holds something else, or another bisection.
    """

    def __init__(self, folder: pathlib.Path, progress: Progress) -> None:
        self.folder, self.progress = folder, progress
        try:
            if (folder / PROGRESS_FILE).exists():
                ensure_writable(folder, folder)
                self._continue()
                return
            if folder.exists() and any(folder.iterdir()):
                raise ResultError(f"--out {folder}: this folder exists and is not that of an unfinished bisection; give another one")
            folder.mkdir(parents=True, exist_ok=True)
            ensure_writable(folder, folder)
        except OSError as error:
            raise ResultError(f"--out {folder}: cannot be written: {error.strerror}") from None
        self._write(PROGRESS_FILE, self.progress.document())

    @property
    def gates(self) -> pathlib.Path:
        """The folder of the gates' folders."""
        return self.folder / GATES_FOLDER

    @property
    def worktrees(self) -> pathlib.Path:
        """The folder of the worktrees and of the build logs."""
        return self.folder / WORKTREES_FOLDER

    def add(self, gate: RevisionGate) -> None:
        """Store what a gate says."""
        self.progress = self.progress.model_copy(update={"gates": (*self.progress.gates, gate)})
        self._write(PROGRESS_FILE, self.progress.document())

    def commit(self, bisection: Bisection) -> None:
        """Store the outcome; the bisection has ended."""
        self._write(BISECTION_FILE, bisection.document())
        (self.folder / PROGRESS_FILE).unlink(missing_ok=True)

    def _continue(self) -> None:
        file = self.folder / PROGRESS_FILE
        try:
            stored = Progress.model_validate(read_json(file))
        except (OSError, ValueError, ResultError) as error:
            first = str(error).splitlines()[0]
            raise ResultError(f"{file}: cannot be read: {first}; remove {self.folder} to start over") from None
        if stored.inputs != self.progress.inputs:
            names = BisectionInputs.model_fields
            changed = [name for name in names if getattr(stored.inputs, name) != getattr(self.progress.inputs, name)]
            raise ResultError(
                f"--out {self.folder}: it holds an unfinished bisection with different inputs ({', '.join(changed)}): give the same inputs to "
                "continue it, remove it, or give another --out"
            )
        refuse(file, _problems(stored))
        self.progress = stored

    def _write(self, name: str, document: Any) -> None:
        try:
            write_whole(self.folder / name, json.dumps(document, indent=1) + "\n")
        except OSError as error:
            raise MeasurementError(f"{self.folder / name} cannot be written: {error.strerror}") from None


def _problems(progress: Progress) -> Iterator[tuple[str, str]]:
    """What no bisection could have stored."""
    positions = [gate.position for gate in progress.gates]
    if len(set(positions)) < len(positions) or any(position < 1 for position in positions):
        yield "gates", "each revision after the good one is measured once"
