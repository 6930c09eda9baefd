"""Requests of `workload.data`: each carries one step of the data, or as many as its batch has elements."""

import dataclasses
import math
import pathlib
from collections.abc import Mapping, Sequence
from typing import Any, NoReturn, TypeAlias

import numpy as np

from perfkit.errors import ModelMismatchError, ScenarioError, nearest
from perfkit.machine.limits import MemoryBudget
from perfkit.protocol.message import InferRequest, ModelMetadata, TensorMetadata
from perfkit.protocol.tensor import Tensor
from perfkit.scenario.workload import OTHER_INPUTS, GeneratedInput, Workload
from perfkit.units import format_bytes
from perfkit.workload.generated import Checkpoint
from perfkit.workload.input_data import KEY, DataStep, DataTensor, read_input_data
from perfkit.workload.inputs import TensorSource
from perfkit.workload.requests import (
    JSON_BYTES,
    REQUEST_BYTES,
    model_inputs,
    omitted_inputs,
    parse_datatype,
    request_id,
    request_template,
    resolve_batch_size,
)


@dataclasses.dataclass(frozen=True)
class DataRequests:
    """The requests of the data, one for each step, or in batches for each group of steps that requests use in turn."""

    requests: tuple[InferRequest, ...]
    expected: tuple[Mapping[str, Tensor], ...]
    """For each request the outputs that the data expects, by name; empty if it expects none."""
    stream_lengths: tuple[int, ...]
    """The steps of each stream, in the order of the requests; they apply to sequences."""


def make_data_requests(
    workload: Workload,
    metadata: ModelMetadata,
    max_batch_size: int,
    version: str,
    folder: pathlib.Path,
    *,
    required_inputs: frozenset[str] = frozenset(),
    budget: MemoryBudget | None = None,
    checkpoint: Checkpoint = lambda: None,
) -> DataRequests:
    """The requests of `workload.data`: element k of request r carries step r·b + k, modulo their number, where b is the batch size.

    An input that a step lacks is made as `workload.inputs` says, or left out where that says `omit`, or where it is not among
    `required_inputs`, if these are known. Raises ScenarioError if a file cannot be read, is not well-formed, or exceeds the budget;
    ModelMismatchError if it does not fit the model.
    """
    assert workload.data is not None
    budget = budget or MemoryBudget()
    inputs = model_inputs(workload, metadata)
    template = request_template(workload, metadata, version, inputs)
    batch_size = resolve_batch_size(workload.batch_size, metadata.name, max_batch_size)
    if batch_size is not None and metadata.inputs:
        inputs = _without_batch(inputs)
    outputs = metadata.outputs if batch_size is None else _without_batch(metadata.outputs)
    data = read_input_data(workload.data, folder, frozenset(one.name for one in metadata.outputs), budget=budget, checkpoint=checkpoint)
    steps = [step for stream in data.streams for step in stream]
    optional = omitted_inputs(workload) | ({one.name for one in inputs} - required_inputs if required_inputs else set())
    made = _sources(workload, inputs, steps, batch_size, folder, budget)
    read_inputs = _Reader("input", {one.name: _input(workload, one) for one in inputs})
    read_outputs = _Reader("output", {one.name: _output(one) for one in outputs})
    given, expected = list[_Tensors](), list[_Tensors]()
    for step in steps:
        checkpoint()
        given.append(read_inputs.read(step.inputs_at, step.inputs))
        expected.append(read_outputs.read(step.outputs_at, step.outputs))
        for name in sorted(read_inputs.tensors.keys() - step.inputs.keys() - made.keys() - optional):
            raise ModelMismatchError(
                f"{step.inputs_at}{name}: this input is missing: add it to the step, or give workload.inputs.{name}, which may be `omit` for "
                "an input that the model calls optional"
            )
    groups = _groups(len(steps), batch_size or 1)
    _reserve(budget, given, groups, template)
    requests = []
    for number, group in enumerate(groups):
        checkpoint()
        tensors = _batched([given[index] for index in group], [steps[index].inputs_at for index in group], batch_size)
        for index, (name, source) in enumerate(made.items()):
            if name not in tensors:
                tensors[name] = source.tensor(number, np.random.default_rng([workload.seed, number, index]), checkpoint)
        in_order = tuple(tensors[one.name] for one in inputs if one.name in tensors)
        requests.append(dataclasses.replace(template, inputs=in_order, id=request_id(workload, number)))
    answers = [_batched([expected[index] for index in group], [steps[index].outputs_at for index in group], batch_size) for group in groups]
    return DataRequests(tuple(requests), tuple(answers) if any(answers) else (), tuple(map(len, data.streams)))


_Tensors: TypeAlias = dict[str, Tensor]


