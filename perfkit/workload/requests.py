"""The requests that a run uses in turn, built from the model's metadata before the load."""

import dataclasses
import hashlib
import json
import math
import pathlib
from collections.abc import Sequence

import numpy as np

from perfkit.errors import ModelMismatchError, ProtocolError, nearest
from perfkit.machine.limits import MemoryBudget
from perfkit.protocol.message import InferRequest, ModelMetadata, Parameter, RequestedOutput, TensorMetadata
from perfkit.protocol.tensor import Datatype
from perfkit.scenario.workload import OTHER_INPUTS, GeneratedInput, Workload
from perfkit.workload.generated import Checkpoint
from perfkit.workload.inputs import TensorSource

# if all combinations of the inputs' files and texts need more requests than this, each input only uses all of its own
_MAX_CYCLE_LENGTH = 4096
REQUEST_BYTES, JSON_BYTES = 4096, 20
"""What a request takes besides its tensors, and what a value takes as JSON, on average."""


def make_requests(
    workload: Workload,
    metadata: ModelMetadata,
    max_batch_size: int,
    version: str,
    folder: pathlib.Path,
    *,
    budget: MemoryBudget | None = None,
    checkpoint: Checkpoint = lambda: None,
) -> tuple[InferRequest, ...]:
    """The requests that use every file and text, at least `workload.variants` of them if anything is random.

    The same seed yields the same requests. Inputs that the workload does not name are random. `checkpoint` is called at least after
    every 2^20 values that are made. Raises ModelMismatchError if the workload does not fit the metadata, ScenarioError if the requests
    would exceed the budget, by default a quarter of the available memory.
    """
    budget, omitted = budget or MemoryBudget(), omitted_inputs(workload)
    inputs = tuple(one for one in model_inputs(workload, metadata) if one.name not in omitted)
    request = request_template(workload, metadata, version, inputs)
    batch_size = resolve_batch_size(workload.batch_size, metadata.name, max_batch_size)
    given = {one.name: workload.inputs.get(one.name, workload.other_input) for one in inputs}
    sources = []
    for one in inputs:
        datatype = parse_datatype("workload.inputs", one.name, one.datatype, given[one.name].datatype)
        shape = one.shape[1:] if batch_size is not None and metadata.inputs else one.shape
        sources.append(TensorSource(one.name, datatype, given[one.name], shape, batch_size, folder, budget=budget))
    count = _count(sources, workload.variants)
    budget.reserve("workload.variants", count * REQUEST_BYTES, f"{count:,} requests × {REQUEST_BYTES:,} bytes", "workload.variants")
    for one, source in zip(inputs, sources, strict=True):
        source.reserve(budget, count, text_bytes=JSON_BYTES if one.name in request.plain_inputs else 0)
    requests = []
    for variant in range(count):
        seeds = ([workload.seed, variant, index] for index in range(len(sources)))
        tensors = tuple(
            source.tensor(variant, np.random.default_rng(seed), checkpoint) for source, seed in zip(sources, seeds, strict=True)
        )
        requests.append(dataclasses.replace(request, inputs=tensors, id=request_id(workload, variant)))
    return tuple(requests)


def model_inputs(workload: Workload, metadata: ModelMetadata) -> tuple[TensorMetadata, ...]:
    """The inputs that the model, or else the workload, describes; raises ModelMismatchError if the workload names others, or describes none."""
    if not metadata.inputs:
        return _declared_inputs(workload, metadata.name)
    named = tuple(name for name in workload.inputs if name != OTHER_INPUTS)
    check_names("workload.inputs", "input", named, tuple(one.name for one in metadata.inputs))
    return metadata.inputs


def request_template(workload: Workload, metadata: ModelMetadata, version: str, inputs: Sequence[TensorMetadata]) -> InferRequest:
    """A request with everything but its tensors and its id; raises ModelMismatchError if it asks for outputs that the model lacks."""
    if metadata.outputs:
        asked = tuple(one.name for one in workload.outputs)
        check_names("workload.outputs", "output", asked, tuple(one.name for one in metadata.outputs))
    encodings = {one.name: workload.inputs[one.name].encoding if one.name in workload.inputs else None for one in inputs}
    plain = frozenset(name for name, encoding in encodings.items() if (encoding or workload.encoding) == "json")
    outputs = tuple(
        RequestedOutput(one.name, one.classes, None if one.encoding is None else one.encoding == "binary") for one in workload.outputs
    )
    is_binary, parameters = workload.encoding != "json", _parameters(workload)
    of_inputs = {one.name: given.parameters for one in inputs if (given := workload.inputs.get(one.name)) is not None and given.parameters}
    return InferRequest(
        metadata.name, (), outputs, version, "", parameters, binary_output=is_binary, plain_inputs=plain, input_parameters=of_inputs
    )


def request_id(workload: Workload, variant: int) -> str:
    """The id of a request; empty if the workload gives none."""
    return f"{workload.request_id}-{variant}" if workload.request_id else ""


def omitted_inputs(workload: Workload) -> frozenset[str]:
    """The names of the optional inputs that the requests leave out."""
    return frozenset(name for name, one in workload.inputs.items() if isinstance(one, GeneratedInput) and one.generate == "omit")


