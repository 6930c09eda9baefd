"""The folder of a sweep: a result folder per combination of values, and `sweep.json`, which lists them."""

import hashlib
import json
import pathlib
import re
from collections.abc import Mapping, Sequence
from typing import Any, Literal

import pydantic

from perfkit.errors import MeasurementError, ResultError
from perfkit.result.file import RESULT_FILE, parse_document, read_result
from perfkit.result.interval_log import check_log
from perfkit.result.json_file import read_json
from perfkit.result.output_folder import INNER_LOCK, ensure_writable, write_whole
from perfkit.result.part import Part

SCHEMA, SWEEP_FILE = "perfkit.sweep/1", "sweep.json"
_CASE_FOLDER = re.compile(r"[\w=-][\w.=-]*")
CaseStatus = Literal["pending", "complete", "unsuccessful", "interrupted", "incomplete", "invalid", "failed"]

_SPOILED = ("unsuccessful", "invalid")


class SweepCase(Part):
    """One combination of swept values, with its status; `failed` means that nothing could be measured."""

    values: dict[str, Any]
    folder: str
    """Relative to the folder of the sweep."""
    scenario_sha256: str
    """The digest of the case's scenario: a case is measured again if it changes."""
    status: CaseStatus = "pending"
    """Whether the case is measured, and how its run ended."""
    reason: str = ""
    interleaved_group: int | None = pydantic.Field(default=None, ge=1)
    """The cases with the same number were measured interleaved on one server, so that a repetition of all took place in the same minutes;
    null for one that was measured alone or not at all."""


class SweepRank(Part):
    """How the cases are ranked: by a figure (None for the default), under constraints besides the SLO."""

    by: str | None = None
    where: tuple[str, ...] = ()


class SweepDocument(Part):
    """The contents of `sweep.json`."""

    schema_version: str = pydantic.Field(default=SCHEMA, alias="schema")
    name: str
    cases: tuple[SweepCase, ...]
    rank: SweepRank = SweepRank()


def scenario_sha256(document: Mapping[str, Any]) -> str:
    """The digest of a scenario as stored in results: with defaults, without secrets and without the contents of files that it names."""
    return hashlib.sha256(json.dumps(document, sort_keys=True).encode()).hexdigest()


def folder_names(cases: Sequence[Mapping[str, Any]]) -> list[str]:
    """A folder name for each combination, such as `batch_size=4_threads=2`; equal names get a number."""
    names: list[str] = []
    for values in cases:
        parts = [f"{key.rpartition('.')[2]}={shown_value(value)}" for key, value in values.items()]
        name = re.sub(r"[^\w.=-]+", "-", "_".join(parts)).strip("-.")[:80] or "case"
        names.append(name if name not in names else f"{name}-{len(names) + 1}")
    return names


def shown_value(value: object) -> str:
    """A swept value as text."""
    if isinstance(value, str):
        return value
    if isinstance(value, list) and all(isinstance(one, int | float | str) for one in value):
        return ",".join(map(str, value))
    return json.dumps(value, default=str)


