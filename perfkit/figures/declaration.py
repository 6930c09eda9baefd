"""The declaration of a figure: what recording, pooling, frames, tables and explanations need to know of it, said once at its field.

A figure is a field of a load point, or of a part of one, in `result/model.py` or `figures/resources.py`, annotated with its `Figure`. A
figure that is recorded follows from its declaration: the sum over the windows' counts of its name, their rate, or their times together.
"""

import dataclasses
import functools
import re
import types
import typing
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Literal, TypeVar

_T = TypeVar("_T")

Unit = Literal["ns", "per_s", "count", "share", "number", "energy_j"]
Subject = Literal["rates", "requests", "sequences", "streams", "tokens", "connections", "idle gaps", "server", "generator", "gpus"]
"""What figures are about: those of one subject stand together in frames and tables."""
KEY = "*"
OF_ALL = "requests.timed"
"""`Figure.counted_by` of times that every request of the load has."""
Pooling = Callable[[Sequence[tuple[Any, int]]], Any]
"""The figure of several windows, from that of each and the window's length in nanoseconds."""


@dataclasses.dataclass(frozen=True, slots=True)
class Figure:
    """What is known of a figure besides its value; a field's annotation."""

    title: str = ""
    """Its heading in tables."""
    unit: Unit = "count"
    """The unit of its value or of a distribution's times. The bounds follow from the unit at the end of its key; see `result/checks.py`."""
    subject: Subject | None = None
    recorded: str = ""
    """The name under which counts or times are recorded, see `Recorder`; `KEY` stands for its key without the unit. Empty for a figure
    that `points/` computes."""
    column: str = ""
    """Its column in frames and CSV, of times without percentile and unit; empty for none."""
    log_tag: str = ""
    """The end of the tag of its times in `latency.hlog`; empty for those that are not logged."""
    percentiles: tuple[str, ...] = ("p50", "p99")
    """The percentiles of times that are columns of frames."""
    counted_by: str = ""
    """The path in the load point to the number of these times; empty where none is."""
    order: int = 0
    """Sorts it within its subject; figures of the same number keep the order of the fields. Times of the load point itself count 1 more, so that they
    follow its counts and rates."""
    pooled: Pooling | None = None
    """How figures of windows become one; None for those that are recorded, or computed from pooled ones."""
    explained: str = ""
    """How it came about, in words that may name other figures of its part: `the mean of {requests:,} requests`."""
    metric: str = ""
    """Its name as a metric of gates, histories and comparisons; empty for none."""

    @property
    def is_of_all(self) -> bool:
        """Whether its times are of every request of the load, so that their distribution is there also without any."""
        return self.counted_by == OF_ALL


@dataclasses.dataclass(frozen=True, slots=True)
class Declared:
    """A figure in its place."""

    path: str
    """Its key in a load point, by dots: `server_cpu.cpus`."""
    figure: Figure
    kind: Any
    """The type of its value, without None."""

    @property
    def key(self) -> str:
        """The end of its path."""
        return self.path.rpartition(".")[2]

    @property
    def owner(self) -> str:
        """The path of the part that has it; empty for the load point itself."""
        return self.path.rpartition(".")[0]

    def value_of(self, point: object) -> Any:
        """Its value in a load point; None where a part on the path is None."""
        return value_at(point, self.path)


def value_at(item: object, path: str) -> Any:
    """An item's attribute at a dotted path; None if a part of the path is None."""
    return functools.reduce(lambda part, name: None if part is None else getattr(part, name), path.split(".") if path else (), item)


@functools.cache
def own_figures(model: type) -> Mapping[str, tuple[Figure, Any]]:
    """The declared figures among the fields and properties of a model or dataclass, each with the type of its value without None."""
    found = {}
    for name, hint in (*typing.get_type_hints(model, include_extras=True).items(), *_properties(model)):
        if typing.get_origin(hint) is typing.Annotated:
            figure = next((one for one in typing.get_args(hint)[1:] if isinstance(one, Figure)), None)
            if figure is not None:
                recorded = re.sub("_(ns|per_s)$", "", name) if figure.recorded == KEY else figure.recorded
                found[name] = dataclasses.replace(figure, recorded=recorded), _without_none(typing.get_args(hint)[0])
    return found


