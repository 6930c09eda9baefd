"""The warnings of a run by their kind, with the load points that they concern and what remedies them."""

import dataclasses
from collections.abc import Mapping, Sequence

from perfkit.errors import MeasurementWarning
from perfkit.report.load_points import workload_title
from perfkit.report.table import Column, Table
from perfkit.report.warning_texts import WARNINGS
from perfkit.result.model import Point
from perfkit.stats.validity import INVALIDATING


@dataclasses.dataclass(frozen=True, slots=True)
class GroupedWarning:
    """The warnings of one kind, with the load points that they concern, in words."""

    code: str
    message: str
    """The message of the first load point; if others differ, it ends with the load points that its figures are of."""
    load_points: str
    remedy: str
    """The keys or options that remedy it; empty if none does."""

    @property
    def sentences(self) -> str:
        """The message and the remedy."""
        return f"{self.message} Remedy: {self.remedy}." if self.remedy else self.message


def warnings_table(points: Sequence[Point]) -> Table:
    """The warnings of each kind, with the load points that they concern."""
    texts = {"message": "message", "load_points": "load points", "remedy": "remedy"}
    columns = (Column("code", "warning", "code"), *(Column(key, heading, "prose") for key, heading in texts.items()))
    return Table.of("warnings", "Warnings", columns, grouped_warnings(points))


def grouped_warnings(points: Sequence[Point]) -> list[GroupedWarning]:
    """The warnings of each kind, with the load points that they concern.

    `busy_machine` comes first, then what makes a point invalid, then the others.
    """
    grouped: dict[tuple[str, str], dict[str, list[Point]]] = {}
    for point in points:
        for warning in dict.fromkeys(point.warnings):
            grouped.setdefault(_kind(warning), {}).setdefault(warning.message, []).append(point)
    ordered = sorted(grouped.items(), key=lambda item: 0 if item[0][0] == "busy_machine" else 1 if item[0][0] in INVALIDATING else 2)
    return [_grouped_warning(code, messages, points) for (code, _), messages in ordered]


def _kind(warning: MeasurementWarning) -> tuple[str, str]:
    """The code; of too few samples also the percentile, since a load point that lacks those of a p99.9 may well have those of the p99."""
    return warning.code, warning.message.partition(":")[0] if warning.code == "few_samples" else ""


def _grouped_warning(code: str, messages: Mapping[str, Sequence[Point]], points: Sequence[Point]) -> GroupedWarning:
    concerned = [point for point in points if any(point in those for those in messages.values())]
    message, example = next(iter(messages)), next(iter(messages.values()))
    if len(messages) > 1:
        message = f"{message} (These are the figures of {_load_points(example, points)}; those of the others differ.)"
    return GroupedWarning(code, message, _load_points(concerned, points), WARNINGS[code].keys if code in WARNINGS else "")


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
