"""Warnings of several load points or cases: those of one kind together, as one sentence. Pure."""

import dataclasses
import re
import textwrap
from collections.abc import Mapping, Sequence

from perfkit.errors import MeasurementWarning, first_sentence
from perfkit.report.load_points import workload_title
from perfkit.report.page import Bullets, Item
from perfkit.report.table import Column, Table
from perfkit.report.warning_texts import warning_texts
from perfkit.result.model import Point
from perfkit.stats.validity import INVALIDATING
from perfkit.units import NS_PER_MS, NS_PER_S

_MOST_TOLD = 3
"""Different messages of one kind that are told."""
_SHORTEST_MESSAGE = 60
_FIGURE = re.compile(r"(?<![\w.:/-])(?P<number>\d[\d,]*(?:\.\d+)?)(?P<unit>\s?(?:ns|µs|ms|s|%)(?![\w]))?(?![\w:])")
_NAMING = re.compile(r"(?:\b(?:from|to|pid|process|worker|GPU|port|repetitions?|versions?|CPUs?) |[×#(] ?|\d, )$", re.IGNORECASE)
"""Before a number that is a name, an end of a range, or one of a list."""
_NS: Mapping[str, float] = {"ns": 1, "µs": 1_000, "ms": NS_PER_MS, "s": NS_PER_S}


@dataclasses.dataclass(frozen=True, slots=True)
class GroupedWarning:
    """The warnings of one kind, with the load points that they concern, in words."""

    code: str
    message: str
    """Where the load points differ in figures alone, one message with the range of each; where they differ in words, those of the first ones."""
    load_points: str
    remedy: str
    """The options that remedy it; empty if none does."""
    is_note: bool
    """Whether it only says under what conditions the figures hold, or why one is left out or uncertain."""

    @property
    def sentences(self) -> str:
        """The message and the remedy."""
        return f"{self.message} Remedy: {self.remedy}." if self.remedy else self.message

    def brief(self, longest: int) -> str:
        """The load points in brackets, the first sentence of the message as far as there is room, and the remedy."""
        remedy = f" Remedy: {self.remedy}." if self.remedy else ""
        room = max(longest - len(self.load_points) - len(remedy) - 3, _SHORTEST_MESSAGE)
        return f"({self.load_points}) {textwrap.shorten(first_sentence(self.message), room, placeholder=' …')}{remedy}"


def warnings_table(warnings: Sequence[GroupedWarning], *, are_notes: bool, places: str = "load points") -> Table:
    """The warnings, or the notes among them, with the places that they concern."""
    texts = {"message": "message", "load_points": places}
    columns = (
        Column("code", "warning", "code"),
        *(Column(key, heading, "prose") for key, heading in texts.items()),
        Column("remedy", "remedy", "prose", lambda one: one.remedy or None),
    )
    found = [one for one in warnings if one.is_note == are_notes]
    return Table.of("notes" if are_notes else "warnings", "Notes" if are_notes else "Attention", columns, found).without_empty_columns(
        "code", "message", "load_points"
    )


def warning_bullets(warnings: Sequence[GroupedWarning], *, are_notes: bool) -> list[Bullets]:
    """The warnings or the notes as a list, for Markdown; no list if there are none."""
    items = tuple(Item(one.sentences, one.load_points, one.code) for one in warnings if one.is_note == are_notes)
    return [Bullets(items)] if items else []


def grouped_warnings(points: Sequence[Point]) -> list[GroupedWarning]:
    """The warnings of each kind, with the load points that they concern.

    What makes a point invalid comes first, and before it `busy_machine`, which is then no note but the cause; then the others, and the notes last.
    """
    grouped: dict[tuple[str, str], dict[str, list[Point]]] = {}
    for point in points:
        for warning in dict.fromkeys(point.warnings):
            grouped.setdefault(_kind(warning), {}).setdefault(warning.message, []).append(point)
    return _sorted([_grouped_warning(code, messages, points) for (code, _), messages in grouped.items()])


def grouped_by_case(cases: Sequence[tuple[str, Sequence[Point]]]) -> list[GroupedWarning]:
    """The warnings of each kind over the named cases of a sweep, with the cases that they concern."""
    by_kind: dict[tuple[str, str], list[tuple[str, GroupedWarning]]] = {}
    for name, points in cases:
        for one in grouped_warnings(points):
            by_kind.setdefault(_kind(MeasurementWarning(one.code, one.message)), []).append((name, one))
    return _sorted([_of_cases(found, len(cases)) for found in by_kind.values()])


