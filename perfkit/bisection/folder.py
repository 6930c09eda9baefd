"""The folder of a bisection: its progress while it lasts, `bisection.json` when it has ended.

It has its final name from the start, since what is built in its worktrees may contain their paths.
"""

import json
import pathlib
from typing import Annotated, Any, Literal, Self

from pydantic import Field, model_validator

from perfkit.bisection.revisions import Revision
from perfkit.bisection.search import LOOKS, Outcome
from perfkit.errors import MeasurementError, ResultError
from perfkit.result.output_folder import ensure_writable, write_whole
from perfkit.result.part import Part, read_part

SCHEMA = "perfkit.bisection/1"

BisectionKind = Literal["found", "inconclusive", "incomparable", "invalid"]
Interval = tuple[float | None, float | None]
Scale = Literal["ratio", "difference"]


class Regression(Part):
    """How much slower the bad revision is than the good one, in the metric that decides every later gate."""

    metric: str
    """`throughput`, `p50`, `p95`, `p99`, `error_rate`."""
    load_point: str
    """Protocol and load in words."""
    unit: Literal["per_s", "ns", "share", "count"]
    scale: Scale
    """Whether changes are ratios or differences."""
    pairs: int
    """The number of pairs of the first gate."""
    estimate: float
    """The bad revision's change, the Hodges-Lehmann estimate over the pairs."""
    interval: Interval
    """The interval of the estimate."""
    confidence: float
    """The confidence of the interval, and of the gates' intervals."""
    threshold: float
    """A revision that is worse than this is slower, any other is not; on the scale."""
    regressed: tuple[str, ...]
    """All metrics in which the bad revision has regressed, as `metric, load point`."""


class RevisionGate(Part):
    """What a gate says of one revision between the good and the bad one, measured against the good one."""

    position: int
    """Counts the revisions after the good one from 1."""
    revision: Revision
    """The commit."""
    outcome: Outcome
    """On which side of the threshold it is, or why that is unknown."""
    reason: str
    """A sentence."""
    pairs: int = 0
    estimate: float | None = None
    """The revision's change, the Hodges-Lehmann estimate over the pairs; None if it was skipped."""
    interval: Interval | None = None
    """The interval of the estimate."""


class Bisection(Part):
    """The outcome of a bisection."""

    schema_version: Annotated[str, Field(alias="schema")] = SCHEMA
    kind: BisectionKind
    reasons: tuple[str, ...]
    """Sentences; the first one is the summary."""
    scenario: str
    """The scenario's name."""
    build: str | None
    """The command that builds a revision."""
    serve: str
    """The command that serves it."""
    good: Revision
    """The older one, against which all others are measured."""
    bad: Revision
    """The last one, which should be slower."""
    revisions: int
    """The number of revisions after the good one, up to the bad one."""
    regression: Regression | None = None
    """None if none was shown."""
    gates: tuple[RevisionGate, ...] = ()
    """In the order of measurement, without the first gate, which compares the good revision with the bad one."""
    first_slower: Revision | None = None
    """The first slower revision, if it was found."""
    change: float | None = None
    """The change of the first slower revision against the good one."""
    interval: Interval | None = None
    """The interval of the change."""
    step: float | None = None
    """The change of the first slower revision against the one before it, from the estimates of both."""
    suspects: tuple[Revision, ...] = ()
    """The revisions among which the first slower one is."""
    error_rate: float | None = None
    """Upper bound on the probability that the answer is wrong; None without a regression."""
    started_at: str
    perfkit_version: str = ""
    """The version of perfkit."""
    environment: dict[str, Any] = Field(default_factory=dict)
    """The load generator's environment in the first gate, and what each server reports about itself."""


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

    @model_validator(mode="after")
    def _check_positions(self) -> Self:
        positions = [gate.position for gate in self.gates]
        if len(set(positions)) < len(positions) or any(position < 1 for position in positions):
            raise ValueError("each revision after the good one is measured once")
        return self


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
            stored = read_part(file, Progress, PROGRESS_SCHEMA)
        except ResultError as error:
            raise ResultError(f"{error}; remove {self.folder} to start over") from None
        if stored.inputs != self.progress.inputs:
            names = BisectionInputs.model_fields
            changed = [name for name in names if getattr(stored.inputs, name) != getattr(self.progress.inputs, name)]
            raise ResultError(
                f"--out {self.folder}: it holds an unfinished bisection with different inputs ({', '.join(changed)}): give the same inputs to "
                "continue it, remove it, or give another --out"
            )
        self.progress = stored

    def _write(self, name: str, document: Any) -> None:
        try:
            write_whole(self.folder / name, json.dumps(document, indent=1) + "\n")
        except OSError as error:
            raise MeasurementError(f"{self.folder / name} cannot be written: {error.strerror}") from None
