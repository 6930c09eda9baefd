"""Checks answers: the requested outputs, their metadata, and expected values."""

import pathlib
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from perfkit.errors import ModelMismatchError, ProtocolError, ScenarioError
from perfkit.machine.limits import MemoryBudget
from perfkit.protocol.message import InferRequest, InferResponse, ModelMetadata, TensorMetadata
from perfkit.protocol.tensor import Tensor, check_size, tensor_to_array
from perfkit.scenario.workload import Check
from perfkit.workload.inputs import TensorSource
from perfkit.workload.requests import check_names, parse_datatype
from perfkit.workload.shared_tensors import OutputSlots


class Expectation:
    """Checks answers against the model's metadata and the scenario's expected values.

    `from_data` are the outputs that `workload.data` expects of each request. Raises ModelMismatchError if the expected values do not fit
    the metadata, ScenarioError if a file cannot be read, or an output has expected values in two places.
    """

    def __init__(
        self,
        requests: tuple[InferRequest, ...],
        metadata: ModelMetadata,
        check: Check,
        batch_size: int | None,
        folder: pathlib.Path,
        budget: MemoryBudget | None = None,
        from_data: Sequence[Mapping[str, Tensor]] = (),
    ) -> None:
        self._requests, self._tolerance_of, self._from_data = requests, check.tolerance_of, from_data
        if both := sorted(check.outputs.keys() & {name for expected in from_data for name in expected}):
            raise ScenarioError(f"check.outputs.{both[0]}: workload.data has expected values of this output, too: remove one of them")
        self._classified = {output.name for output in requests[0].outputs if output.classes}
        budget = budget or MemoryBudget()
        self._expected: dict[str, TensorSource] = {}
        described = {output.name: output for output in metadata.outputs or _declared_outputs(check, metadata.name)}
        check_names("check.outputs", "output", tuple(check.outputs), tuple(described))
        for name, given in check.outputs.items():
            output = described[name]
            datatype = parse_datatype("check.outputs", name, output.datatype, given.datatype)
            shape = output.shape[1:] if batch_size is not None and metadata.outputs else output.shape
            source = TensorSource(name, datatype, given, shape, batch_size, folder, key=f"check.outputs.{name}", budget=budget)
            self._expected[name] = source
        self._described = metadata.outputs
        self.slots: OutputSlots | None = None
        """Where outputs lie in shared memory; the requests are then those of a round of `OutputSlots`. None without any."""

    def fault(self, response: InferResponse, variant: int = 0) -> str:
        """The first fault of the answer to request `variant`, as the end of a sentence; empty if there is none."""
        if self.slots is not None:
            try:
                response, variant = self.slots.complete(response, variant), variant % len(self._requests)
            except ProtocolError as error:
                return f"is broken: {error}"
        request = self._requests[variant]
        answered = {output.name: output for output in response.outputs}
        needed = (*(one.name for one in request.outputs), *self._expected, *(self._from_data[variant] if self._from_data else ()))
        if missing := [name for name in dict.fromkeys(needed) if name not in answered]:
            return f"lacks the output {', '.join(missing)}"
        if request.id and response.id != request.id:
            return f"carries the id '{response.id}', where '{request.id}' was sent"
        if self._described and not answered:
            return "holds no outputs"
        for described in self._described:
            output = answered.get(described.name)
            expected = "BYTES" if described.name in self._classified else described.datatype
            if output is None:
                continue
            if output.datatype.value != expected:
                return f"holds {output.datatype.value} in output '{output.name}', where the model's metadata says {expected}"
            if described.name not in self._classified and not _fits(output.shape, described.shape):
                return f"has shape {list(output.shape)} in output '{output.name}', where the model's metadata says {list(described.shape)}"
        return self._content_fault(answered, variant)

    def _content_fault(self, answered: Mapping[str, Tensor], variant: int) -> str:
        for output in answered.values():
            try:
                check_size(output)
                if wrong := self._difference(output, variant):
                    return wrong
            except ProtocolError as error:
                return f"is broken: {error}"
        return ""

    def _difference(self, output: Tensor, variant: int) -> str:
        source, expected = self._expected.get(output.name), self._from_data[variant].get(output.name) if self._from_data else None
        if source is not None:
            expected = source.tensor(variant, np.random.default_rng())  # expected values are never random
        if expected is None:
            return ""
        if output.datatype is not expected.datatype:
            return f"holds {output.datatype.value} in output '{output.name}', where {expected.datatype.value} is expected"
        if output.shape != expected.shape:
            return f"has shape {list(output.shape)} in output '{output.name}', where {list(expected.shape)} is expected"
        found, wanted = tensor_to_array(output), tensor_to_array(expected)
        wrong = found != wanted
        if output.datatype.is_float:
            wrong &= ~_are_close(found, wanted, self._tolerance_of(output.datatype.value))
        if not wrong.any():
            return ""
        index = tuple(int(indices[0]) for indices in np.nonzero(wrong))
        first = f"the one at {list(index)} is {found[index]}, where {wanted[index]} is expected"
        return f"holds {int(wrong.sum())} wrong values in output '{output.name}': {first}"


def _declared_outputs(check: Check, model: str) -> tuple[TensorMetadata, ...]:
    """The outputs as the scenario declares them, for a server that does not describe its model's."""
    for name, given in check.outputs.items():
        if given.datatype is None or given.shape is None:
            raise ModelMismatchError(f"check.outputs.{name}: the server does not say what model '{model}' returns: give datatype and shape")
    return tuple(TensorMetadata(name, str(given.datatype), given.shape or ()) for name, given in check.outputs.items())


def _are_close(found: npt.NDArray[Any], wanted: npt.NDArray[Any], tolerance: float) -> npt.NDArray[np.bool_]:
    found, wanted = found.astype(np.float64), wanted.astype(np.float64)
    with np.errstate(invalid="ignore"):  # the difference of equal infinities is NaN
        close = np.abs(found - wanted) <= tolerance * np.maximum(1.0, np.abs(wanted))
    equal: npt.NDArray[np.bool_] = (close & np.isfinite(wanted)) | (np.isnan(found) & np.isnan(wanted))
    return equal


def _fits(shape: tuple[int, ...], described: tuple[int, ...]) -> bool:
    return len(shape) == len(described) and all(want in (-1, size) for size, want in zip(shape, described, strict=True))
