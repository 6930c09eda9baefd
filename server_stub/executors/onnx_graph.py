"""Rewrites an ONNX graph for a GPU: batch normalizations take in the products and sums with constants that follow them.

Networks that were converted from Caffe, such as the model zoo's DenseNet, have batch normalization as three operators, of which each reads
and writes the whole tensor on a GPU. Folded, they are one. Values change by rounding alone.
"""

import pathlib
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

_MAX_BYTES = 2**30  # a serialized model must be smaller than 2 GiB
_FIRST_OPSET = 7  # since then, operands broadcast as in NumPy


def fold_batch_normalizations(file: pathlib.Path) -> bytes | None:
    """The model with each chain of BatchNormalization, Mul and Add as one BatchNormalization; None if it has none, or cannot be rewritten."""
    try:
        import onnx
    except ImportError:
        return None
    if not file.exists() or file.stat().st_size > _MAX_BYTES:
        return None
    try:
        model = onnx.load(file, load_external_data=False)
    except Exception:  # noqa: BLE001 - ONNX Runtime reports a broken file in its own words
        return None
    has_external_data = any(tensor.data_location == onnx.TensorProto.EXTERNAL for tensor in model.graph.initializer)
    is_old = any(entry.domain == "" and entry.version < _FIRST_OPSET for entry in model.opset_import)
    if has_external_data or is_old or not any(node.op_type == "BatchNormalization" for node in model.graph.node):
        return None
    try:
        inferred = onnx.shape_inference.infer_shapes(model).graph
    except Exception:  # noqa: BLE001 - without shapes nothing is folded
        return None
    if any(attribute.HasField("g") or attribute.graphs for node in model.graph.node for attribute in node.attribute):
        return None  # what a branch or a loop uses stands in its own graph
    ranks = {value.name: len(value.type.tensor_type.shape.dim) for value in (*inferred.value_info, *inferred.output)}
    return bytes(model.SerializeToString()) if _Folding(model.graph, ranks).fold() else None


class _Folding:
    """The constants of a graph, and the nodes that use each tensor. `ranks` are the tensors' numbers of dimensions."""

    def __init__(self, graph: Any, ranks: Mapping[str, int]) -> None:
        import onnx

        self._graph, self._ranks = graph, ranks
        self._helper: Any = onnx.numpy_helper
        self._constants = {tensor.name: tensor for tensor in graph.initializer}
        self._unsqueezed = {node.output[0]: node for node in graph.node if node.op_type == "Unsqueeze" and node.input[0] in self._constants}
        self._users: dict[str, list[Any]] = {}
        for node in graph.node:
            for name in node.input:
                self._users.setdefault(name, []).append(node)
        for output in graph.output:  # what the graph returns must stay
            self._users.setdefault(output.name, []).append(None)

    def fold(self) -> int:
        """Fold all chains, and return their number."""
        folded = [self._fold(node) for node in self._graph.node if node.op_type == "BatchNormalization"]
        if any(folded):
            self._remove({id(node) for nodes in folded for node in nodes})
        return sum(map(bool, folded))

    def _remove(self, absorbed: set[int]) -> None:
        """Remove nodes, and the constants that only they used: ONNX Runtime would warn of each."""
        nodes = [node for node in self._graph.node if id(node) not in absorbed]
        used = {name for node in nodes for name in node.input} | {output.name for output in self._graph.output}
        nodes = [node for node in nodes if node.op_type != "Unsqueeze" or node.output[0] in used]
        used = {name for node in nodes for name in node.input} | {output.name for output in self._graph.output}
        _replace(self._graph.node, nodes)
        unused = {tensor.name for tensor in self._graph.initializer if tensor.name not in used}
        _replace(self._graph.initializer, [tensor for tensor in self._graph.initializer if tensor.name not in unused])
        # up to IR version 3, constants are listed as inputs, too
        _replace(self._graph.input, [value for value in self._graph.input if value.name not in unused])

    def _fold(self, normalization: Any) -> list[Any]:
        """Fold what follows a batch normalization into it; the nodes that are no longer needed."""
        names = list(normalization.input[1:])
        if len(normalization.output) != 1 or not all(name in self._constants for name in names):
            return []
        scale, bias = (self._value(name).astype(np.float64) for name in names[:2])
        if scale.ndim != 1 or bias.shape != scale.shape:  # before opset 9, there may be a value for each element
            return []
        output, absorbed = normalization.output[0], []
        for node, values in self._followers(output, len(scale)):
            if node.op_type == "Mul":
                scale, bias = scale * values, bias * values
            else:
                bias = bias + values
            absorbed.append(node)
            output = node.output[0]
        if absorbed:
            datatype = self._value(names[0]).dtype
            for position, (suffix, values) in enumerate((("scale", scale), ("bias", bias)), start=1):
                name = f"{output}/folded_{suffix}"
                self._graph.initializer.append(self._helper.from_array(values.astype(datatype), name))
                normalization.input[position] = name
            normalization.output[0] = output
        return absorbed

    def _followers(self, output: str, channels: int) -> Iterator[tuple[Any, npt.NDArray[np.float64]]]:
        """The products and sums with one constant per channel that follow `output`, each the only user of the one before."""
        while len(users := self._users.get(output, [])) == 1 and users[0] is not None and users[0].op_type in ("Mul", "Add"):
            others = [name for name in users[0].input if name != output]
            values = self._per_channel(others[0], channels, self._ranks.get(output, 0)) if len(others) == 1 else None
            if values is None:
                return
            yield users[0], values
            output = users[0].output[0]

    def _per_channel(self, name: str, channels: int, rank: int) -> npt.NDArray[np.float64] | None:
        """A constant that broadcasts along the second of `rank` dimensions, as one value per channel; None for others."""
        value = self._constant(name)
        if value is None or value.ndim > rank or rank < 2:
            return None
        if value.shape and (1,) * (rank - value.ndim) + value.shape != (1, channels, *(1,) * (rank - 2)):
            return None
        return np.broadcast_to(value.astype(np.float64).reshape(-1), channels)

    def _constant(self, name: str) -> npt.NDArray[Any] | None:
        """A constant, or one with more dimensions by Unsqueeze."""
        if name in self._constants:
            return self._value(name)
        node = self._unsqueezed.get(name)
        if node is None:
            return None
        axes = [axis for attribute in node.attribute if attribute.name == "axes" for axis in attribute.ints]
        if len(node.input) > 1:  # since opset 13
            given = self._constant(node.input[1])
            if given is None:
                return None
            axes = given.tolist()
        return np.expand_dims(self._value(node.input[0]), tuple(axes))

    def _value(self, name: str) -> npt.NDArray[Any]:
        value: npt.NDArray[Any] = self._helper.to_array(self._constants[name])
        return value


def _replace(field: Any, kept: Sequence[Any]) -> None:
    """Reduce a repeated field to some of its own messages."""
    copies = [type(message).FromString(message.SerializeToString()) for message in kept]
    del field[:]
    field.extend(copies)
