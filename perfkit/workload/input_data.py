"""Reads `workload.data`: perf_analyzer's input data, JSON files with steps or streams of steps, and folders with a file for each tensor."""

import dataclasses
import json
import pathlib
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, TypeAlias

from perfkit.errors import ScenarioError
from perfkit.machine.limits import MemoryBudget
from perfkit.units import format_bytes
from perfkit.workload.generated import Checkpoint

KEY = "workload.data"
# besides the bytes of a file: its text, of up to 4 bytes a character, or its base64 as texts and decoded; each value with its place in a list;
# and what encoding a text takes more
_TEXT_FACTOR, _VALUE_BYTES, _STRING_BYTES = 4, 64, 384
_FORMS = "an object is a step, which requests use in turn, an array a stream of steps, one a sequence"


@dataclasses.dataclass(frozen=True, slots=True)
class DataStep:
    """The tensors of one inference, by name: JSON values, or the bytes of files."""

    inputs: Mapping[str, Any]
    outputs: Mapping[str, Any]
    """The expected outputs; empty if there are none."""
    inputs_at: str
    """Where an input is, for messages, up to its name: key, file and place in the file."""
    outputs_at: str


@dataclasses.dataclass(frozen=True, slots=True)
class InputData:
    """The steps of all files together."""

    streams: tuple[tuple[DataStep, ...], ...]
    """One stream of all steps, unless the files have streams."""

    @property
    def steps(self) -> Sequence[DataStep]:
        """All steps, stream after stream."""
        return [step for stream in self.streams for step in stream]


def read_input_data(
    names: Sequence[str], folder: pathlib.Path, outputs: frozenset[str], *, budget: MemoryBudget, checkpoint: Checkpoint = lambda: None
) -> InputData:
    """Reads files and folders, in order; `outputs` are the names of the model's outputs, which tell them from inputs in a folder.

    `checkpoint` is called before each file. Raises ScenarioError, which names the file, the entry and what was expected.
    """
    streams, first_of_form = list[tuple[DataStep, ...]](), dict[bool, DataStep]()
    for name in names:
        checkpoint()
        path = folder / name
        for is_stream, steps in _read_folder(path, outputs, budget) if path.is_dir() else _read_file(path, budget):
            first_of_form.setdefault(is_stream, steps[0])
            if len(first_of_form) > 1:
                step, stream = (first_of_form[form].inputs_at.rstrip("./") for form in (False, True))
                raise ScenarioError(f"{stream} is in an array, and {step} is not: {_FORMS}: give one of the two")
            streams.append(steps)
    if True not in first_of_form:
        streams = [tuple(step for steps in streams for step in steps)]
    return InputData(tuple(streams))


_Entry: TypeAlias = tuple[bool, tuple[DataStep, ...]]
"""Whether an entry of `data` is a stream, and its steps."""


def _read_file(path: pathlib.Path, budget: MemoryBudget) -> Iterator[_Entry]:
    where = f"{KEY}: {path}: "
    document = _read_json(path, budget)
    entries = document.get("data") if isinstance(document, dict) else None
    if not isinstance(entries, list) or not entries:
        raise ScenarioError(f'{where}expected perf_analyzer\'s input data, an object with a list "data" of steps, or of streams of steps')
    expected = _aligned(f"{where}validation_data", document.get("validation_data"), entries)
    for index, (entry, outputs) in enumerate(zip(entries, expected, strict=True)):
        places = (f"{where}data[{index}]", f"{where}validation_data[{index}]")
        if not isinstance(entry, list):
            yield False, (_step(places, entry, outputs),)
            continue
        if not entry:
            raise ScenarioError(f"{places[0]}: the stream has no steps")
        pairs = zip(entry, _aligned(places[1], outputs, entry), strict=True)
        steps = (_step((f"{places[0]}[{step}]", f"{places[1]}[{step}]"), *pair) for step, pair in enumerate(pairs))
        yield True, tuple(steps)


def _aligned(place: str, outputs: object, inputs: list[Any]) -> list[Any]:
    """The expected outputs, one for each of the inputs; None for each if there are none."""
    if outputs is None:
        return [None] * len(inputs)
    if not isinstance(outputs, list) or len(outputs) != len(inputs):
        found = f"{len(outputs):,}" if isinstance(outputs, list) else f"{outputs!r:.60}"
        raise ScenarioError(f"{place}: expected a list of {len(inputs):,}, one entry for each in data, found {found}")
    return outputs


def _step(places: tuple[str, str], inputs: object, outputs: object) -> DataStep:
    if not isinstance(inputs, dict):
        raise ScenarioError(f"{places[0]}: expected an object with the inputs of a step, found {inputs!r:.60}")
    if outputs is not None and not isinstance(outputs, dict):
        raise ScenarioError(f"{places[1]}: expected an object with the outputs of the step, found {outputs!r:.60}")
    return DataStep(inputs, outputs or {}, f"{places[0]}.", f"{places[1]}.")


def _read_folder(path: pathlib.Path, outputs: frozenset[str], budget: MemoryBudget) -> Iterator[_Entry]:
    """The step of a folder, whose files are named like the model's tensors."""
    try:
        files = {file.name: _read_bytes(file, budget) for file in sorted(path.iterdir())}
    except OSError as error:
        raise ScenarioError(f"{KEY}: {path} cannot be read: {error}") from None
    inputs = {name: content for name, content in files.items() if name not in outputs}
    expected = {name: content for name, content in files.items() if name in outputs}
    yield False, (DataStep(inputs, expected, f"{KEY}: {path}/", f"{KEY}: {path}/"),)


def _read_json(path: pathlib.Path, budget: MemoryBudget) -> Any:
    content = _read_bytes(path, budget)
    values, strings = sum(content.count(mark) for mark in (b",", b"[", b"{")), content.count(b'"') // 2
    budget.reserve(
        KEY,
        len(content) * _TEXT_FACTOR + values * _VALUE_BYTES + strings * _STRING_BYTES,
        f"{path} holds {format_bytes(len(content))} with {values:,} values × {_VALUE_BYTES} bytes and {strings:,} texts × {_STRING_BYTES} bytes",
        'the steps of the file, or write their values as {"b64": TEXT}',
    )
    try:
        return json.loads(content)
    except (ValueError, RecursionError) as error:
        raise ScenarioError(f"{KEY}: {path}: not JSON: {error}") from None


def _read_bytes(path: pathlib.Path, budget: MemoryBudget) -> bytes:
    try:
        if path.exists() and not path.is_file():
            raise ScenarioError(f"{KEY}: {path} is not a regular file")
        size_bytes = path.stat().st_size
        budget.reserve(KEY, size_bytes, f"{path} holds {format_bytes(size_bytes)}", "the size of the file")
        with path.open("rb") as file:
            return file.read(size_bytes)  # not what is appended meanwhile
    except FileNotFoundError:
        raise ScenarioError(f"{KEY}: no such file: {path}") from None
    except OSError as error:
        raise ScenarioError(f"{KEY}: {path} cannot be read: {error}") from None
