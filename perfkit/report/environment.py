"""The environment of a run as groups of facts: the generator's machine, the target, the server that perfkit started, and the rest."""

import itertools
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from perfkit.report.calibration import calibration_facts, stored_calibration
from perfkit.report.table import MISSING
from perfkit.result.json_file import as_mapping
from perfkit.units import NS_PER_S, format_bytes, format_duration_ns

_Group = tuple[str, tuple[tuple[str, str], ...]]
_TITLES = {
    "generator": "Load generator",
    "target": "Target",
    "bundled_server": "Bundled server",
    "command_server": "Server, started by a command",
    "telemetry": "Telemetry",
    "gpus": "GPUs",
}
_SERVERS = ("bundled_server", "command_server")


def environment_groups(environment: Mapping[str, Any]) -> Iterator[_Group]:
    """Each group's title, and its names and values in words; whatever a result stores is shown, known or not."""
    for key, value in environment.items():
        facts = value if isinstance(value, Mapping) else {key: value}
        own = {name: fact for name, fact in facts.items() if name not in (*_SERVERS, "calibration")}
        yield _TITLES.get(key, key), tuple(_facts(own))
        if calibration := stored_calibration(facts):
            yield "Calibration", tuple(calibration_facts(calibration))
        for kind in _SERVERS:
            if server := facts.get(kind):
                yield from _server_groups(_TITLES[kind], server if isinstance(server, Mapping) else {"description": server})


def _server_groups(title: str, server: Mapping[str, Any]) -> Iterator[_Group]:
    """The server, how it executes ONNX models, and what it chose and prepared for each of them."""
    onnx = as_mapping(server.get("onnx"))
    models = as_mapping(onnx.get("models"))
    shown = {name: fact for name, fact in server.items() if name != "event" and not (name == "onnx" and onnx)}
    yield title, tuple(_facts(shown))
    if options := {name: fact for name, fact in onnx.items() if not (name == "models" and models)}:
        yield "Execution of ONNX models", tuple(_facts(options))
    for name, chosen in models.items():
        yield f"Execution of {name}", tuple(_facts(chosen if isinstance(chosen, Mapping) else {"description": chosen}))


def _facts(facts: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    for name, value in facts.items():
        label, text = _fact(name, value)
        yield label.replace("_", " "), text


def _fact(name: str, value: object) -> tuple[str, str]:
    """The name without its unit, and the value with it."""
    if isinstance(value, int | float) and not isinstance(value, bool):
        if name.endswith("_bytes"):
            return name.removesuffix("_bytes"), format_bytes(value)
        if name.endswith("_s") and not name.endswith("_per_s"):
            return name.removesuffix("_s"), format_duration_ns(value * NS_PER_S)
    return name, _in_words(value)


def _in_words(value: object, *, is_nested: bool = False) -> str:
    if isinstance(value, Mapping):
        parts = (
            _fact(str(name), part) if not isinstance(part, Mapping) else (name, _in_words(part, is_nested=True))
            for name, part in value.items()
        )
        text = ", ".join(f"{name} {part}" for name, part in parts)
        return f"({text})" if is_nested else text or MISSING
    if isinstance(value, list | tuple):
        if value and all(isinstance(part, int) and not isinstance(part, bool) for part in value):
            return _ranges(value)
        separator = "; " if any(isinstance(part, Mapping) for part in value) else ", "
        return separator.join(map(_in_words, value)) or MISSING
    if isinstance(value, bool):
        return "yes" if value else "no"
    return MISSING if value in (None, "") else str(value)


def _ranges(numbers: Sequence[int]) -> str:
    """Whole numbers in their order, such as those of CPUs: `0–3, 8`."""
    grouped = itertools.groupby(enumerate(numbers), lambda numbered: numbered[1] - numbered[0])
    runs = [[number for _, number in group] for _, group in grouped]
    return ", ".join(str(run[0]) if len(run) == 1 else f"{run[0]}–{run[-1]}" for run in runs)
