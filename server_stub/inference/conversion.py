"""Checks requests against a model, and converts requests to arrays and arrays to responses, for both protocols.

Error messages are Triton's.
"""

import dataclasses
import math
from typing import Any

import numpy as np
import numpy.typing as npt

from perfkit.errors import ErrorKind, ProtocolError
from perfkit.protocol.message import InferRequest, InferResponse, RequestedOutput
from perfkit.protocol.tensor import (
    Buffer,
    Datatype,
    Tensor,
    array_dtype,
    check_size,
    encode_bytes_elements,
    tensor_from_array,
    tensor_to_array,
    tensor_view,
)
from server_stub.executors.array import Arrays, Executor, GpuArray, Inputs, SharedArray
from server_stub.inference.definition import ModelDefinition, TensorDefinition
from server_stub.shared_memory.regions import GpuSlice, SystemSlice

_VIEWED_BYTES = 2**14  # smaller outputs are copied, which costs less than a view
_BATCH_NOTE = (
    " NOTE: Setting a non-zero max_batch_size in the model config requires a batch dimension to be prepended to each input shape. "
    "If you want to specify the full shape including the batch dim in your input dims config, try setting max_batch_size to zero. "
    "See the model configuration docs for more info on max_batch_size."
)


def check_request(definition: ModelDefinition, request: InferRequest) -> int:
    """Check a request and return its batch size, 1 for a model without batches. Raises ProtocolError if it does not fit the model."""
    _check_outputs(definition, request)
    _check_known(definition, request)
    try:
        _check_names(definition, request)
        batch_size = _check_batch(definition, request)
        inputs = {tensor.name: tensor for tensor in definition.inputs}
        for tensor in request.inputs:
            _check_input(definition, inputs[tensor.name], tensor)
    except ProtocolError as error:
        raise ProtocolError(f"[request id: {request.id or '<id_unknown>'}] {error}", error.kind) from None
    return batch_size