def check_omitted(workload: Workload, model: str, required: frozenset[str]) -> None:
    """Raises ModelMismatchError if the workload leaves out an input that the model's configuration does not call optional."""
    for name in sorted(omitted_inputs(workload) & required):
        raise ModelMismatchError(
            f"workload.inputs.{name}: model '{model}' requires this input: only one that its configuration calls optional can be omitted"
        )


def are_inputs_declared(workload: Workload) -> bool:
    """Whether the workload alone says what the requests carry, for a server that does not describe its model."""
    omitted = omitted_inputs(workload)
    declared = [one for name, one in workload.inputs.items() if name not in omitted and name != OTHER_INPUTS]
    return bool(declared) and all(one.datatype is not None and one.shape is not None for one in declared)


def reserve_plain(requests: Sequence[InferRequest], budget: MemoryBudget) -> None:
    """Takes the JSON of the tensors from the budget; raises ScenarioError if they exceed it."""
    count = sum(tensor.element_count for request in requests for tensor in request.inputs)
    text = f"{count:,} values × {JSON_BYTES} bytes of JSON, since the server refuses binary tensors"
    budget.reserve("workload.inputs", count * JSON_BYTES, text, "the inputs' shapes, workload.batch_size or workload.variants")


def payload_sha256(requests: Sequence[InferRequest], checkpoint: Checkpoint = lambda: None) -> str:
    """A digest of everything that the requests carry, in order, excluding the model's name and version.

    `checkpoint` is called before each request.
    """
    digest = hashlib.sha256()
    for request in requests:
        checkpoint()
        asked = [(output.name, output.classes, output.binary) for output in request.outputs]
        shapes = [(tensor.name, tensor.datatype.value, tensor.shape, len(tensor.raw)) for tensor in request.inputs]
        of_inputs = [{name: dict(given) for name, given in request.input_parameters.items()}] if request.input_parameters else []
        head = [request.id, dict(request.parameters), request.binary_output, sorted(request.plain_inputs), asked, shapes, *of_inputs]
        digest.update(json.dumps(head, sort_keys=True).encode())
        for tensor in request.inputs:
            digest.update(tensor.raw)
    return digest.hexdigest()


def _count(sources: list[TensorSource], variants: int) -> int:
    cycles = [source.cycle_length for source in sources if source.cycle_length]
    combined = math.lcm(*cycles)
    if combined > _MAX_CYCLE_LENGTH:
        combined = max(cycles)
    return combined if len(cycles) == len(sources) else -(-variants // combined) * combined


def _parameters(workload: Workload) -> dict[str, Parameter]:
    parameters: dict[str, Parameter] = dict(workload.parameters)
    if workload.priority:
        parameters["priority"] = workload.priority
    if workload.queue_timeout_ns:
        parameters["timeout"] = workload.queue_timeout_ns // 1000  # the protocol counts microseconds
    return parameters


def _declared_inputs(workload: Workload, model: str) -> tuple[TensorMetadata, ...]:
    """The inputs as the scenario declares them, for a server that does not describe its model."""
    declared, omitted = [], omitted_inputs(workload)
    for name, given in workload.inputs.items():
        if name in omitted or name == OTHER_INPUTS:
            continue
        if given.datatype is None or given.shape is None:
            raise ModelMismatchError(f"workload.inputs.{name}: the server does not say what model '{model}' takes: give datatype and shape")
        declared.append(TensorMetadata(name, given.datatype, given.shape))
    if not declared:
        raise ModelMismatchError(
            f"workload.inputs: the server does not say what model '{model}' takes: give each input's datatype and shape, "
            "such as NAME: {generate: random, datatype: FP32, shape: [1, 4]}, or --input 'NAME={generate: random, datatype: FP32, shape: [1, 4]}'"
        )
    return tuple(declared)


def resolve_batch_size(requested: int, model: str, max_batch_size: int) -> int | None:
    """The batch dimension, None for a model without batches; raises ModelMismatchError if the model does not allow it."""
    if requested > (max_batch_size or 1):
        none = "does not support batches (its max_batch_size is 0): set it to 1"
        limit = f"takes at most {max_batch_size}" if max_batch_size else none
        raise ModelMismatchError(f"workload.batch_size: model '{model}' {limit}, found {requested}")
    return requested if max_batch_size else None


def check_names(key: str, what: str, given: tuple[str, ...], known: tuple[str, ...]) -> None:
    """Raises ModelMismatchError for a name that the model does not have, with the nearest one that it has."""
    for name in given:
        if name not in known:
            near = nearest(name, known)
            hint = f"; did you mean '{near[0]}'?" if near else "."
            raise ModelMismatchError(f"{key}: the model has no {what} '{name}'{hint} It has: {', '.join(known)}")


def parse_datatype(key: str, name: str, described: str, given: str | None) -> Datatype:
    """The datatype from the model's metadata; raises ModelMismatchError if it is unknown or differs from the scenario's."""
    if given is not None and given != described:
        raise ModelMismatchError(f"{key}.{name}.datatype: the model takes {described}, found {given}")
    try:
        return Datatype.parse(described)
    except ProtocolError as error:
        raise ModelMismatchError(f"{'input' if key.endswith('inputs') else 'output'} '{name}': {error}") from None
