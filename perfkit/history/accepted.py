"""Accepted changes, `perfkit.accepted/1`: known slowdowns that people have agreed to, in a reviewed YAML file.

Gates judge an accepted metric against the accepted slowdown; histories take the change for a known one.
"""

import dataclasses
import pathlib
import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Annotated, Any

from pydantic import BeforeValidator, Field, PlainSerializer

from perfkit.clock import Date, parse_date
from perfkit.errors import ResultError, ScenarioError, UsageError, suggestion
from perfkit.input_file import read_bounded
from perfkit.result.output_folder import write_whole
from perfkit.result.part import Part
from perfkit.scenario.origins import KeyPath, Origins, dotted, origin_of
from perfkit.scenario.yaml_values import MAX_DOCUMENT_BYTES, parse_yaml

SCHEMA = "perfkit.accepted/1"
ACCEPTED_FILE = "perfkit-accepted.yaml"
LARGEST_SLOWDOWN = 10.0
STANDARD_LOADS = {"closed": "saturation", "open": "70 % of the capacity"}
"""The names of the standard profile's loads, whose concurrency and rate follow from each gate's trial."""
_HEADER = """\
# Known and accepted changes. `perfkit gate accept` writes this file (other comments are not kept); `perfkit gate` and
# `perfkit history` read it. An entry counts through the day of `expires`; remove it when the slowdown is gone.
"""
_PERCENT = re.compile(r"(\d{1,4}(?:\.\d{1,6})?)\s*%", re.ASCII)


def parse_slowdown(value: object) -> float:
    """Parses `12.4%` as 0.124; raises ValueError for anything else, and for more than 1,000 %."""
    if isinstance(value, float):
        return value
    match = _PERCENT.fullmatch(value) if isinstance(value, str) else None
    if match is None or not 0 < float(match[1]) <= 100 * LARGEST_SLOWDOWN:
        raise ValueError(f"expected a slowdown in per cent, such as 12.4%, found {str(value)[:50]!r}")
    return round(float(match[1]) / 100, 8)


class AcceptedChange(Part):
    """One metric of one scenario that may be slower than the baseline until a date."""

    scenario: str
    """The scenario's name."""
    metric: str
    load_point: str
    """Protocol and load in words; of a gate with `profile: standard`, whose rates follow from its trial, such as `http, saturation`."""
    slowdown: Annotated[
        float,
        BeforeValidator(parse_slowdown),
        PlainSerializer(lambda value: f"{round(100 * value, 6):g}%", return_type=str),
    ]
    """How much slower than the baseline the candidate may be, such as `12.4%`; of an error rate, percentage points."""
    reason: str
    """Why it is accepted, in words."""
    accepted: Date
    """The day on which it was accepted."""
    expires: Date
    """The last day on which it counts."""
    commit: str = ""
    """The commit of the candidate that was measured; empty if unknown."""

    @property
    def key(self) -> tuple[str, str, str]:
        """What it is for: scenario, load point and metric."""
        return self.scenario, self.load_point, self.metric

    @property
    def amount(self) -> str:
        """The slowdown in words: `12.4 %`, or `0.3 percentage points` of an error rate."""
        return f"{round(100 * self.slowdown, 6):g} {'percentage points' if self.metric == 'error_rate' else '%'}"

    def is_at(self, load_point: str) -> bool:
        """Whether it is for a load point of a result; that of a gate with the standard profile is for every one with its protocol."""
        protocol, _, load = self.load_point.partition(", ")
        return self.load_point == load_point or (load in STANDARD_LOADS.values() and load_point.startswith(f"{protocol}, "))

    def has_expired(self, today: Date) -> bool:
        """Whether its last day has passed."""
        return today > self.expires


class AcceptedFile(Part):
    """The file of accepted changes, which is YAML."""

    schema_version: Annotated[str, Field(alias="schema")] = SCHEMA
    accepted: tuple[AcceptedChange, ...] = ()
    """The changes, sorted by scenario, load point and metric."""


@dataclasses.dataclass(frozen=True, slots=True)
class AcceptedChanges:
    """The content of a file of accepted changes on a given day; without a file there are none."""

    changes: tuple[AcceptedChange, ...] = ()
    today: Date = Date.min

    def of(self, scenario: str) -> "AcceptedChanges":
        """The accepted changes of one scenario."""
        return AcceptedChanges(tuple(change for change in self.changes if change.scenario == scenario), self.today)

    def find(self, metric: str, load_point: str) -> AcceptedChange | None:
        """The change of a metric at a load point that still counts, among those of one scenario."""
        return next((change for change in self._matching(metric, load_point) if not change.has_expired(self.today)), None)

    def find_expired(self, metric: str, load_point: str) -> AcceptedChange | None:
        """The change of a metric at a load point that no longer counts, among those of one scenario."""
        return next((change for change in self._matching(metric, load_point) if change.has_expired(self.today)), None)

    def _matching(self, metric: str, load_point: str) -> Iterable[AcceptedChange]:
        return (change for change in self.changes if (change.metric, change.load_point) == (metric, load_point))


NOTHING_ACCEPTED = AcceptedChanges()


