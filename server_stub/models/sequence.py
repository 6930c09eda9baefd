"""Triton's example models of sequences: they tell where in its sequence a request stands, and keep nothing between two."""

from perfkit.protocol.tensor import Datatype
from server_stub.batching import BatchingPolicy
from server_stub.definition import ModelDefinition, TensorDefinition
from server_stub.executors.array import ArrayExecutor, ArrayNamespace
from server_stub.executors.base import Arrays
from server_stub.sequences import Control, ControlKind, SequencePolicy

NAMES = ("simple_sequence", "simple_dyna_sequence")
_S = 1_000_000_000
_START, _READY = Control("START", ControlKind.START), Control("READY", ControlKind.READY)
_END, _CORRID = Control("END", ControlKind.END), Control("CORRID", ControlKind.CORRID, Datatype.UINT64)
_POLICIES = {
    "simple_sequence": SequencePolicy((_START, _READY), max_idle_ns=5 * _S),
    "simple_dyna_sequence": SequencePolicy((_START, _READY, _END, _CORRID), 10 * _S, oldest=BatchingPolicy((4, 8)), max_candidates=4096),
}


def load(name: str, namespace: ArrayNamespace | None = None) -> tuple[ModelDefinition, ArrayExecutor]:
    """The model of that name, ready to execute."""
    given, result = (TensorDefinition(tensor, Datatype.INT32, (1,)) for tensor in ("INPUT", "OUTPUT"))
    definition = ModelDefinition(
        name, platform="", backend="array", max_batch_size=8, inputs=(given,), outputs=(result,), scheduling=_POLICIES[name]
    )
    return definition, ArrayExecutor(_started if name == "simple_sequence" else _started_and_ended, namespace)


def _started(inputs: Arrays) -> Arrays:
    return {"OUTPUT": inputs["READY"] * (inputs["INPUT"] + inputs["START"])}


def _started_and_ended(inputs: Arrays) -> Arrays:
    ids = inputs["END"] * inputs["CORRID"].astype("int32")
    return {"OUTPUT": inputs["READY"] * (inputs["INPUT"] + inputs["START"] + ids)}