def raw_request(definition: ModelDefinition, version: str, body: Buffer) -> InferRequest:
    """The request that a raw body stands for: one input tensor of batch 1, and all outputs as binary data.

    A variable size in the model's shape follows from the body's length. Raises ProtocolError if the model has several
    inputs or several variable sizes.
    """
    if len(definition.inputs) != 1:
        raise ProtocolError(
            "[request id: <id_unknown>] Raw request must only have 1 input (found 1) to be deduced but got "
            f"{len(definition.inputs)} inputs in '{definition.name}' model configuration"
        )
    (tensor,) = definition.inputs
    shape = [1, *tensor.dims] if definition.max_batch_size else list(tensor.dims)
    element_bits = tensor.datatype.element_bits
    if element_bits is None:
        if tensor.dims != (1,):
            raise ProtocolError(
                f"[request id: <id_unknown>] For BYTE datatype raw input '{tensor.name}', the model must have input shape [1]"
            )
        raw: Buffer = encode_bytes_elements([bytes(body)])
    elif shape.count(-1) > 1:
        raise ProtocolError(
            f"The shape of the raw input '{tensor.name}' can not be deduced because there are more than one variable-sized dimension"
        )
    else:
        fixed_bits = element_bits * math.prod(size for size in shape if size != -1)
        shape = [(8 * len(body) // fixed_bits if fixed_bits else 0) if size == -1 else size for size in shape]
        raw = body
    return InferRequest(definition.name, (Tensor(tensor.name, tensor.datatype, tuple(shape), raw),), version=version, binary_output=True)


def input_arrays(definition: ModelDefinition, request: InferRequest, executor: Executor | None = None) -> Inputs:
    """The inputs of a checked request as arrays of the model's shapes, without copying.

    Tensors in shared memory become GpuArrays and SharedArrays for an executor that accepts them, and are otherwise read.
    """
    tensors = {tensor.name: _array(tensor, executor) for tensor in request.inputs}
    return {tensor.name: _reshaped(definition, tensor, tensors[tensor.name], outward=False) for tensor in definition.inputs}


def make_response(definition: ModelDefinition, version: str, request: InferRequest, outputs: Arrays) -> InferResponse:
    """The response to a request: the requested outputs, as tensors or as top classes."""
    if not request.outputs:
        return InferResponse(
            definition.name, version, tuple([_output(definition, one, outputs[one.name], None) for one in definition.outputs]), request.id
        )
    requested = {output.name: output for output in reversed(request.outputs)}  # if a name occurs twice, the first counts
    tensors = [
        _output(definition, tensor, outputs[tensor.name], requested.get(tensor.name))
        for tensor in definition.outputs
        if tensor.name in requested
    ]
    return InferResponse(definition.name, version, tuple(tensors), request.id)


def _check_outputs(definition: ModelDefinition, request: InferRequest) -> None:
    known = {tensor.name: tensor for tensor in definition.outputs}
    for output in request.outputs:
        if output.name not in known:
            raise ProtocolError(f"unexpected inference output '{output.name}' for model '{definition.name}'")
        datatype = known[output.name].datatype
        if output.classes and datatype in (Datatype.FP16, Datatype.BF16, Datatype.BOOL, Datatype.BYTES):
            raise ProtocolError(f"class result not available for output '{output.name}' due to unsupported type '{datatype.value}'")


def _check_known(definition: ModelDefinition, request: InferRequest) -> None:
    """Reject unknown inputs first, but only if the number of inputs is right, as Triton does."""
    expected = [tensor.name for tensor in definition.inputs]
    for tensor in request.inputs:
        if tensor.name not in expected and len(request.inputs) == len(expected):
            raise ProtocolError(f"unexpected inference input '{tensor.name}' for model '{definition.name}'")


def _check_names(definition: ModelDefinition, request: InferRequest) -> None:
    expected, given = [tensor.name for tensor in definition.inputs], [tensor.name for tensor in request.inputs]
    seen: set[str] = set()
    for name in given:
        if name in seen:
            raise ProtocolError(f"input '{name}' already exists in request")
        seen.add(name)
    missing = [name for name in expected if name not in seen]
    if len(given) != len(expected) or missing:
        raise ProtocolError(
            f"expected {len(expected)} inputs but got {len(given)} inputs for model '{definition.name}'. Got input(s) {_quoted(given)}, "
            f"but missing required input(s) {_quoted(missing)}. Please provide all required input(s)."
        )


def _check_batch(definition: ModelDefinition, request: InferRequest) -> int:
    if not definition.max_batch_size:
        return 1
    for tensor in request.inputs:
        if not tensor.shape:
            raise ProtocolError(f"input '{tensor.name}' has no shape but model requires batch dimension for '{definition.name}'")
    batch_size = request.inputs[0].shape[0]
    for tensor in request.inputs:
        if tensor.shape[0] != batch_size:
            raise ProtocolError(f"input '{tensor.name}' batch size does not match other inputs for '{definition.name}'")
    if batch_size > definition.max_batch_size:
        raise ProtocolError(f"inference request batch-size must be <= {definition.max_batch_size} for '{definition.name}'")
    if batch_size < 1:
        raise ProtocolError(f"inference request batch-size must be >= 1 for '{definition.name}'")
    return batch_size


def _check_input(definition: ModelDefinition, expected: TensorDefinition, tensor: Tensor) -> None:
    if tensor.datatype is not expected.datatype:
        raise ProtocolError(
            f"inference input '{tensor.name}' data-type is '{tensor.datatype.value}', "
            f"but model '{definition.name}' expects '{expected.datatype.value}'"
        )
    shape = definition.shape(expected)
    if not _fits(tensor.shape, shape):
        raise ProtocolError(
            f"unexpected shape for input '{tensor.name}' for model '{definition.name}'. "
            f"Expected {_listed(shape)}, got {_listed(tensor.shape)}." + (_BATCH_NOTE if definition.max_batch_size else "")
        )
    expected_bytes = tensor.datatype.size_bytes(tensor.element_count)
    if expected_bytes is None:
        check_size(tensor)
        return
    if len(tensor.raw) != expected_bytes:
        raise ProtocolError(
            f"input byte size mismatch for input '{tensor.name}' for model '{definition.name}'. Expected {expected_bytes}, got {len(tensor.raw)}"
        )


def _fits(given: tuple[int, ...], shape: tuple[int, ...]) -> bool:
    if len(given) != len(shape):
        return False
    for size, expected in zip(given, shape, strict=True):  # noqa: SIM110 - a generator would take longer than the whole loop
        if size != expected and (expected != -1 or size < 0):
            return False
    return True


def _output(definition: ModelDefinition, tensor: TensorDefinition, array: npt.NDArray[Any], requested: RequestedOutput | None) -> Tensor:
    if tensor.reshape is not None:
        array = _reshaped(definition, tensor, array, outward=True)
    if requested is not None and requested.classes:
        return _top_classes(definition, tensor, array, requested.classes)
    if array.nbytes >= _VIEWED_BYTES and (view := tensor_view(tensor.name, tensor.datatype, array)) is not None:
        return view
    try:
        return tensor_from_array(tensor.name, tensor.datatype, array)
    except ProtocolError as error:  # the model is wrong, not the request
        raise ProtocolError(str(error), ErrorKind.INTERNAL) from None


def _array(tensor: Tensor, executor: Executor | None) -> Any:
    raw, has_array_form = tensor.raw, tensor.datatype.is_encoded_as_array
    if isinstance(raw, SystemSlice):
        if executor is not None and executor.accepts_shared_arrays and has_array_form:
            return SharedArray(tensor.shape, array_dtype(tensor.datatype), raw)
        read = np.empty(len(raw), np.uint8).data
        raw.read_into(read)
        return tensor_to_array(Tensor(tensor.name, tensor.datatype, tensor.shape, read))
    if isinstance(raw, GpuSlice):
        if executor is not None and executor.accepts_gpu_arrays and has_array_form and (address := raw.address) is not None:
            return GpuArray(tensor.shape, array_dtype(tensor.datatype), address, raw)
        return tensor_to_array(dataclasses.replace(tensor, raw=raw.read()))
    return tensor_to_array(tensor)


def _reshaped(definition: ModelDefinition, tensor: TensorDefinition, array: Any, *, outward: bool) -> Any:
    """Convert between the shape on the wire (`outward`) and the model's own."""
    if tensor.reshape is None:
        return array
    batch = array.shape[:1] if definition.max_batch_size else ()
    given, wanted = (tensor.reshape, tensor.dims) if outward else (tensor.dims, tensor.reshape)
    variable = iter([size for size, expected in zip(array.shape[len(batch) :], given, strict=False) if expected == -1])
    return array.reshape(*batch, *(next(variable, -1) if size == -1 else size for size in wanted))


def _top_classes(definition: ModelDefinition, tensor: TensorDefinition, array: npt.NDArray[Any], classes: int) -> Tensor:
    """The highest values as `value:index[:label]`, highest first, one row for each batch element."""
    rows = array.reshape(array.shape[0] if definition.max_batch_size else 1, -1)
    # equal values in order of their index, as in Triton
    best = rows.shape[1] - 1 - np.argsort(rows[:, ::-1], axis=1, kind="stable")[:, ::-1][:, :classes]
    texts = [[_class_text(tensor, row[index], int(index)) for index in order] for row, order in zip(rows, best, strict=True)]
    return tensor_from_array(tensor.name, Datatype.BYTES, texts if definition.max_batch_size else texts[0])


def _class_text(tensor: TensorDefinition, value: Any, index: int) -> bytes:
    text = f"{value:.6f}:{index}" if tensor.datatype.is_float else f"{value}:{index}"
    return (f"{text}:{tensor.labels[index]}" if index < len(tensor.labels) else text).encode()


def _quoted(names: list[str]) -> str:
    return "[" + ",".join(f"'{name}'" for name in names) + "]"


def _listed(shape: tuple[int, ...]) -> str:
    return "[" + ",".join(str(size) for size in shape) + "]"
