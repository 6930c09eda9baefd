"""The folder of a paired gate: `DIR.partial` while pairs are measured, `DIR` with `verdict.json` when the verdict is known."""

import json
import pathlib
import shutil
from collections.abc import Iterator, Sequence
from typing import Annotated, Any, TypeVar

import pydantic
from pydantic import Field

from perfkit.errors import MeasurementError, ResultError
from perfkit.gate.pairs import Pair
from perfkit.gate.verdict import SCHEMA as VERDICT_SCHEMA
from perfkit.gate.verdict import Timing, Verdict
from perfkit.result.atomic_write import put_in_place, write_whole
from perfkit.result.checks import HIGHEST_RATE_PER_S, refuse
from perfkit.result.json_file import read_json
from perfkit.result.output_folder import ensure_writable
from perfkit.result.part import Part

_T = TypeVar("_T")
SCHEMA = "perfkit.gate/1"
MANIFEST_FILE, PAIRS_FILE, VERDICT_FILE, RUNS_FOLDER = "plan.json", "pairs.json", "verdict.json", "runs"


class GateInputs(Part):
    """The inputs of a gate; an interrupted gate continues only with the same inputs."""

    scenario: dict[str, Any]
    baseline: str
    candidate: str
    pairs: int | None = None
    """The pairs of the last look; None for the default, or for as many as the time allows."""
    time_limit_ns: int | None = None
    """The time for the whole gate; None for as long as it takes."""
    control_pairs: int
    perfkit: str
    """The version: another one may define its metrics differently."""


class FixedSettings(Part):
    """The settings that are fixed before the first pair and hold for all of them."""

    warmup_ns: int
    window_ns: int | None
    concurrency: int | None = None
    """The concurrency of the standard profile's closed loop."""
    rate_per_s: float | None = None
    """The rate of the standard profile's open loop."""
    capacity_per_s: float | None = None
    """The baseline's throughput at saturation, from which the rate is derived."""
    pairs: int | None = None
    """The pairs of the last look, if they are not the default."""
    timing: Timing | None = None
    """How window and pairs were chosen."""
    notes: tuple[str, ...] = ()
    environment: dict[str, Any] = Field(default_factory=dict)
    """The load generator's environment, and what each server reports about itself."""


class GateManifest(Part):
    """The manifest of a gate, `plan.json`."""

    schema_version: Annotated[str, Field(alias="schema")] = SCHEMA
    inputs: Annotated[GateInputs, Field(alias="asked")]
    seed: int
    started_at: str
    files: dict[str, str] = Field(default_factory=dict)
    """The files that the arms' commands name, with their state; see `Arm.files`."""
    settings: Annotated[FixedSettings | None, Field(alias="fixed")] = None


class GateFolder:
    """Stores the progress of a gate; an interrupted gate with the same folder continues from there.

    Raises ResultError if the folder holds something else, or the pairs of another gate.
    """

    def __init__(self, folder: pathlib.Path, manifest: GateManifest) -> None:
        self.folder = folder
        self._resolved = folder.resolve()
        self.partial = self._resolved.with_name(self._resolved.name + ".partial")
        self.manifest, self.pairs = manifest, list[Pair]()
        try:
            if folder.exists() and any(folder.iterdir()) and not (folder / VERDICT_FILE).exists():
                raise ResultError(f"--out {folder}: this folder exists and is not a gate's; give another one")
            if (self.partial / MANIFEST_FILE).exists():
                ensure_writable(self.partial, folder)
                if self._continues_from_partial():
                    return
                shutil.rmtree(self.partial)
            if self.partial.exists() and any(self.partial.iterdir()):
                raise ResultError(f"--out {folder}: {self.partial} exists and is not a gate's folder; give another --out")
            self.runs.mkdir(parents=True, exist_ok=True)
            ensure_writable(self.partial, folder)
        except OSError as error:
            raise ResultError(f"--out {folder}: cannot be written: {error.strerror}") from None
        self._write_manifest()

    @property
    def runs(self) -> pathlib.Path:
        """The folder of all runs' result folders."""
        return self.partial / RUNS_FOLDER

    def fix(self, settings: FixedSettings) -> None:
        """Store the settings that hold for all pairs."""
        self.manifest = self.manifest.model_copy(update={"settings": settings})
        self._write_manifest()

    def add(self, pair: Pair) -> None:
        """Store a measured pair."""
        self.pairs.append(pair)
        self._write(PAIRS_FILE, [stored.document() for stored in self.pairs])

    def commit(self, verdict: Verdict) -> pathlib.Path:
        """Add the verdict and rename the folder to its final name, replacing an earlier gate's."""
        self._write(VERDICT_FILE, verdict.document())
        try:
            put_in_place(self.partial, self._resolved)
        except OSError as error:
            raise MeasurementError(f"{self._resolved} cannot be written: {error.strerror}; the verdict is in {self.partial}") from None
        return self.folder

    def note(self, verdict: Verdict) -> None:
        """Store why there is no verdict yet; a gate that continues replaces it."""
        self._write(VERDICT_FILE, verdict.document())

    def _continues_from_partial(self) -> bool:
        """Take over an unfinished gate; False if it is another one without any pair, such as one whose command was wrong."""
        stored = self._read(MANIFEST_FILE, pydantic.TypeAdapter(GateManifest))
        if problem := self._difference(stored):
            if not (self.partial / PAIRS_FILE).exists():
                return False
            raise ResultError(f"--out {self.folder}: {self.partial} holds an unfinished gate{problem}")
        refuse(self.partial / MANIFEST_FILE, _settings_problems(stored.settings))
        self.manifest = stored
        if (self.partial / PAIRS_FILE).exists():
            self.pairs = self._read(PAIRS_FILE, pydantic.TypeAdapter(list[Pair]))
            refuse(self.partial / PAIRS_FILE, _pair_problems(self.pairs))
        return True

    def _difference(self, stored: GateManifest) -> str:
        """Why the stored gate is another one, as the end of a sentence; empty if it is the same."""
        inputs = self.manifest.inputs
        if changed := [name for name in GateInputs.model_fields if getattr(stored.inputs, name) != getattr(inputs, name)]:
            return f" with different inputs ({', '.join(changed)}): give the same inputs to continue it, remove it, or give another --out"
        for file, state in self.manifest.files.items():
            if stored.files.get(file, state) != state:
                return f", and {file} has changed since, so its pairs are of another server: remove it, or give another --out"
        return ""

    def _read(self, name: str, adapter: pydantic.TypeAdapter[_T]) -> _T:
        file = self.partial / name
        try:
            document = read_json(file)
            _refuse_newer(file, document, SCHEMA)
            return adapter.validate_python(document)
        except ResultError as error:
            raise ResultError(f"{error}; remove {self.partial} to start over") from None
        except (OSError, ValueError) as error:
            first = str(error).splitlines()[0]
            raise ResultError(f"{file}: cannot be read: {first}; remove {self.partial} to start over") from None

    def _write_manifest(self) -> None:
        self._write(MANIFEST_FILE, self.manifest.document())

    def _write(self, name: str, document: Any) -> None:
        try:
            write_whole(self.partial / name, json.dumps(document, indent=1) + "\n")
        except OSError as error:
            raise MeasurementError(f"{self.partial / name} cannot be written: {error.strerror}") from None


