"""Checks answers: the requested outputs, their metadata, and expected values."""

import dataclasses
import pathlib
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple, Self

import numpy as np
import numpy.typing as npt

from perfkit.errors import ModelMismatchError, ProtocolError, ScenarioError
from perfkit.machine.limits import MemoryBudget
from perfkit.protocol.message import InferRequest, InferResponse, ModelMetadata, TensorMetadata
from perfkit.protocol.tensor import Datatype, Tensor, check_size, tensor_to_array
from perfkit.workload.shared_tensors import OutputSlots

if TYPE_CHECKING:  # the processes that check answers do without pydantic
    from perfkit.scenario.workload import Check


class Asked(NamedTuple):
    """What a request asks for."""

    id: str
    outputs: tuple[str, ...]


@dataclasses.dataclass
class Expectation:
    """Checks answers against the model's metadata and the scenario's expected values. Plain data, which is sent to the processes that check."""

    asked: tuple[Asked, ...]
    """What each request asks for."""
    described: tuple[TensorMetadata, ...]
    """The outputs by the model's metadata."""
    classified: frozenset[str]
    """The outputs that are requested as classes."""
    expected: Mapping[str, tuple[Tensor, ...]]
    """By output, the values that the scenario expects of the requests in turn."""
    from_data: tuple[Mapping[str, Tensor], ...]
    """For each request the outputs that `workload.data` expects; empty without any."""
    tolerances: Mapping[str, float]
    """By the datatypes of floats."""
    model: str = ""
    """The name of the model that is asked; empty if the server gives its models other names. An answer need not name its model."""
    may_lack_id: bool = False
    """Whether an answer need not repeat the request's id."""
    needs_response: bool = False
    """Whether a stream that ends without a response is a wrong answer, although its protocol has no other way to say that there is none."""
    has_one_response: bool = False
    """Whether a streamed request has one response by the model's configuration, so that one with more is wrong."""
    slots: OutputSlots | None = None
    """Where outputs lie in shared memory; the requests are then those of a round of `OutputSlots`. None without any."""

    @classmethod
    def of(
        cls,
        requests: tuple[InferRequest, ...],
        metadata: ModelMetadata,
        check: "Check",
        batch_size: int | None,
        folder: pathlib.Path,
        budget: MemoryBudget | None = None,
        from_data: Sequence[Mapping[str, Tensor]] = (),
    ) -> Self:
        """What a scenario expects of the answers to its requests.

        Raises ModelMismatchError if the expected values do not fit the metadata, ScenarioError if a file cannot be read, or an output has
        expected values in two places.
        """
        from perfkit.workload.inputs import TensorSource
        from perfkit.workload.requests import check_names, parse_datatype

        if both := sorted(check.outputs.keys() & {name for expected in from_data for name in expected}):
            raise ScenarioError(f"check.outputs.{both[0]}: workload.data has expected values of this output, too: remove one of them")
        budget = budget or MemoryBudget()
        values: dict[str, tuple[Tensor, ...]] = {}
        described = {output.name: output for output in metadata.outputs or _declared_outputs(check, metadata.name)}
        check_names("check.outputs", "output", tuple(check.outputs), tuple(described))
        for name, given in check.outputs.items():
            output = described[name]
            datatype = parse_datatype("check.outputs", name, output.datatype, given.datatype)
            shape = output.shape[1:] if batch_size is not None and metadata.outputs else output.shape
            source = TensorSource(name, datatype, given, shape, batch_size, folder, key=f"check.outputs.{name}", budget=budget)
            # expected values are never random
            values[name] = tuple(source.tensor(place, np.random.default_rng()) for place in range(source.cycle_length))
        return cls(
            asked=tuple(Asked(request.id, tuple(output.name for output in request.outputs)) for request in requests),
            described=metadata.outputs,
            classified=frozenset(output.name for output in requests[0].outputs if output.classes),
            expected=values,
            from_data=tuple(from_data),
            model=requests[0].model,
            tolerances={datatype.value: check.tolerance_of(datatype.value) for datatype in Datatype if datatype.is_float},
        )

    def of_events(self, *, is_decoupled: bool) -> "Expectation":
        """What is expected of server-sent events, whose outputs have neither datatypes nor shapes, and which need not have an id.

        Outputs are members of the event beside `id`, which is not compared if the model has an output of that name. Only a
        decoupled model's stream may have no event.
        """
        has_id = all(output.name != "id" for output in self.described)
        asked = tuple(Asked(one.id if has_id else "", ()) for one in self.asked)
        return Expectation(asked, (), frozenset(), {}, (), {}, self.model, may_lack_id=True, needs_response=not is_decoupled)

    def learn_model(self, name: str) -> None:
        """Takes the name that the metadata, or the answer to the probe, has for the model.

        A server whose name for it is another, such as Seldon's `iris_1` for `iris`, may have several, of revisions and experiments.
        """
        if name not in ("", self.model):
            self.model = ""

    def model_fault(self, response: InferResponse) -> str:
        """Whose answer it is if it is another model's, as the end of a sentence; otherwise empty."""
        is_other = response.model and self.model and response.model != self.model
        return f"is of the model '{response.model}', where '{self.model}' was asked" if is_other else ""

    def fault(self, response: InferResponse, variant: int = 0) -> str:
        """The first fault of the answer to request `variant`, as the end of a sentence; empty if there is none."""
        if self.slots is not None:
            try:
                response, variant = self.slots.complete(response, variant), variant % len(self.asked)
            except ProtocolError as error:
                return f"is broken: {error}"
        if fault := self.model_fault(response):
            return fault
        asked = self.asked[variant]
        answered = {output.name: output for output in response.outputs}
        needed = (*asked.outputs, *self.expected, *(self.from_data[variant] if self.from_data else ()))
        if missing := [name for name in dict.fromkeys(needed) if name not in answered]:
            return f"lacks the output {', '.join(missing)}"
        if asked.id and response.id != asked.id and (response.id or not self.may_lack_id):
            return f"carries the id '{response.id}', where '{asked.id}' was sent"
        if self.described and not answered:
            return "holds no outputs"
        for described in self.described:
            output = answered.get(described.name)
            expected = "BYTES" if described.name in self.classified else described.datatype
            if output is None:
                continue
            if output.datatype.value != expected:
                return f"holds {output.datatype.value} in output '{output.name}', where the model's metadata says {expected}"
            if described.name not in self.classified and not _fits(output.shape, described.shape):
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
        values = self.expected.get(output.name)
        if values is not None:
            expected: Tensor | None = values[variant % len(values)]
        else:
            expected = self.from_data[variant].get(output.name) if self.from_data else None
        if expected is None:
            return ""
        if output.datatype is not expected.datatype:
            return f"holds {output.datatype.value} in output '{output.name}', where {expected.datatype.value} is expected"
        if output.shape != expected.shape:
            return f"has shape {list(output.shape)} in output '{output.name}', where {list(expected.shape)} is expected"
        found, wanted = tensor_to_array(output), tensor_to_array(expected)
        wrong = found != wanted
        if output.datatype.is_float:
            wrong &= ~_are_close(found, wanted, self.tolerances[output.datatype.value])
        if not wrong.any():
            return ""
        index = tuple(int(indices[0]) for indices in np.nonzero(wrong))
        first = f"the one at {list(index)} is {found[index]}, where {wanted[index]} is expected"
        return f"holds {int(wrong.sum())} wrong values in output '{output.name}': {first}"


def _declared_outputs(check: "Check", model: str) -> tuple[TensorMetadata, ...]:
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
