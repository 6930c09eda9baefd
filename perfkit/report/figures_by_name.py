"""What the exports to other programs contain: the figures and parameters of a result by name, and its files."""

import json
import re
from collections.abc import Iterator, Mapping
from typing import Any

from perfkit.report.export import plain_name
from perfkit.result.file import RESULT_FILE
from perfkit.result.model import Point, Result

ARTIFACTS = (RESULT_FILE, "report.html")
"""The files of a result folder that are uploaded, if they exist."""
_LONGEST_VALUE, _LONGEST_KEY = 500, 250  # in any version of MLflow
_NOT_IN_KEYS = re.compile(r"[^\w\-. /]", re.ASCII)


def figures_of(point: Point) -> dict[str, float]:
    """The figures of a load point: `p99_ns`, with `p99_ns_low` and `p99_ns_high` where the ends of the interval are known.

    `valid` is 1, or 0 for a load point that is not valid.
    """
    ends = ((name, {"": one.value, "_low": one.low, "_high": one.high}) for name, one in point.exported().items())
    figures = {f"{name}{end}": float(value) for name, values in ends for end, value in values.items() if value is not None}
    return {"valid": float(point.valid), **figures}


def metrics_of(result: Result) -> dict[str, float]:
    """The figures of all load points: `http-concurrency-4/p99_ns`."""
    metrics = dict[str, float]()
    names = set[str]()
    for number, point in enumerate(result.summary, 1):
        name = plain_name(point.title)
        name = f"{name}-{number}" if name in names else name
        names.add(name)
        metrics |= {f"{name}/{key}": value for key, value in figures_of(point).items()}
    return metrics


def parameters_of(result: Result) -> dict[str, str]:
    """The scenario's keys, joined by dots, with their values as JSON; cut where longer than every MLflow accepts."""
    return {_NOT_IN_KEYS.sub("_", key)[:_LONGEST_KEY]: text[:_LONGEST_VALUE] for key, text in _leaves(result.scenario)}


def _leaves(section: Mapping[str, Any], path: str = "") -> Iterator[tuple[str, str]]:
    for key, value in section.items():
        if isinstance(value, Mapping) and value:
            yield from _leaves(value, f"{path}{key}.")
        else:
            yield f"{path}{key}", value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