def _of_cases(found: Sequence[tuple[str, GroupedWarning]], cases: int) -> GroupedWarning:
    places = "; ".join(f"{name}: {one.load_points}" for name, one in found[:_MOST_TOLD])
    more = f"; and {len(found) - _MOST_TOLD:,} more cases" if len(found) > _MOST_TOLD else ""
    first_with = dict[str, str]()
    for name, one in found:
        first_with.setdefault(one.message, name)
    load_points = "all cases" if len(found) == cases > 1 else f"{places}{more}"
    is_note = all(one.is_note for _, one in found)
    return dataclasses.replace(found[0][1], message=_one_message(first_with), load_points=load_points, is_note=is_note)


def _sorted(found: list[GroupedWarning]) -> list[GroupedWarning]:
    return sorted(found, key=lambda one: 0 if one.code == "busy_machine" else 1 if one.code in INVALIDATING else 3 if one.is_note else 2)


def _kind(warning: MeasurementWarning) -> tuple[str, str]:
    """The code; of too few samples also the percentile, since a load point that lacks those of a p99.9 may well have those of the p99."""
    return warning.code, warning.message.partition(":")[0] if warning.code == "few_samples" else ""


def _grouped_warning(code: str, messages: Mapping[str, Sequence[Point]], points: Sequence[Point]) -> GroupedWarning:
    concerned = [point for point in points if any(point in those for those in messages.values())]
    message = _one_message({text: _load_points(those, points) for text, those in messages.items()})
    text = warning_texts().get(code)
    is_note = text is not None and text.is_note and (code != "busy_machine" or all(point.valid for point in points))
    return GroupedWarning(code, message, _load_points(concerned, points), "" if text is None else text.options, is_note)


def _one_message(places: Mapping[str, str]) -> str:
    """One text for several messages, each with its place; those that differ in words are told one after the other."""
    messages = list(places)
    if (joined := joined_messages(messages)) is not None:
        return joined
    told = [f"{places[one]}: {first_sentence(one) if number else one}" for number, one in enumerate(messages[:_MOST_TOLD])]
    others = len(messages) - _MOST_TOLD
    return " ".join([*told, *([f"And {others:,} more."] if others > 0 else [])])


def joined_messages(messages: Sequence[str]) -> str | None:
    """The messages as one, with `lowest to highest` in place of each figure in which they differ; None if they differ in more than figures."""
    first, found = messages[0], [list(_FIGURE.finditer(one)) for one in messages]
    if len({_FIGURE.sub(_quantity, one) for one in messages}) > 1:
        return None
    parts, end = list[str](), 0
    for same_place in zip(*found, strict=True):
        own = same_place[0]
        parts.append(first[end : own.start()])
        end = own.end()
        texts = {one[0]: _size(one) for one in same_place}
        if len(texts) == 1:
            parts.append(own[0])
            continue
        if _NAMING.search(first[: own.start()]) or first[end:].startswith(" to "):
            return None
        lowest, highest = min(texts, key=lambda text: texts[text]), max(texts, key=lambda text: texts[text])
        parts.append(f"{lowest} to {highest}")
    return "".join([*parts, first[end:]])


def _quantity(figure: re.Match[str]) -> str:
    """What a figure is of, in place of it: durations of all units are alike."""
    unit = (figure["unit"] or "").strip()
    return "\0s" if unit in _NS else f"\0{unit}"


def _size(figure: re.Match[str]) -> float:
    return float(figure["number"].replace(",", "")) * _NS.get((figure["unit"] or "").strip(), 1)


def _load_points(concerned: Sequence[Point], points: Sequence[Point]) -> str:
    """Load points by protocol: `http, concurrency 1, 4; grpc, concurrency 8`."""
    if len(concerned) == len(points) > 1:
        return "all load points"
    by_protocol: dict[str, list[str]] = {}
    is_mix = any(point.workload is not None for point in points)
    for point in concerned:
        by_protocol.setdefault(workload_title(point) if is_mix else point.protocol, []).append(point.load.amount)
    kind = "" if points[0].load.kind == "open" else f"{points[0].load.quantity} "
    return "; ".join(f"{protocol}, {kind}{', '.join(amounts)}" for protocol, amounts in by_protocol.items())
