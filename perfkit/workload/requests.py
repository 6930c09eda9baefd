"""The pool of requests that a run cycles through, made from the model's metadata before any clock starts."""

import difflib
import pathlib

import numpy as np

from perfkit.errors import ModelMismatchError, ProtocolError
from perfkit.protocol.message import InferRequest, ModelMetadata, RequestedOutput
from perfkit.protocol.tensor import Datatype
from perfkit.scenario.model import GeneratedInput, Workload
from perfkit.workload.inputs import make_input


def make_requests(
    workload: Workload, metadata: ModelMetadata, max_batch_size: int, version: str, folder: pathlib.Path
) -> tuple[InferRequest, ...]:
    """`workload.variants` different requests, or one where nothing in them is random.

    The same seed gives the same requests. Inputs that the workload does not name are random. Raises
    ModelMismatchError where the workload does not fit the metadata, naming the key and the nearest name.
    """
    _check_names("workload.inputs", "input", tuple(workload.inputs), tuple(one.name for one in metadata.inputs))
    _check_names("workload.outputs", "output", tuple(one.name for one in workload.outputs), tuple(one.name for one in metadata.outputs))
    batch_size = _batch_size(workload.batch_size, metadata.name, max_batch_size)
    given = {one.name: workload.inputs.get(one.name, GeneratedInput(generate="random")) for one in metadata.inputs}
    is_random = any(isinstance(one, GeneratedInput) and one.generate == "random" for one in given.values())
    outputs = tuple(RequestedOutput(one.name, one.classes) for one in workload.outputs)
    requests = []
    for variant in range(workload.variants if is_random else 1):
        tensors = []
        for index, described in enumerate(metadata.inputs):
            random = np.random.default_rng([workload.seed, variant, index])
            shape = described.shape[1:] if batch_size is not None else described.shape
            tensors.append(
                make_input(
                    described.name,
                    _datatype(described.name, described.datatype),
                    given[described.name],
                    shape,
                    batch_size,
                    folder=folder,
                    random=random,
                )
            )
        requests.append(InferRequest(model=metadata.name, version=version, inputs=tuple(tensors), outputs=outputs))
    return tuple(requests)


def _batch_size(asked: int, model: str, max_batch_size: int) -> int | None:
    if max_batch_size == 0:
        if asked != 1:
            raise ModelMismatchError(
                f"workload.batch_size: model '{model}' takes no batches (its max_batch_size is 0): leave it at 1, found {asked}"
            )
        return None
    if asked > max_batch_size:
        raise ModelMismatchError(f"workload.batch_size: model '{model}' takes at most {max_batch_size}, found {asked}")
    return asked


def _check_names(key: str, what: str, given: tuple[str, ...], known: tuple[str, ...]) -> None:
    for name in given:
        if name not in known:
            near = difflib.get_close_matches(name, known, n=1, cutoff=0.5)
            hint = f"; did you mean '{near[0]}'?" if near else "."
            raise ModelMismatchError(f"{key}: the model has no {what} '{name}'{hint} It has: {', '.join(known)}")


def _datatype(name: str, datatype: str) -> Datatype:
    try:
        return Datatype.parse(datatype)
    except ProtocolError as error:
        raise ModelMismatchError(f"input '{name}': {error}") from None
