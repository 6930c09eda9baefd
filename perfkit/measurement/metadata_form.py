"""A model's metadata in v2's form, where a server gives another form, or one that is narrower than what it accepts.

A server may copy it from the model's configuration, as NVIDIA Dynamo's KServe front end did until September 2026: datatypes were `TYPE_FP32`
and `TYPE_STRING` (dynamo issue 14520), and shapes lacked the batch dimension (dynamo issue 14969).
"""

import dataclasses
from collections.abc import Mapping

from perfkit.protocol.message import ModelConfig, ModelMetadata, TensorMetadata
from perfkit.scenario.workload import Workload

_PREFIX = "TYPE_"
_OPEN = -1


def in_v2_form(metadata: ModelMetadata, config: ModelConfig, workload: Workload | None = None) -> tuple[ModelMetadata, str]:
    """The metadata in v2's form, and a sentence that says what of it is not the server's; empty if nothing.

    A shape lacks the batch dimension if it is that of the configuration of a model with batches. Of an input that is described in the other
    form, and of one that the workload forces, the workload's datatype and shape replace the server's.
    """
    found = _Found(config)
    inputs, outputs = tuple(map(found.corrected, metadata.inputs)), tuple(map(found.corrected, metadata.outputs))
    forced = {name for name, one in workload.inputs.items() if one.force} if workload is not None else set()
    chosen = tuple(_chosen(one, workload, config) if one.name in found.names | forced else one for one in inputs)
    changed = [one.name for one, before in zip(chosen, inputs, strict=True) if one != before]
    wins = f"The scenario's datatype and shape are taken for: {', '.join(changed)}." if changed else ""
    if not found.names:
        return dataclasses.replace(metadata, inputs=chosen), wins
    said = " and ".join(
        text
        for text, is_said in (
            (f"names datatypes in another way than v2 ({found.example}, read as {found.meaning})", found.example),
            ("leaves out the batch dimension, which is taken from its configuration", found.lacks_batch),
        )
        if is_said
    )
    note = f"The server's metadata of model '{metadata.name}' {said}.{' ' * bool(wins)}{wins}"
    return dataclasses.replace(metadata, inputs=chosen, outputs=outputs), note


class _Found:
    """The tensors that are described in the other form."""

    def __init__(self, config: ModelConfig) -> None:
        self._shapes: Mapping[str, tuple[int, ...]] = config.shapes if config.max_batch_size else {}
        self.names: set[str] = set()
        self.example, self.meaning, self.lacks_batch = "", "", False

    def corrected(self, one: TensorMetadata) -> TensorMetadata:
        datatype, shape = one.datatype, one.shape
        name = datatype.upper().removeprefix(_PREFIX)
        if name != datatype:
            datatype = {"STRING": "BYTES"}.get(name, name)
            self.example, self.meaning = self.example or one.datatype, self.meaning or datatype
        if self._shapes.get(one.name) == shape:
            shape, self.lacks_batch = (_OPEN, *shape), True
        if (datatype, shape) == (one.datatype, one.shape):
            return one
        self.names.add(one.name)
        return TensorMetadata(one.name, datatype, shape)


def _chosen(one: TensorMetadata, workload: Workload | None, config: ModelConfig) -> TensorMetadata:
    given = workload.inputs.get(one.name) if workload is not None else None
    if given is None:
        return one
    batch = (_OPEN,) if config.max_batch_size else ()
    shape = one.shape if given.shape is None or _fits(given.shape, one.shape[len(batch) :]) else (*batch, *given.shape)
    return TensorMetadata(one.name, given.datatype or one.datatype, shape)


def _fits(given: tuple[int, ...], described: tuple[int, ...]) -> bool:
    return len(given) == len(described) and all(want in (_OPEN, size) for size, want in zip(given, described, strict=True))
