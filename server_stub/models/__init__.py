"""The built-in models. This module has only their names, so that parsing options loads no libraries."""

_DATATYPES = ("bool", "uint8", "uint16", "uint32", "uint64", "int8", "int16", "int32", "int64", "fp16", "bf16", "fp32", "fp64", "bytes")

NAMES = (
    "simple", "simple_int8", "simple_string", "simple_identity", *(f"identity_{datatype}" for datatype in _DATATYPES),
    "simple_sequence", "simple_dyna_sequence", "repeat_int32", "synthetic", "densenet_onnx", "densenet_batch",
)  # fmt: skip
