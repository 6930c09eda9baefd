"""The folder of a tune: what was asked, each window as it is measured, and the outcome.

It has its final name from the start: whoever has to put a configuration back must find it there.
"""

import json
import os
import pathlib
from collections.abc import Mapping, Sequence
from typing import Annotated, Any, Literal

from pydantic import Field, TypeAdapter, ValidationError

from perfkit.errors import ResultError, StorageError
from perfkit.input_file import read_bounded
from perfkit.result.output_folder import ensure_writable, sync_folder, write_whole
from perfkit.result.part import Part, read_part
from perfkit.scenario.measure import ObjectiveName

PROGRESS_SCHEMA = "perfkit.tune-progress/1"
PROGRESS_FILE, WINDOWS_FILE, PRESENT_FILE, OUTCOME_FILE, RUNS_FOLDER = (
    "progress.json", "windows.jsonl", "present-config.json", "tune.json", "runs",
)  # fmt: skip
_LARGEST_BYTES = 2**30

Phase = Literal["scan", "race", "confirmation"]


class Window(Part):
    """One window of one configuration, or why there is none."""

    candidate: int
    """The configuration's number; 0 is the present one."""
    phase: Phase
    round: int
    """The round of the race, from 1; in the confirmation the number of the pair."""
    elapsed_s: float = 0.0
    """From the start of the tune to the end of this window, without interruptions."""
    refusal: str = ""
    """The server's words if the configuration could not be applied; without any figures then."""
    has_failed: bool = False
    """Whether the target was lost, or gave no usable answer, while it was measured; `reason` says how, without any figures then."""
    concurrency: int = 0
    length_s: float = 0.0
    is_valid: bool = False
    """Whether the figures are the target's, as `Point.valid`."""
    throughput_per_s: float = 0.0
    p50_ns: int | None = None
    p99_ns: int | None = None
    """The p99 of the service times or, where requests arrive at a rate, of the response times; `times` holds the same times."""
    server_cpus: float | None = None
    """How many CPUs the server's processes kept busy; None if that is not known."""
    gpu_memory_bytes: int | None = None
    """The most memory that was used of the GPUs that the server may use; None if that is not known."""
    over: str = ""
    """Which of these two figures exceeds its limit, with both values, as a sentence; empty if none does."""
    scheduled: int = 0
    failed: int = 0
    answers: int = 0
    checked: int = 0
    wrong: int = 0
    refused: int = 0
    """Answers with an error in them, as `CheckedAnswers.refused`."""
    times: tuple[tuple[tuple[int, int], ...], ...] = ()
    """The times of each second: indices of buckets (`stats/buckets`) with their counts."""
    warnings: tuple[str, ...] = ()
    """The codes of its warnings."""
    reason: str = ""
    """Why it is not valid, or most requests failed; a sentence."""


class TuneInputs(Part):
    """The inputs of a tune; an interrupted one continues only with the same."""

    scenario: dict[str, Any]
    target: str
    candidates: tuple[dict[str, str], ...]
    """The values of each configuration, by key; the first is the present one."""
    ladder: tuple[int, ...]
    """The concurrencies that are scanned; a single 0 where requests arrive at a rate."""
    objective: ObjectiveName = "goodput"
    rate_per_s: float | None = None
    """The rate of the arrivals; only for the objective `latency`."""
    indifference: float
    """The share by which another configuration may be better in the answer."""
    perfkit: str
    """The version: another one may decide differently."""


class Progress(Part):
    """What a tune began with, `progress.json`."""

    schema_version: Annotated[str, Field(alias="schema")] = PROGRESS_SCHEMA
    inputs: TuneInputs
    seed: int
    started_at: str
    restores: bool = False
    """Whether the present configurations, which are in `present-config.json`, are put back at the end."""
    url: str = ""
    """The URL of the server whose configuration is changed, without credentials."""
    model: str = ""
    first: tuple[int, ...]
    """The configurations of the race's first round, by number."""
    opened: tuple[int, ...] = ()
    """The configurations that joined the race later than those of its first round, by number."""
    models: tuple[str, ...] = ()
    """The models whose configurations are tuned: the model itself, or the members of an ensemble; empty if only values in a command vary."""


