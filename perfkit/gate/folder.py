"""The folder of a gate: its plan and its pairs while it goes on, in `DIR.partial`, and the verdict when it is put in its place."""

import json
import pathlib
import shutil
from typing import Annotated, Any, TypeVar

import pydantic
from pydantic import ConfigDict, Field

from perfkit.errors import MeasurementError, ResultError
from perfkit.gate.pairs import Pair
from perfkit.gate.verdict import SCHEMA as VERDICT_SCHEMA
from perfkit.gate.verdict import Verdict, verdict_document
from perfkit.result.atomic_write import put_in_place, write_whole
from perfkit.result.model import Part

_T = TypeVar("_T")
SCHEMA = "perfkit.gate/1"
MANIFEST_FILE, PAIRS_FILE, VERDICT_FILE, RUNS_FOLDER = "plan.json", "pairs.json", "verdict.json", "runs"


class GateInputs(Part):
    """What a gate was asked to do: one that goes on must have been asked the same."""

    scenario: dict[str, Any]
    baseline: str
    candidate: str
    quick: bool
    control_pairs: int
    perfkit: str
    """Its version: another may define its metrics otherwise."""


class FixedSettings(Part):
    """What was settled before the first pair, and holds for all of them."""

    warmup_ns: int
    window_ns: int | None
    concurrency: int | None = None
    """Of the standard profile's closed loop."""
    rate_per_s: float | None = None
    """Of its open one."""
    capacity_per_s: float | None = None
    """The baseline's, from which the rate was made."""
    notes: tuple[str, ...] = ()
    environment: dict[str, Any] = Field(default_factory=dict)
    """The load generator's, and what each server said of itself."""


class GateManifest(Part):
    """A gate's plan, which its pairs stand beside."""

    schema_version: Annotated[str, Field(alias="schema")] = SCHEMA
    asked: GateInputs
    seed: int
    started_at: str
    files: dict[str, str] = Field(default_factory=dict)
    """Of the arms' commands; see `Arm.files`."""
    fixed: FixedSettings | None = None

    model_config = ConfigDict(frozen=True, extra="ignore", populate_by_name=True)


class GateFolder:
    """Keeps what a gate has come to; a gate that was interrupted finds it there, and goes on.

    Raises ResultError where the place is taken by something else, or what is there is another gate's.
    """

    def __init__(self, folder: pathlib.Path, plan: GateManifest) -> None:
        self.folder = folder
        self._place = folder.resolve()
        self.partial = self._place.with_name(self._place.name + ".partial")
        self.plan, self.pairs = plan, list[Pair]()
        try:
            if folder.exists() and any(folder.iterdir()) and not (folder / VERDICT_FILE).exists():
                raise ResultError(f"--out {folder}: this is there already, and is no gate's folder; give another one")
            if (self.partial / MANIFEST_FILE).exists():
                self._go_on(plan)
                return
            if self.partial.exists() and any(self.partial.iterdir()):
                raise ResultError(f"--out {folder}: {self.partial} is there already, and is no gate's folder; give another one")
            self.runs.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise ResultError(f"--out {folder}: cannot be written: {error.strerror}") from None
        self._write(MANIFEST_FILE, plan.model_dump(mode="json", by_alias=True))

    @property
    def runs(self) -> pathlib.Path:
        """Where the result folders of all runs stand."""
        return self.partial / RUNS_FOLDER

    def fix(self, fixed: FixedSettings) -> None:
        """Keeps what was settled before the first pair."""
        self.plan = self.plan.model_copy(update={"fixed": fixed})
        self._write(MANIFEST_FILE, self.plan.model_dump(mode="json", by_alias=True))

    def add(self, pair: Pair) -> None:
        """Keeps a pair that was measured."""
        self.pairs.append(pair)
        self._write(PAIRS_FILE, [one.model_dump(mode="json") for one in self.pairs])

    def commit(self, verdict: Verdict) -> pathlib.Path:
        """Adds the verdict, and puts the folder in its place, replacing an earlier gate's."""
        self._write(VERDICT_FILE, verdict_document(verdict))
        try:
            put_in_place(self.partial, self._place)
        except OSError as error:
            raise MeasurementError(f"{self._place} cannot be written: {error.strerror}; the verdict is in {self.partial}") from None
        return self.folder

    def discard_unless_begun(self) -> bool:
        """Leaves nothing behind where no pair was measured; says whether something is left to go on from."""
        if not self.pairs:
            shutil.rmtree(self.partial, ignore_errors=True)
        return bool(self.pairs)

    def _go_on(self, plan: GateManifest) -> None:
        kept = self._read(MANIFEST_FILE, pydantic.TypeAdapter(GateManifest))
        if kept.asked != plan.asked:
            changed = [name for name in GateInputs.model_fields if getattr(kept.asked, name) != getattr(plan.asked, name)]
            raise ResultError(
                f"--out {self.folder}: {self.partial} holds a gate that is not finished, and was asked something else ({', '.join(changed)}): "
                "ask the same to go on with it, remove it, or give another --out"
            )
        for file in kept.files:
            if file in plan.files and plan.files[file] != kept.files[file]:
                raise ResultError(
                    f"--out {self.folder}: {self.partial} holds a gate that is not finished, and {file} has changed since: its pairs are of "
                    "another server; remove it, or give another --out"
                )
        self.plan = kept
        if (self.partial / PAIRS_FILE).exists():
            self.pairs = self._read(PAIRS_FILE, pydantic.TypeAdapter(list[Pair]))

    def _read(self, name: str, kind: pydantic.TypeAdapter[_T]) -> _T:
        file = self.partial / name
        try:
            document = json.loads(file.read_text(encoding="utf-8"))
            _refuse_newer(file, document, SCHEMA)
            return kind.validate_python(document)
        except (OSError, ValueError) as error:
            first = str(error).splitlines()[0]
            raise ResultError(f"{file}: cannot be read: {first}; remove {self.partial} to begin anew") from None

    def _write(self, name: str, document: Any) -> None:
        try:
            write_whole(self.partial / name, json.dumps(document, indent=1) + "\n")
        except OSError as error:
            raise MeasurementError(f"{self.partial / name} cannot be written: {error.strerror}") from None


def read_verdict(path: pathlib.Path) -> Verdict:
    """The verdict in a gate's folder, or in its file; raises ResultError."""
    file = path / VERDICT_FILE if path.is_dir() else path
    try:
        document = json.loads(file.read_text(encoding="utf-8"))
        _refuse_newer(file, document, VERDICT_SCHEMA)
        return Verdict.model_validate(document)
    except OSError as error:
        raise ResultError(f"{file}: cannot be read: {error.strerror}") from None
    except ValueError as error:
        raise ResultError(f"{file}: is no verdict: {str(error).splitlines()[0]}") from None


def _refuse_newer(file: pathlib.Path, document: object, schema: str) -> None:
    found = document.get("schema", schema) if isinstance(document, dict) else schema
    if found != schema:
        raise ResultError(f"{file}: this perfkit reads {schema}, found {found!r}: a newer perfkit may read it")
