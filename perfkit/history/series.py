"""The series of a history: what makes results comparable over time, and what a history stores of one. Pure."""

import dataclasses
import hashlib
import json
from collections.abc import Iterator, Mapping
from typing import Any, Literal

from perfkit.result.fingerprint import commit_of, fingerprint, host_of
from perfkit.result.json_file import as_mapping
from perfkit.result.model import Point, Result

Kind = Literal["result", "canary"]
"""Figures of results, or the noise that gates of a server against itself have measured."""
Unit = Literal["per_s", "ns", "share"]
_DIGEST_LENGTH = 12


@dataclasses.dataclass(frozen=True, slots=True, order=True)
class Series:
    """The identity of a series: results that differ in one of these are not compared over time. Texts are empty if unknown."""

    scenario: str
    kind: Kind = "result"
    branch: str = ""
    machine: str = ""
    """The host's id, or the name that was given for several hosts of one kind."""
    model: str = ""
    """Name and version."""
    payload: str = ""
    """The beginning of the digest of the requests' payload."""

    @property
    def place(self) -> str:
        """Branch and machine in words."""
        return f"{self.branch or 'unknown branch'}, {self.machine or 'unknown machine'}"


@dataclasses.dataclass(frozen=True, slots=True)
class HistoryEntry:
    """One result of a history."""

    started_at: str
    commit: str
    host_id: str
    fingerprint: dict[str, Any]
    source: str
    """The path that it was added from."""


@dataclasses.dataclass(frozen=True, slots=True)
class Figure:
    """One value of a result; above zero."""

    load_point: str
    metric: str
    unit: Unit
    value: float
    is_valid: bool = True


@dataclasses.dataclass(frozen=True, slots=True)
class HistoryRecord:
    """A result as a history stores it."""

    series: Series
    status: str
    entry: HistoryEntry
    figures: tuple[Figure, ...]


def record_of_result(result: Result, source: str, *, branch: str = "", machine: str = "") -> HistoryRecord:
    """What a history stores of a result; `branch` and `machine` replace those that the result names."""
    facts = fingerprint(result)
    own_branch = str(as_mapping(result.environment.get("source")).get("branch") or "")
    series = Series(
        scenario=str(result.scenario.get("name") or "result"),
        branch=branch or ("" if own_branch == "HEAD" else own_branch),  # git's word where no branch is checked out
        machine=machine or host_of(result),
        model=model_of(facts),
        payload=payload_of(facts),
    )
    entry = HistoryEntry(result.started_at, commit_of(result), host_of(result), facts, source)
    return HistoryRecord(series, result.status, entry, tuple(figure for point in result.summary for figure in _figures(point)))


def model_of(facts: Mapping[str, Any]) -> str:
    """Name and version of a fingerprint's model; empty if unknown."""
    model = facts.get("model")
    return " ".join(str(part) for part in model if part) if isinstance(model, list) else ""


def payload_of(facts: Mapping[str, Any]) -> str:
    """The beginning of the digest of a fingerprint's payload, over its protocols; empty if unknown."""
    payload = as_mapping(facts.get("payload"))
    if not any(payload.values()):
        return ""
    return hashlib.sha256(json.dumps(payload, sort_keys=True).encode()).hexdigest()[:_DIGEST_LENGTH]


def _figures(point: Point) -> Iterator[Figure]:
    for name, (unit, value) in point.compared().items():
        if value and unit in ("per_s", "ns"):
            yield Figure(point.title, name, unit, float(value), point.valid)
