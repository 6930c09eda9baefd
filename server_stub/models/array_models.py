"""Triton's example models as functions over arrays: `simple`, `identity_…` and the sequence models."""

from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt

from perfkit.errors import ProtocolError
from perfkit.protocol.tensor import Datatype
from server_stub.executors.array import ArrayExecutor, ArrayNamespace, Arrays
from server_stub.inference.definition import ModelDefinition, TensorDefinition
from server_stub.scheduling.batching import BatchingPolicy
from server_stub.scheduling.sequences import Control, ControlKind, SequencePolicy

_Array = npt.NDArray[Any]
_MAX_BATCH_SIZE, _MAX_DIGITS = 8, 1000
_NS_PER_S = 1_000_000_000


def load(name: str, namespace: ArrayNamespace | None = None) -> tuple[ModelDefinition, ArrayExecutor]:
    """A model's definition and executor. BYTES tensors always use NumPy, since CuPy has no strings."""
    function, datatype, definition = _MODELS[name](name)
    return definition, ArrayExecutor(function, None if datatype is Datatype.BYTES else namespace)


_Model = tuple[Callable[[Arrays], Arrays], Datatype, ModelDefinition]


def _sum_and_difference(name: str) -> _Model:
    """`simple` and its variants: the sum and the difference of two vectors."""
    datatype = {"simple": Datatype.INT32, "simple_int8": Datatype.INT8, "simple_string": Datatype.BYTES}[name]
    inputs, outputs = (tuple(TensorDefinition(f"{kind}{number}", datatype, (16,)) for number in (0, 1)) for kind in ("INPUT", "OUTPUT"))
    function = _add_decimal_strings if datatype is Datatype.BYTES else _add_numbers
    return function, datatype, ModelDefinition(name, "", "array", _MAX_BATCH_SIZE, inputs, outputs)


def _add_numbers(inputs: Arrays) -> Arrays:
    first, second = inputs["INPUT0"], inputs["INPUT1"]
    return {"OUTPUT0": first + second, "OUTPUT1": first - second}


def _add_decimal_strings(inputs: Arrays) -> Arrays:
    first, second = _parse_decimals("INPUT0", inputs), _parse_decimals("INPUT1", inputs)
    return {"OUTPUT0": _format_decimals(first + second), "OUTPUT1": _format_decimals(first - second)}


def _parse_decimals(name: str, inputs: Arrays) -> _Array:
    array = inputs[name]
    numbers = np.empty(array.size, dtype=object)  # Python's integers, which do not overflow
    for index, element in enumerate(array.flat):
        try:
            numbers[index] = int(element[: _MAX_DIGITS + 1])
        except ValueError:
            raise ProtocolError(f"input '{name}' holds {element[:100]!r}, which is not a decimal number") from None
        if len(element) > _MAX_DIGITS:
            raise ProtocolError(f"input '{name}' holds a number of {len(element):,} digits, and {_MAX_DIGITS:,} are the most")
    return numbers.reshape(array.shape)


def _format_decimals(numbers: _Array) -> _Array:
    texts = np.empty(numbers.size, dtype=object)
    texts[:] = [b"%d" % number for number in numbers.flat]
    return texts.reshape(numbers.shape)


_IDENTITIES = {"simple_identity": Datatype.BYTES, **{f"identity_{datatype.value.lower()}": datatype for datatype in Datatype}}


def _identity(name: str) -> _Model:
    """A model that returns its input unchanged."""
    datatype = _IDENTITIES[name]
    inputs, outputs = ((TensorDefinition(tensor, datatype, (-1,)),) for tensor in ("INPUT0", "OUTPUT0"))
    definition = ModelDefinition(name, "", "array", _MAX_BATCH_SIZE, inputs, outputs)
    return lambda arrays: {"OUTPUT0": arrays["INPUT0"]}, datatype, definition


_START, _READY = Control("START", ControlKind.START), Control("READY", ControlKind.READY)
_END, _CORRID = Control("END", ControlKind.END), Control("CORRID", ControlKind.CORRID, Datatype.UINT64)
_SEQUENCE_POLICIES = {
    "simple_sequence": SequencePolicy((_START, _READY), max_idle_ns=5 * _NS_PER_S),
    "simple_dyna_sequence": SequencePolicy(
        (_START, _READY, _END, _CORRID), 10 * _NS_PER_S, oldest=BatchingPolicy((4, 8)), max_candidates=4096
    ),
}


def _sequence(name: str) -> _Model:
    """A model that returns a request's position in its sequence. It keeps no state between requests."""
    inputs, outputs = ((TensorDefinition(tensor, Datatype.INT32, (1,)),) for tensor in ("INPUT", "OUTPUT"))
    definition = ModelDefinition(name, "", "array", _MAX_BATCH_SIZE, inputs, outputs, scheduling=_SEQUENCE_POLICIES[name])
    return _add_start if name == "simple_sequence" else _add_start_and_end, Datatype.INT32, definition


def _add_start(inputs: Arrays) -> Arrays:
    return {"OUTPUT": inputs["READY"] * (inputs["INPUT"] + inputs["START"])}


def _add_start_and_end(inputs: Arrays) -> Arrays:
    ids = inputs["END"] * inputs["CORRID"].astype("int32")
    return {"OUTPUT": inputs["READY"] * (inputs["INPUT"] + inputs["START"] + ids)}


_MODELS: dict[str, Callable[[str], _Model]] = {
    **dict.fromkeys(("simple", "simple_int8", "simple_string"), _sum_and_difference),
    **dict.fromkeys(_IDENTITIES, _identity),
    **dict.fromkeys(_SEQUENCE_POLICIES, _sequence),
}
NAMES = tuple(_MODELS)
