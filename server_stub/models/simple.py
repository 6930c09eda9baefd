"""`simple`: the sum and the difference of two vectors, as in Triton's examples."""

from perfkit.protocol.tensor import Datatype
from server_stub.definition import ModelDefinition, TensorDefinition
from server_stub.executors.array import ArrayExecutor
from server_stub.executors.base import Arrays


def _vector(name: str) -> TensorDefinition:
    return TensorDefinition(name, Datatype.INT32, (16,))


DEFINITION = ModelDefinition(
    name="simple",
    platform="",
    backend="array",
    max_batch_size=8,
    inputs=(_vector("INPUT0"), _vector("INPUT1")),
    outputs=(_vector("OUTPUT0"), _vector("OUTPUT1")),
)


def load() -> ArrayExecutor:
    """The model, ready to execute."""
    return ArrayExecutor(_sum_and_difference)


def _sum_and_difference(inputs: Arrays) -> Arrays:
    first, second = inputs["INPUT0"], inputs["INPUT1"]
    return {"OUTPUT0": first + second, "OUTPUT1": first - second}