def read_accepted(path: pathlib.Path) -> tuple[AcceptedChange, ...]:
    """The accepted changes of a file, sorted; raises UsageError, which names line, key and fix of the first problem."""
    try:
        content = read_bounded(path, MAX_DOCUMENT_BYTES).decode()
    except (OSError, UnicodeDecodeError) as error:
        raise UsageError(f"{path}: cannot be read as accepted changes: {getattr(error, 'strerror', None) or error}") from None
    origins: Origins = {}
    try:
        document = parse_yaml(content, (), origins, lambda line: f"{path}:{line}")
    except ScenarioError as error:
        raise UsageError(f"{error}; `perfkit gate accept` writes such a file") from None
    return _Reader(path, origins).changes(document)


def write_accepted(path: pathlib.Path, changes: Iterable[AcceptedChange]) -> None:
    """Write the file in one step, sorted and a key on each line, so that differences are easily reviewed; raises ResultError."""
    import yaml

    document = AcceptedFile(accepted=tuple(sorted(changes, key=lambda change: change.key))).document()
    for change in document["accepted"]:
        change |= {name: parse_date(change[name]) for name in ("accepted", "expires")}
        if not change["commit"]:
            del change["commit"]
    text = yaml.safe_dump(document, sort_keys=False, allow_unicode=True, default_flow_style=False, width=10_000)
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        write_whole(path, _HEADER + text)
    except OSError as error:
        raise ResultError(f"{path}: cannot be written: {error.strerror}") from None


def merge_accepted(known: Sequence[AcceptedChange], added: Iterable[AcceptedChange]) -> tuple[AcceptedChange, ...]:
    """The known changes and the added ones, which replace those for the same metric and load point."""
    return tuple({change.key: change for change in (*known, *added)}.values())


class _Reader:
    """Checks the document of a file, and names the line of what is wrong."""

    def __init__(self, path: pathlib.Path, origins: Origins) -> None:
        self._path, self._origins = path, origins

    def changes(self, document: Any) -> tuple[AcceptedChange, ...]:
        if not isinstance(document, dict):
            raise self._error((), f"expected the keys schema and accepted, such as `schema: {SCHEMA}`")
        if (schema := document.get("schema")) != SCHEMA:
            raise self._error(("schema",), f"this perfkit reads {SCHEMA}, found {str(schema)[:50]!r}: correct it, or use a newer perfkit")
        self._refuse_unknown((), document, ("schema", "accepted"))
        listed = document.get("accepted")
        if not isinstance(listed, list | None):
            raise self._error(("accepted",), "expected a list of accepted changes; [] for none")
        changes = tuple(self._change(("accepted", index), entry) for index, entry in enumerate(listed or []))
        places: dict[tuple[str, str, str], int] = {}
        for index, change in enumerate(changes):
            if (first := places.setdefault(change.key, index)) != index:
                raise self._error(
                    ("accepted", index),
                    f"{change.metric} of {change.scenario} at {change.load_point} is accepted twice, also by accepted[{first}]: remove one",
                )
        return tuple(sorted(changes, key=lambda change: change.key))

    def _change(self, place: KeyPath, entry: Any) -> AcceptedChange:
        if not isinstance(entry, dict):
            raise self._error(place, "expected the keys of an accepted change: scenario, metric, load_point, slowdown, reason, …")
        self._refuse_unknown(place, entry, tuple(AcceptedChange.model_fields))
        values: dict[str, Any] = {}
        for name, field in AcceptedChange.model_fields.items():
            if name not in entry and field.is_required():
                raise self._error(place, f"{name} is missing: add it, or write the entry again with `perfkit gate accept`")
            if name in entry:
                values[name] = self._value((*place, name), name, entry[name])
        change = AcceptedChange.model_validate(values)
        if change.expires < change.accepted:
            raise self._error((*place, "expires"), f"{change.expires} is before accepted, {change.accepted}: give a later date")
        return change

    def _value(self, place: KeyPath, name: str, value: Any) -> Any:
        if name in ("accepted", "expires"):
            try:
                return parse_date(value)
            except ValueError:
                raise self._error(place, f"expected a date such as 2027-01-31, found {str(value)[:50]!r}") from None
        if name == "slowdown":
            try:
                return parse_slowdown(None if isinstance(value, float) else value)
            except ValueError:
                raise self._error(place, f"expected a slowdown in per cent, such as 12.4%, found {str(value)[:50]!r}") from None
        if not isinstance(value, str) or not (value.strip() or name == "commit"):
            raise self._error(place, f"expected text, found {str(value)[:50]!r}: put it in quotes")
        return value

    def _refuse_unknown(self, place: KeyPath, mapping: Mapping[str, Any], known: Sequence[str]) -> None:
        for key in mapping:
            if key not in known:
                raise self._error((*place, key), f"this key is unknown{suggestion(key, known)}: known are {', '.join(known)}")

    def _error(self, place: KeyPath, problem: str) -> UsageError:
        key = dotted(place)
        return UsageError(f"{origin_of(place, self._origins, self._path)}: {f'{key}: ' if key else ''}{problem}")