@dataclasses.dataclass(frozen=True)
class _Reader:
    """Reads the tensors of a step; `kind` is input or output."""

    kind: str
    tensors: Mapping[str, DataTensor]

    def read(self, place: str, values: Mapping[str, Any]) -> _Tensors:
        """The tensors by name; `place` is where they are, up to the name."""
        read = {}
        for name, value in values.items():
            if name in self.tensors:
                read[name] = self.tensors[name].read(f"{place}{name}", value)
            elif name != "model":  # perf_analyzer's input data may name its model
                self._refuse(place, name)
        return read

    def _refuse(self, place: str, name: str) -> NoReturn:
        if name == "timestamp":
            raise ScenarioError(f"{place}{name}: data with timestamps is a schedule: give it as load.replay.trace, and remove {KEY}")
        near = nearest(name, self.tensors)
        hint = f"; did you mean '{near[0]}'?" if near else "."
        raise ModelMismatchError(f"{place}{name}: the model has no {self.kind} '{name}'{hint} It has: {', '.join(self.tensors) or 'none'}")


def _without_batch(tensors: Sequence[TensorMetadata]) -> tuple[TensorMetadata, ...]:
    return tuple(dataclasses.replace(one, shape=one.shape[1:]) for one in tensors)


def _input(workload: Workload, described: TensorMetadata) -> DataTensor:
    name, given = described.name, workload.inputs.get(described.name)
    datatype = parse_datatype("workload.inputs", name, described.datatype, given.datatype if given else None)
    return DataTensor(name, datatype, described.shape, given.shape if given else None, f"workload.inputs.{name}.shape")


def _output(described: TensorMetadata) -> DataTensor:
    return DataTensor(described.name, parse_datatype("outputs", described.name, described.datatype, None), described.shape)


def _sources(
    workload: Workload,
    inputs: Sequence[TensorMetadata],
    steps: Sequence[DataStep],
    batch_size: int | None,
    folder: pathlib.Path,
    budget: MemoryBudget,
) -> dict[str, TensorSource]:
    """The inputs that some step lacks, and `workload.inputs` gives."""
    sources = {}
    for one in inputs:
        given = workload.inputs.get(one.name, workload.inputs.get(OTHER_INPUTS))
        if given is None or (isinstance(given, GeneratedInput) and given.generate == "omit"):
            continue
        if count := sum(one.name not in step.inputs for step in steps):
            described = _input(workload, one)
            source = TensorSource(one.name, described.datatype, given, described.shape, batch_size, folder, budget=budget)
            source.reserve(budget, count)
            sources[one.name] = source
    return sources


def _groups(steps: int, size: int) -> list[list[int]]:
    """The indices of the steps of each request, until the sequence repeats."""
    return [[(group * size + index) % steps for index in range(size)] for group in range(steps // math.gcd(steps, size))]


def _reserve(budget: MemoryBudget, given: Sequence[_Tensors], groups: Sequence[Sequence[int]], template: InferRequest) -> None:
    """Takes the requests from the budget: batches, which copy their steps, and tensors that are sent as JSON."""
    each, copied_bytes = len(groups[0]), 0
    used = len(groups) * each // len(given)  # how often each step is
    if each > 1:
        copied_bytes = used * sum(len(tensor.raw) for tensors in given for tensor in tensors.values())
    plain = used * sum(tensor.element_count for tensors in given for tensor in tensors.values() if tensor.name in template.plain_inputs)
    arithmetic = (
        f"{len(groups):,} requests of {each:,} steps, {format_bytes(copied_bytes)} copied, {plain:,} values × {JSON_BYTES} bytes as JSON"
    )
    budget.reserve(
        KEY, len(groups) * REQUEST_BYTES + copied_bytes + plain * JSON_BYTES, arithmetic, "the number of steps, or workload.batch_size"
    )


def _batched(elements: Sequence[_Tensors], places: Sequence[str], batch_size: int | None) -> _Tensors:
    """One batch of the tensors of several steps, which must agree in names and shapes; without a batch size, those of the only one."""
    if batch_size is None:
        return elements[0]
    for tensors, place in zip(elements, places, strict=True):
        for name in tensors.keys() ^ elements[0].keys():
            raise ModelMismatchError(f"{place}{name}: {_one_batch(batch_size)}, and {places[0]}{name} is not alike: one of them is missing")
        for name, tensor in tensors.items():
            if tensor.shape != elements[0][name].shape:
                raise ModelMismatchError(
                    f"{place}{name}: {_one_batch(batch_size)}: found shape {list(tensor.shape)}, and {list(elements[0][name].shape)} at "
                    f"{places[0]}{name}"
                )
    return {
        name: dataclasses.replace(
            first,
            shape=(batch_size, *first.shape),
            raw=first.raw if batch_size == 1 else b"".join(tensors[name].raw for tensors in elements),
        )
        for name, first in elements[0].items()
    }


def _one_batch(batch_size: int) -> str:
    return f"{batch_size} steps in turn are a batch, and need the same tensors of the same shapes (or workload.batch_size: 1)"
