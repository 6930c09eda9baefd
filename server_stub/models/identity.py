"""Models that give back what they get, one for each datatype: `identity_fp16`, … and Triton's `simple_identity`."""

from perfkit.protocol.tensor import Datatype
from server_stub.definition import ModelDefinition, TensorDefinition
from server_stub.executors.array import ArrayExecutor, ArrayNamespace
from server_stub.executors.base import Arrays

_DATATYPES = {"simple_identity": Datatype.BYTES, **{f"identity_{datatype.value.lower()}": datatype for datatype in Datatype}}
NAMES = tuple(_DATATYPES)


def load(name: str, namespace: ArrayNamespace | None = None) -> tuple[ModelDefinition, ArrayExecutor]:
    """The model of that name, ready to execute; texts stay with NumPy, which alone has them."""
    datatype = _DATATYPES[name]
    definition = ModelDefinition(
        name,
        platform="",
        backend="array",
        max_batch_size=8,
        inputs=(TensorDefinition("INPUT0", datatype, (-1,)),),
        outputs=(TensorDefinition("OUTPUT0", datatype, (-1,)),),
    )
    return definition, ArrayExecutor(_unchanged, None if datatype is Datatype.BYTES else namespace)


def _unchanged(inputs: Arrays) -> Arrays:
    return {"OUTPUT0": inputs["INPUT0"]}