class SweepFolder:
    """Writes the folder of a sweep, and keeps the cases that an earlier run of the same scenario completed there.

    A case is kept only if its run was complete, its result passes the checks of `read_result` and its log has the times of its points; its group of interleaved
    cases is kept with it. Raises ResultError if the folder has something that is not a sweep.
    """

    def __init__(
        self,
        folder: pathlib.Path,
        name: str,
        cases: Sequence[tuple[Mapping[str, Any], Mapping[str, Any]]],
        rank: SweepRank = SweepRank(),  # noqa: B008 - frozen
    ) -> None:
        """`cases` are pairs of the swept values and the scenario's document."""
        self.folder = folder
        self.refused: list[str] = []
        """Why results that are there, or the groups that they were measured in, are not kept, a sentence each."""
        names = folder_names([values for values, _ in cases])
        self.document = SweepDocument(
            name=name,
            rank=rank,
            cases=tuple(
                SweepCase(values=dict(values), folder=case_folder, scenario_sha256=scenario_sha256(document))
                for case_folder, (values, document) in zip(names, cases, strict=True)
            ),
        )
        try:
            if (
                folder.exists()
                and not (folder / SWEEP_FILE).exists()
                and (not folder.is_dir() or {entry.name for entry in folder.iterdir()} - {INNER_LOCK})
            ):
                raise ResultError(f"--out {folder}: this exists and is not the folder of a sweep; give another one")
            folder.mkdir(parents=True, exist_ok=True)
            ensure_writable(folder, folder)
        except OSError as error:
            raise ResultError(f"--out {folder}: cannot be written: {error.strerror}") from None
        groups = self._stored_groups()
        for index, case in enumerate(self.document.cases):
            try:
                if _is_measured(folder / case.folder, case.scenario_sha256):
                    self._replace(index, status="complete", interleaved_group=groups.get((case.folder, case.scenario_sha256)))
            except ResultError as error:
                self.refused.append(f"{case.folder} is measured again: {error}")
        self._save()

    def pending(self) -> list[int]:
        """The indices of the cases that are not yet complete."""
        return [index for index, case in enumerate(self.document.cases) if case.status != "complete"]

    def record(self, index: int, status: CaseStatus, reason: str = "") -> None:
        """Stores the status of a case."""
        self._replace(index, status=status, reason=reason)
        if status == "failed":
            self._replace(index, interleaved_group=None)
        self._save()

    def record_group(self, indices: Sequence[int]) -> None:
        """Stores that cases are measured interleaved; before they are, so that one that is complete when the run is killed has its group."""
        number = 1 + max((case.interleaved_group or 0 for case in self.document.cases), default=0)
        for index in indices:
            self._replace(index, interleaved_group=number)
        self._save()

    def _stored_groups(self) -> dict[tuple[str, str], int | None]:
        """The groups of interleaved cases that an earlier run stored, by folder and digest of the scenario."""
        if not (self.folder / SWEEP_FILE).exists():
            return {}
        try:
            return {(case.folder, case.scenario_sha256): case.interleaved_group for case in read_sweep(self.folder).cases}
        except ResultError as error:
            self.refused.append(f"which cases were measured interleaved is not known: {error}")
            return {}

    def _replace(self, index: int, **changes: CaseStatus | str | int | None) -> None:
        cases = list(self.document.cases)
        cases[index] = cases[index].model_copy(update=changes)
        self.document = self.document.model_copy(update={"cases": tuple(cases)})

    def _save(self) -> None:
        try:
            write_whole(self.folder / SWEEP_FILE, json.dumps(self.document.document(), indent=1) + "\n")
        except OSError as error:
            raise MeasurementError(f"{self.folder} cannot be written: {error.strerror}") from None


def read_sweep(folder: pathlib.Path) -> SweepDocument:
    """The sweep of a folder; raises ResultError."""
    file = folder / SWEEP_FILE
    try:
        document = read_json(file)
    except FileNotFoundError:
        raise ResultError(f"{file}: cannot be read: no such file") from None
    sweep = parse_document(file, document, SweepDocument, SCHEMA)
    for number, case in enumerate(sweep.cases):
        if _CASE_FOLDER.fullmatch(case.folder) is None:
            raise ResultError(f"{file}: cases.{number}.folder: expected the name of a folder beside this file, found {case.folder[:100]!r}")
    return sweep


def result_folders(path: pathlib.Path) -> list[pathlib.Path]:
    """The result folders at a path: the path itself, or those of a sweep that have a result. Raises ResultError."""
    return [folder for _, folder in configurations(path)]


def configurations(path: pathlib.Path) -> list[tuple[str, pathlib.Path]]:
    """The result folders at a path, as `result_folders`, each with the name of its configuration.

    The name lists the swept values except those of `load` and `measure`, such as `server.threads=2`; it is empty without any.
    """
    if not (path / SWEEP_FILE).is_file():
        return [("", path)]
    folders = []
    for case in read_sweep(path).cases:
        swept = [f"{key}={shown_value(value)}" for key, value in case.values.items() if key.partition(".")[0] not in ("load", "measure")]
        if case.status not in ("pending", "failed") and (path / case.folder / RESULT_FILE).is_file():
            folders.append((", ".join(swept), path / case.folder))
    if not folders:
        raise ResultError(f"{path}: no case of this sweep is measured yet")
    return folders


def _is_measured(folder: pathlib.Path, sha256: str) -> bool:
    """Whether a folder has the complete result of a scenario; raises ResultError for one that cannot be believed, or says little of the target."""
    if not (folder / RESULT_FILE).exists():
        return False
    result, _ = read_result(folder)
    if scenario_sha256(result.scenario) != sha256:
        return False
    if result.status in _SPOILED:
        raise ResultError(f"its run ended {result.status}: {result.status_reason}")
    if result.status != "complete":
        return False
    check_log(folder, result)
    return True