class TuneFolder:
    """Stores a tune; one that was interrupted continues with the same folder. Raises ResultError if the folder holds anything else."""

    def __init__(self, folder: pathlib.Path, progress: Progress, present: Mapping[str, str], *, resumes: bool) -> None:
        self.folder, self.progress, self.present = folder, progress, present
        self.windows: list[Window] = []
        try:
            if resumes and (folder / PROGRESS_FILE).exists():
                ensure_writable(folder, folder)
                self._continue()
                return
            if folder.exists() and any(folder.iterdir()):
                raise ResultError(f"--out {folder}: this folder exists and is not empty; give another one, or continue it with --resume")
            folder.mkdir(parents=True, exist_ok=True)
            ensure_writable(folder, folder)
            if present:
                write_whole(folder / PRESENT_FILE, json.dumps(present, indent=1) + "\n", survives_power_cut=True)
            self._write_progress()
        except OSError as error:
            raise ResultError(f"--out {folder}: cannot be written: {error.strerror}") from None

    @property
    def runs(self) -> pathlib.Path:
        """The folder of the windows' result folders, which are removed once they are read, and of the servers' logs."""
        return self.folder / RUNS_FOLDER

    def add(self, window: Window) -> None:
        """Stores a window."""
        self.windows.append(window)
        try:
            with (self.folder / WINDOWS_FILE).open("a", encoding="utf-8") as file:
                file.write(json.dumps(window.document()) + "\n")
                file.flush()
                os.fsync(file.fileno())
        except OSError as error:
            raise StorageError(f"{self.folder / WINDOWS_FILE} cannot be written: {error.strerror}") from None

    def open(self, numbers: Sequence[int]) -> None:
        """Stores that these configurations join the race."""
        opened = tuple(dict.fromkeys((*self.progress.opened, *numbers)))
        self.progress = self.progress.model_copy(update={"opened": opened})
        try:
            self._write_progress()
        except OSError as error:
            raise StorageError(f"{self.folder / PROGRESS_FILE} cannot be written: {error.strerror}") from None

    def write(self, name: str, text: str) -> None:
        """Writes a file of the outcome."""
        try:
            write_whole(self.folder / name, text)
            sync_folder(self.folder)
        except OSError as error:
            raise StorageError(f"{self.folder / name} cannot be written: {error.strerror}") from None

    def _write_progress(self) -> None:
        write_whole(self.folder / PROGRESS_FILE, json.dumps(self.progress.document(), indent=1) + "\n", survives_power_cut=True)

    def _continue(self) -> None:
        stored = read_progress(self.folder)
        wanted = self.progress.inputs
        if changed := [name for name in TuneInputs.model_fields if getattr(stored.inputs, name) != getattr(wanted, name)]:
            raise ResultError(
                f"--out {self.folder}: it holds a tune with different inputs ({', '.join(changed)}): give the same inputs to continue it, or "
                "another --out"
            )
        self.progress, self.present = stored, read_present(self.folder) if stored.models else {}
        self.windows = list(read_windows(self.folder))


def read_progress(folder: pathlib.Path) -> Progress:
    """What a tune began with; raises ResultError."""
    return read_part(folder / PROGRESS_FILE, Progress, PROGRESS_SCHEMA)


def read_present(folder: pathlib.Path) -> dict[str, str]:
    """The configurations that a tune found, by model, each byte for byte as the server wrote it; raises ResultError."""
    try:
        return TypeAdapter(dict[str, str]).validate_json(read_bounded(folder / PRESENT_FILE, _LARGEST_BYTES), strict=True)
    except (OSError, ValidationError) as error:
        reason = error.strerror if isinstance(error, OSError) else error.errors()[0]["msg"]
        raise ResultError(f"{folder / PRESENT_FILE}: cannot be read: {reason}") from None


def read_windows(folder: pathlib.Path) -> Sequence[Window]:
    """The windows of a tune; a last line that is not whole, of a perfkit that was killed, is left out. Raises ResultError."""
    file = folder / WINDOWS_FILE
    try:
        lines = read_bounded(file, _LARGEST_BYTES).decode().split("\n")
    except FileNotFoundError:
        return []
    except (OSError, UnicodeDecodeError) as error:
        raise ResultError(f"{file}: cannot be read: {error}") from None
    try:
        windows = [Window.model_validate_json(line) for line in lines[:-1]]
    except ValidationError as error:
        raise ResultError(f"{file}: {error.errors()[0]['msg']}; the file was damaged or edited") from None
    if lines[-1]:
        write_whole(file, "".join(f"{line}\n" for line in lines[:-1]))
    return windows
