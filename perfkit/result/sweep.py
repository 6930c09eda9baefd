"""The folder of a sweep: a result folder for each combination, and `sweep.json`, which says which is which."""

import hashlib
import json
import pathlib
import re
from collections.abc import Mapping, Sequence
from typing import Any, Literal

import pydantic

from perfkit.errors import MeasurementError, ResultError
from perfkit.result.atomic_write import write_whole
from perfkit.result.file import RESULT_FILE, read_result
from perfkit.result.model import Part

SCHEMA, SWEEP_FILE = "perfkit.sweep/1", "sweep.json"
CaseStatus = Literal["pending", "complete", "interrupted", "incomplete", "invalid", "failed"]


class SweepCase(Part):
    """One combination, and what became of it; `failed` means that nothing could be measured."""

    values: dict[str, Any]
    folder: str
    """Below the sweep's folder."""
    scenario_sha256: str
    status: CaseStatus = "pending"
    reason: str = ""


class SweepDocument(Part):
    """What `sweep.json` holds."""

    schema_version: str = pydantic.Field(default=SCHEMA, alias="schema")
    name: str
    cases: tuple[SweepCase, ...]

    model_config = pydantic.ConfigDict(frozen=True, extra="ignore", populate_by_name=True)


def scenario_sha256(document: Mapping[str, Any]) -> str:
    """The digest of a scenario as results keep it: defaults filled in, secrets left out. What files hold that it names is no part of it."""
    return hashlib.sha256(json.dumps(document, sort_keys=True).encode()).hexdigest()


def folder_names(cases: Sequence[Mapping[str, Any]]) -> list[str]:
    """A folder's name for each combination: `batch_size=4_threads=2`, with a number where names would meet."""
    names: list[str] = []
    for values in cases:
        parts = [f"{key.rpartition('.')[2]}={shown_value(value)}" for key, value in values.items()]
        name = re.sub(r"[^\w.=-]+", "-", "_".join(parts)).strip("-.")[:80] or "case"
        names.append(name if name not in names else f"{name}-{len(names) + 1}")
    return names


def shown_value(value: object) -> str:
    """A swept value as people read it."""
    if isinstance(value, str):
        return value
    if isinstance(value, list) and all(isinstance(one, int | float | str) for one in value):
        return ",".join(map(str, value))
    return json.dumps(value, default=str)


class SweepFolder:
    """Writes a sweep's folder; what an earlier run of the same scenarios completed there is kept.

    Raises ResultError where the place is taken by something that is no sweep.
    """

    def __init__(self, folder: pathlib.Path, name: str, cases: Sequence[tuple[Mapping[str, Any], Mapping[str, Any]]]) -> None:
        """`cases` are pairs of the swept values and the scenario's document."""
        self.folder = folder
        names = folder_names([values for values, _ in cases])
        self.document = SweepDocument(
            name=name,
            cases=tuple(
                SweepCase(values=dict(values), folder=its_folder, scenario_sha256=scenario_sha256(document))
                for its_folder, (values, document) in zip(names, cases, strict=True)
            ),
        )
        try:
            if folder.exists() and not (folder / SWEEP_FILE).exists() and (not folder.is_dir() or any(folder.iterdir())):
                raise ResultError(f"--out {folder}: this is there already, and is no sweep's folder; give another one")
            folder.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise ResultError(f"--out {folder}: cannot be written: {error.strerror}") from None
        for index, case in enumerate(self.document.cases):
            if _is_measured(folder / case.folder, case.scenario_sha256):
                self._replace(index, "complete", "")
        self._save()

    def pending(self) -> list[int]:
        """The cases that are still to be measured, by number from 0."""
        return [index for index, case in enumerate(self.document.cases) if case.status != "complete"]

    def record(self, index: int, status: CaseStatus, reason: str = "") -> None:
        """Writes what became of a case."""
        self._replace(index, status, reason)
        self._save()

    def _replace(self, index: int, status: CaseStatus, reason: str) -> None:
        cases = list(self.document.cases)
        cases[index] = cases[index].model_copy(update={"status": status, "reason": reason})
        self.document = self.document.model_copy(update={"cases": tuple(cases)})

    def _save(self) -> None:
        try:
            write_whole(self.folder / SWEEP_FILE, json.dumps(sweep_document(self.document), indent=1) + "\n")
        except OSError as error:
            raise MeasurementError(f"{self.folder} cannot be written: {error.strerror}") from None


def sweep_document(sweep: SweepDocument) -> dict[str, Any]:
    """A sweep as plain values."""
    return sweep.model_dump(mode="json", by_alias=True)


def read_sweep(folder: pathlib.Path) -> SweepDocument:
    """The sweep of a folder; raises ResultError."""
    file = folder / SWEEP_FILE
    try:
        document = json.loads(file.read_text(encoding="utf-8"))
        schema = document.get("schema") if isinstance(document, dict) else None
        if schema != SCHEMA:
            raise ResultError(f"{file}: this perfkit reads {SCHEMA}, found {schema!r}: a newer perfkit may read it")
        return SweepDocument.model_validate(document)
    except (OSError, ValueError, RecursionError) as error:
        raise ResultError(f"{file}: cannot be read: {error}") from None


def result_folders(path: pathlib.Path) -> list[pathlib.Path]:
    """The result folders that a path stands for: itself, or those of a sweep that hold a result. Raises ResultError."""
    return [folder for _, folder in configurations(path)]


def configurations(path: pathlib.Path) -> list[tuple[str, pathlib.Path]]:
    """The results that a path stands for, as `result_folders`, each with what tells its configuration from the sweep's others.

    That are the swept values but those of the load and of how it is measured; empty where there are none.
    """
    if not (path / SWEEP_FILE).is_file():
        return [("", path)]
    found = []
    for case in read_sweep(path).cases:
        told = [f"{key}={shown_value(value)}" for key, value in case.values.items() if key.partition(".")[0] not in ("load", "measure")]
        if case.status not in ("pending", "failed") and (path / case.folder / RESULT_FILE).is_file():
            found.append((", ".join(told), path / case.folder))
    if not found:
        raise ResultError(f"{path}: no case of this sweep is measured yet")
    return found


def _is_measured(folder: pathlib.Path, sha256: str) -> bool:
    try:
        result, _ = read_result(folder)
    except ResultError:
        return False
    return result.status == "complete" and scenario_sha256(result.scenario) == sha256
