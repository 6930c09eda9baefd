"""`simple` and its kin: the sum and the difference of two vectors, as in Triton's examples."""

from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt

from perfkit.errors import ProtocolError
from perfkit.protocol.tensor import Datatype
from server_stub.definition import ModelDefinition, TensorDefinition
from server_stub.executors.array import ArrayExecutor, ArrayNamespace
from server_stub.executors.base import Arrays

_Array = npt.NDArray[Any]


def _numbers(inputs: Arrays) -> Arrays:
    first, second = inputs["INPUT0"], inputs["INPUT1"]
    return {"OUTPUT0": first + second, "OUTPUT1": first - second}


def _decimal_strings(inputs: Arrays) -> Arrays:
    first, second = _parsed("INPUT0", inputs), _parsed("INPUT1", inputs)
    return {"OUTPUT0": _written(first + second), "OUTPUT1": _written(first - second)}


_MODELS: dict[str, tuple[Datatype, Callable[[Arrays], Arrays]]] = {
    "simple": (Datatype.INT32, _numbers),
    "simple_int8": (Datatype.INT8, _numbers),
    "simple_string": (Datatype.BYTES, _decimal_strings),
}
NAMES = tuple(_MODELS)


def load(name: str, namespace: ArrayNamespace | None = None) -> tuple[ModelDefinition, ArrayExecutor]:
    """The model of that name, ready to execute; texts stay with NumPy, which alone has them."""
    datatype, function = _MODELS[name]
    inputs, outputs = (tuple(TensorDefinition(f"{kind}{number}", datatype, (16,)) for number in (0, 1)) for kind in ("INPUT", "OUTPUT"))
    definition = ModelDefinition(name, platform="", backend="array", max_batch_size=8, inputs=inputs, outputs=outputs)
    return definition, ArrayExecutor(function, None if datatype is Datatype.BYTES else namespace)


def _parsed(name: str, inputs: Arrays) -> _Array:
    array = inputs[name]
    numbers = np.empty(array.size, dtype=object)  # Python's integers, which do not overflow
    for index, element in enumerate(array.flat):
        try:
            numbers[index] = int(element)
        except ValueError:
            raise ProtocolError(f"input '{name}' holds {element!r}, which is no decimal number") from None
    return numbers.reshape(array.shape)


def _written(numbers: _Array) -> _Array:
    texts = np.empty(numbers.size, dtype=object)
    texts[:] = [b"%d" % number for number in numbers.flat]
    return texts.reshape(numbers.shape)
