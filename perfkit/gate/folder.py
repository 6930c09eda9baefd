"""The folder of a paired gate: `DIR.partial` while pairs are measured, `DIR` with `verdict.json` when the verdict is known.

Its manifest, `gate.json`, holds what was asked, what its trial fixed, and how often it was continued.
"""

import contextlib
import itertools
import json
import pathlib
import re
import shutil
from collections.abc import Sequence
from typing import Annotated, Any, TypeVar

from pydantic import AfterValidator, Field

from perfkit.clock import parse_instant, utc_now
from perfkit.errors import MeasurementError, ResultError
from perfkit.gate.pairs import Pair
from perfkit.gate.sentences import resumption_of
from perfkit.gate.verdict import MOST, GateResumption, Seconds, Timing, Verdict
from perfkit.gate.verdict import SCHEMA as VERDICT_SCHEMA
from perfkit.history.accepted import AcceptedChange
from perfkit.result.checks import HIGHEST_RATE_PER_S
from perfkit.result.fingerprint import scenario_differences
from perfkit.result.output_folder import ensure_writable, put_in_place, write_whole
from perfkit.result.part import Part, read_part

SCHEMA = "perfkit.gate/1"
_MOST_KEYS = 5
_Rate = Annotated[float, Field(gt=0, le=HIGHEST_RATE_PER_S)]


def _check_instant(text: str) -> str:
    try:
        parse_instant(text)
    except ValueError:
        raise ValueError(f"{text[:50]!r} is no instant") from None
    return text


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
    accepted: tuple[AcceptedChange, ...] = ()
    """The accepted changes of the scenario."""
    perfkit: str
    """The version: another one may define its metrics differently."""


class FixedSettings(Part):
    """The settings that are fixed before the first pair and hold for all of them."""

    warmup_ns: Annotated[int, Field(ge=0, le=MOST)]
    window_ns: Annotated[int, Field(gt=0, le=MOST)] | None
    """The window in nanoseconds; null where a number of requests ends it."""
    concurrency: Annotated[int, Field(gt=0, le=10**6)] | None = None
    """The concurrency of the standard profile's closed loop."""
    rate_per_s: _Rate | None = None
    """The rate of the standard profile's open loop."""
    capacity_per_s: _Rate | None = None
    """The baseline's throughput at saturation, from which the rate is derived."""
    pairs: int | None = None
    """The pairs of the last look, if they are not the default."""
    timing: Timing | None = None
    """How window and pairs were chosen."""
    trial_s: Seconds = 0.0
    """How long the trial took."""
    ended_at: str = ""
    """The wall-clock time of the trial's end."""
    notes: tuple[str, ...] = ()
    environment: dict[str, Any] = Field(default_factory=dict)
    """The load generator's environment, and what each server reports about itself."""


class GateManifest(Part):
    """The manifest of a gate, `gate.json`."""

    schema_version: Annotated[str, Field(alias="schema")] = SCHEMA
    inputs: Annotated[GateInputs, Field(alias="asked")]
    seed: int
    started_at: Annotated[str, AfterValidator(_check_instant)]
    files: dict[str, str] = Field(default_factory=dict)
    """The files that the arms' commands name, with their state; see `Arm.files`."""
    settings: Annotated[FixedSettings | None, Field(alias="fixed")] = None
    """What was fixed before the first pair; null until then."""
    resumptions: tuple[GateResumption, ...] = ()
    """Each time that the gate was interrupted, killed or failed, and then continued."""


def manifest_difference(stored: GateManifest, wanted: GateManifest) -> str:
    """Why the stored gate is another one, as the end of a sentence; empty if it is the same."""
    documents = stored.inputs.document(), wanted.inputs.document()
    changed = [name for name in GateInputs.model_fields if documents[0][name] != documents[1][name]]
    if changed:
        of_scenario = (
            [one.key for one in scenario_differences(stored.inputs.scenario, wanted.inputs.scenario)] if "scenario" in changed else []
        )
        keys = [*of_scenario[:_MOST_KEYS], *([f"{len(of_scenario) - _MOST_KEYS} more keys"] if len(of_scenario) > _MOST_KEYS else [])]
        shown = ", ".join([*keys, *(name for name in changed if name != "scenario" or not keys)])
        return f" with different inputs ({shown}): give the same inputs to continue it, remove it, or give another --out"
    for file, state in wanted.files.items():
        if stored.files.get(file, state) != state:
            return f", and {file} has changed since, so its pairs are of another server: remove it, or give another --out"
    return ""


_T = TypeVar("_T")
_OF_PAIR = re.compile(r"(\d{3,9})-")
MANIFEST_FILE, PAIRS_FILE, VERDICT_FILE, RUNS_FOLDER = "gate.json", "pairs.json", "verdict.json", "runs"


