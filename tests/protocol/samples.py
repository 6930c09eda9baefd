"""Arrays of every datatype, and a model's metadata, for tests of both encodings."""

import ml_dtypes
import numpy as np

from perfkit.protocol.message import ModelMetadata, TensorMetadata
from perfkit.protocol.tensor import Datatype, tensor_from_array

ARRAYS = {
    "BOOL": np.array([[True, False], [False, True]]),
    "UINT8": np.array([[0, 255]], dtype=np.uint8),
    "UINT16": np.array([1, 65535], dtype=np.uint16),
    "UINT32": np.array([1, 2**32 - 1], dtype=np.uint32),
    "UINT64": np.array([2**53 + 1, 2**64 - 1], dtype=np.uint64),
    "INT8": np.array([-128, 127], dtype=np.int8),
    "INT16": np.array([-32768, 32767], dtype=np.int16),
    "INT32": np.array([[[-(2**31)], [2**31 - 1]]], dtype=np.int32),
    "INT64": np.array([-(2**63), 2**53 + 1], dtype=np.int64),
    "FP16": np.array([1.5, -65504.0, np.inf], dtype=np.float16),
    "BF16": np.array([1.5, -2.0, 3.0e38], dtype=ml_dtypes.bfloat16),
    "FP32": np.array([0.1, -1.5e-40, 3.4e38], dtype=np.float32),
    "FP64": np.array([0.1, -5e-324, 1.7e308], dtype=np.float64),
    "BYTES": np.array([[b"text", b""], [b"a\x00b\x00", "ü€".encode()]], dtype=object),
}
METADATA = ModelMetadata(
    "simple", ("1", "2"), "onnxruntime_onnx", (TensorMetadata("INPUT0", "INT32", (-1, 16)),), (TensorMetadata("OUTPUT0", "BYTES", ()),)
)


def our_tensor(name, datatype):
    array = ARRAYS[datatype]
    return tensor_from_array(name, Datatype[datatype], array.astype(np.float32) if datatype == "BF16" else array)