@functools.cache
def declared(model: type) -> tuple[Declared, ...]:
    """All figures of a model and its parts, in the order of their fields; tuples of parts are left out."""
    found = list[Declared]()
    for name, hint in (*typing.get_type_hints(model, include_extras=True).items(), *_properties(model)):
        if name in own_figures(model):
            figure, kind = own_figures(model)[name]
            found.append(Declared(name, figure, kind))
        elif isinstance(kind := _without_none(hint), type) and kind.__module__.startswith("perfkit."):
            found += [dataclasses.replace(one, path=f"{name}.{one.path}") for one in declared(kind)]
    return tuple(found)


def figures_of(model: type, subject: Subject) -> list[Declared]:
    """The figures about a subject: counts and rates, then times, unless they are declared in another order."""
    own = [one for one in declared(model) if one.figure.subject == subject]
    return sorted(own, key=lambda one: one.figure.order + (one.figure.unit == "ns" and "." not in one.path))


def pooled(parts: Sequence[tuple[_T, int]]) -> _T:
    """One dataclass in place of those of several windows, each field as its figure declares; others are those of the first."""
    if len(parts) == 1:
        return parts[0][0]
    first: Any = parts[0][0]
    changes = {
        name: figure.pooled([(getattr(one, name), length_ns) for one, length_ns in parts])
        for name, (figure, _) in own_figures(first.__class__).items()
        if figure.pooled is not None
    }
    one: _T = dataclasses.replace(first, **changes)
    return one


def mean(values: Sequence[tuple[float | None, int]]) -> float | None:
    """The mean of the known values, weighted by the windows' lengths."""
    known = [(value, length) for value, length in values if value is not None and length > 0]
    total = sum(length for _, length in known)
    return sum(value * length for value, length in known) / total if total else None


def mean_of_all(values: Sequence[tuple[float | None, int]]) -> float | None:
    """The mean, weighted by the windows' lengths; None where one is unknown."""
    return None if any(value is None for value, _ in values) else mean(values)


def total(values: Sequence[tuple[Any, int]]) -> Any:
    """The sum; None where one is unknown."""
    return None if any(value is None for value, _ in values) else sum(value for value, _ in values)


def total_known(values: Sequence[tuple[Any, int]]) -> Any:
    """The sum of the known values; None without any."""
    return sum(known) if (known := _known(values)) else None


def largest(values: Sequence[tuple[Any, int]]) -> Any:
    """The largest known value."""
    return max(_known(values), default=None)


def smallest(values: Sequence[tuple[Any, int]]) -> Any:
    """The smallest known value."""
    return min(_known(values), default=None)


def union(values: Sequence[tuple[tuple[Any, ...], int]]) -> tuple[Any, ...]:
    """The elements of all tuples, each once, in the order in which they first occur."""
    return tuple(dict.fromkeys(element for elements, _ in values for element in elements))


def _properties(model: type) -> list[tuple[str, Any]]:
    return [
        (name, typing.get_type_hints(one.fget, include_extras=True).get("return"))
        for name, one in vars(model).items()
        if isinstance(one, property)
        and one.fget is not None
        and typing.get_origin(one.fget.__annotations__.get("return")) is typing.Annotated
    ]


def _known(values: Iterable[tuple[Any, int]]) -> list[Any]:
    return [value for value, _ in values if value is not None]


def _without_none(hint: Any) -> Any:
    if typing.get_origin(hint) in (typing.Union, types.UnionType):
        kinds = [kind for kind in typing.get_args(hint) if kind is not types.NoneType]
        return kinds[0] if len(kinds) == 1 else hint
    return hint