class GateFolder:
    """Stores the progress of a gate; a gate that ended after its trial continues from there with the same folder.

    Pairs and settings survive a power cut. What a pair that was not whole has measured is set aside, and the manifest says so.

    Raises ResultError if the folder holds something else, or the pairs of another gate.
    """

    def __init__(self, folder: pathlib.Path, manifest: GateManifest) -> None:
        self.folder = folder
        self._resolved = folder.resolve()
        self.partial = self._resolved.with_name(self._resolved.name + ".partial")
        self.manifest, self.pairs = manifest, list[Pair]()
        self.resumption: GateResumption | None = None
        """How this folder's gate continues; None for one that begins."""
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
        self._write(VERDICT_FILE, verdict.document(), survives_power_cut=False)

    def note_changes(self, changes: Sequence[str]) -> None:
        """Store what differs in the environment since the trial, for the resumption under way."""
        assert self.resumption is not None
        self.resumption = self.resumption.model_copy(update={"changes": tuple(dict.fromkeys((*self.resumption.changes, *changes)))})
        self.manifest = self.manifest.model_copy(update={"resumptions": (*self.manifest.resumptions[:-1], self.resumption)})
        self._write_manifest()

    def _continues_from_partial(self) -> bool:
        """Take over an unfinished gate; False for one without pairs that ended in its trial, or is another, such as with a wrong command."""
        stored, has_pairs = _read_manifest(self.partial), (self.partial / PAIRS_FILE).exists()
        problem = manifest_difference(stored, self.manifest)
        if not has_pairs and (problem or stored.settings is None):
            return False
        if problem:
            raise ResultError(f"--out {self.folder}: {self.partial} holds an unfinished gate{problem}")
        self.manifest = stored
        self.pairs = read_pairs(self.partial)
        self._resume()
        return True

    def _resume(self) -> None:
        failure, settings = None, self.manifest.settings
        with contextlib.suppress(ResultError):  # none, if perfkit was killed at once
            failure = read_verdict(self.partial).failure
        ended_at = self.pairs[-1].ended_at if self.pairs else settings.ended_at if settings else ""
        self.resumption = resumption_of(failure, utc_now(), len(self.pairs), ended_at, self._set_aside())
        self.manifest = self.manifest.model_copy(update={"resumptions": (*self.manifest.resumptions, self.resumption)})
        self._write_manifest()

    def _set_aside(self) -> str:
        """Moves what a pair that is not whole has measured to a folder of its own; its name within the gate's, empty if there is nothing."""
        if not self.runs.is_dir():
            return ""
        begun = [one for one in self.runs.iterdir() if (named := _OF_PAIR.match(one.name)) and int(named[1]) >= len(self.pairs)]
        if not begun:
            return ""
        aside = next(one for number in itertools.count(1) if not (one := self.runs / f"unfinished-{number}").exists())
        aside.mkdir()
        for one in begun:
            one.rename(aside / one.name)
        return f"{RUNS_FOLDER}/{aside.name}"

    def _write_manifest(self) -> None:
        self._write(MANIFEST_FILE, self.manifest.document())

    def _write(self, name: str, document: Any, *, survives_power_cut: bool = True) -> None:
        try:
            write_whole(self.partial / name, json.dumps(document, indent=1) + "\n", survives_power_cut=survives_power_cut)
        except OSError as error:
            raise MeasurementError(f"{self.partial / name} cannot be written: {error.strerror}") from None


def complete_verdict(folder: pathlib.Path, manifest: GateManifest) -> Verdict | None:
    """The verdict of a gate that `--resume` finds complete in its folder; None if it has none, or if a later gate there is unfinished.

    Raises ResultError if it is of another gate.
    """
    place = folder.resolve()
    if not (place / VERDICT_FILE).exists() or (place.with_name(place.name + ".partial") / MANIFEST_FILE).exists():
        return None
    if problem := manifest_difference(_read_manifest(place), manifest):
        raise ResultError(f"--resume: {folder} holds a complete gate{problem}")
    return read_verdict(place)


def _read_manifest(folder: pathlib.Path) -> GateManifest:
    return _read_progress(folder / MANIFEST_FILE, GateManifest, SCHEMA)


def _read_progress(file: pathlib.Path, kind: type[_T], schema: str = "") -> _T:
    try:
        return read_part(file, kind, schema)
    except ResultError as error:
        raise ResultError(f"{error}; remove {file.parent} to start over") from None


def read_pairs(folder: pathlib.Path) -> list[Pair]:
    """Read the pairs in a gate's folder, none without their file; raises ResultError."""
    return _read_progress(folder / PAIRS_FILE, list[Pair]) if (folder / PAIRS_FILE).exists() else []


def read_verdict(path: pathlib.Path) -> Verdict:
    """Read the verdict of a gate's folder, or of its file; raises ResultError."""
    return read_part(path / VERDICT_FILE if path.is_dir() else path, Verdict, VERDICT_SCHEMA)