def _settings_problems(settings: FixedSettings | None) -> Iterator[tuple[str, str]]:
    """Settings of an unfinished gate that no gate could have fixed."""
    if settings is not None:
        limits = {
            "warmup_ns": 1e15,
            "window_ns": 1e15,
            "concurrency": 1e6,
            "rate_per_s": HIGHEST_RATE_PER_S,
            "capacity_per_s": HIGHEST_RATE_PER_S,
        }
        for name, highest in limits.items():
            value = getattr(settings, name)
            if value is not None and not (0 < value <= highest or (name == "warmup_ns" and value == 0)):
                yield f"fixed.{name}", f"{value} is not above zero, or more than could be measured"


def _pair_problems(pairs: Sequence[Pair]) -> Iterator[tuple[str, str]]:
    """Figures of stored pairs that no run could have had."""
    for number, pair in enumerate(pairs):
        for arm, run in pair.runs.items():
            for index, point in enumerate(run.points):
                key = f"{number}.{arm}.points.{index}"
                if not 0 <= point.failed <= point.scheduled <= 10**15:
                    yield f"{key}.failed", f"{point.failed} is not a number of the scheduled requests, {point.scheduled}"
                for name, value in point.figures.items():
                    if value is not None and not 0 <= value <= 1e15:
                        yield f"{key}.figures.{name}", f"{value} is below zero, or more than could be measured"


def read_verdict(path: pathlib.Path) -> Verdict:
    """Read the verdict of a gate's folder, or of its file; raises ResultError."""
    file = path / VERDICT_FILE if path.is_dir() else path
    try:
        document = read_json(file)
    except FileNotFoundError:
        raise ResultError(f"{file}: cannot be read: No such file or directory") from None
    _refuse_newer(file, document, VERDICT_SCHEMA)
    try:
        verdict = Verdict.model_validate(document)
    except ValueError as error:
        raise ResultError(f"{file}: is not a verdict: {str(error).splitlines()[0]}") from None
    refuse(file, _problems(verdict))
    return verdict


def _problems(verdict: Verdict) -> Iterator[tuple[str, str]]:
    """Figures of a verdict that no gate could have written."""
    for name, comparisons in (("comparisons", verdict.comparisons), ("control", verdict.control)):
        for index, one in enumerate(comparisons):
            key, highest = f"{name}.{index}", 1.0 if one.unit == "share" else 1e15
            sides = {"baseline_values": one.baseline_values, "candidate_values": one.candidate_values}
            for side, values in {**sides, "baseline": (one.baseline,), "candidate": (one.candidate,)}.items():
                if any(value is not None and not 0 <= value <= highest for value in values):
                    yield f"{key}.{side}", "a figure is below zero, or more than could be measured"
            if verdict.mode == "paired" and len(one.baseline_values) != len(one.candidate_values):
                yield f"{key}.candidate_values", "each pair has a value of the baseline and one of the candidate"
            if not (0 < one.confidence < 1 and (one.adjusted_p is None or 0 <= one.adjusted_p <= 1)):
                yield f"{key}.confidence", "a probability lies between 0 and 1"


def _refuse_newer(file: pathlib.Path, document: object, schema: str) -> None:
    found = document.get("schema", schema) if isinstance(document, dict) else schema
    if found != schema:
        raise ResultError(f"{file}: this perfkit reads {schema}, found {found!r}: a newer perfkit may read it")
