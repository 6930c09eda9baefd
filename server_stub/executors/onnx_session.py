"""ONNX Runtime sessions: a file opened for a provider, in the precision and layout of the options."""

import pathlib
from typing import Any

from perfkit.errors import UsageError
from perfkit.installation import cache_folder
from perfkit.protocol.message import TensorMetadata
from perfkit.protocol.tensor import Datatype
from server_stub.executors.onnx_graph import fold_batch_normalizations
from server_stub.executors.onnx_options import OnnxOptions, Provider

_DATATYPES = {
    "tensor(bool)": Datatype.BOOL, "tensor(float16)": Datatype.FP16, "tensor(float)": Datatype.FP32, "tensor(double)": Datatype.FP64,
    **{f"tensor({kind}{bits})": Datatype(f"{kind.upper()}{bits}") for kind in ("uint", "int") for bits in (8, 16, 32, 64)},
}  # fmt: skip
PROVIDERS: dict[Provider, str] = {
    "cpu": "CPUExecutionProvider", "cuda": "CUDAExecutionProvider", "tensorrt": "TensorrtExecutionProvider",
}  # fmt: skip


def open_session(
    file: pathlib.Path,
    threads: int,
    options: OnnxOptions,
    *,
    model: pathlib.Path | bytes | None = None,
    compute_stream: int | None = None,
) -> Any:
    """An `onnxruntime.InferenceSession`. `options.provider` must be set; `compute_stream` is a CUDA stream's address.

    `model` is the file's `rewritten_model` if that has been made already, since it takes a second or more. Raises UsageError if the
    file cannot be loaded or the provider does not start.
    """
    try:
        import onnxruntime
    except ImportError as error:
        raise UsageError(f"ONNX models need ONNX Runtime ({error}): pip install onnx onnxruntime") from None
    provider = options.provider
    assert provider is not None
    name = PROVIDERS[provider]
    if name not in onnxruntime.get_available_providers() and provider == "tensorrt":
        raise UsageError(f"--onnx provider=tensorrt: ONNX Runtime {onnxruntime.__version__} is built without TensorRT; use provider=cuda.")
    settings = onnxruntime.SessionOptions()
    settings.intra_op_num_threads = threads
    settings.inter_op_num_threads = 1
    settings.execution_mode = onnxruntime.ExecutionMode.ORT_SEQUENTIAL
    # spinning threads would take CPU time from a load generator on the same machine
    settings.add_session_config_entry("session.intra_op.allow_spinning", "0")
    settings.add_session_config_entry("session.inter_op.allow_spinning", "0")
    model = rewritten_model(file, options) if model is None else model
    try:
        # ONNX Runtime's own fallback would continue without the provider and print to stdout
        session = onnxruntime.InferenceSession(model, settings, providers=_providers(options, compute_stream), enable_fallback=0)
    except Exception as error:  # noqa: BLE001 - ONNX Runtime's exceptions share no other base
        raise UsageError(f"{file} cannot be loaded by ONNX Runtime: {error}") from None
    if name not in session.get_providers():  # it warns, but continues
        missing = " Are TensorRT's libraries installed?" if provider == "tensorrt" else ""
        raise UsageError(f"{file} cannot run on {provider}: ONNX Runtime could not start its {name}.{missing}")
    return session


def tensor_metadata(file: pathlib.Path, tensors: Any) -> tuple[TensorMetadata, ...]:
    """A session's inputs or outputs, with -1 for variable sizes. Raises UsageError for an unsupported datatype or name."""
    described = []
    for tensor in tensors:
        try:  # the names are decoded as they are read
            name, sizes = tensor.name, tensor.shape
        except UnicodeDecodeError:
            raise UsageError(f"{file} has a tensor or a dimension whose name is not UTF-8.") from None
        if tensor.type not in _DATATYPES:
            raise UsageError(f"{file} has the tensor '{name}' of type {tensor.type}, which this server does not support.")
        shape = tuple(size if isinstance(size, int) else -1 for size in sizes)
        described.append(TensorMetadata(name, _DATATYPES[tensor.type].value, shape))
    return tuple(described)


def _providers(options: OnnxOptions, compute_stream: int | None) -> list[Any]:
    """The providers with their options, best first: operators that one cannot execute go to the next."""
    if options.provider == "cpu":
        return [PROVIDERS["cpu"]]
    stream = {} if compute_stream is None else {"user_compute_stream": str(compute_stream)}
    # the search by measuring takes four times as long for each batch size, and found nothing faster on an H100
    cuda = {"device_id": "0", **stream, "cudnn_conv_algo_search": "HEURISTIC"}
    # not for FP16: without TF32, convolutions of every precision leave out the tensor cores
    cuda["use_tf32"] = "0" if options.precision == "fp32" else "1"
    if options.layout == "nhwc":
        cuda |= {"prefer_nhwc": "1", "fuse_conv_bias": "1"}
    if options.provider == "cuda":
        return [(PROVIDERS["cuda"], cuda), PROVIDERS["cpu"]]
    tensorrt = {"device_id": "0", **stream, "trt_engine_cache_enable": "1", "trt_engine_cache_path": str(_engine_cache())}
    if options.precision in ("fp16", "bf16"):
        tensorrt[f"trt_{options.precision}_enable"] = "1"
    return [(PROVIDERS["tensorrt"], tensorrt), (PROVIDERS["cuda"], cuda), PROVIDERS["cpu"]]


def _engine_cache() -> pathlib.Path:
    """The folder of TensorRT's compiled engines, each of which takes minutes to build."""
    return cache_folder() / "tensorrt"


def rewritten_model(file: pathlib.Path, options: OnnxOptions) -> pathlib.Path | bytes:
    """The model as the provider executes it fastest. TensorRT does all of this itself."""
    if options.provider == "tensorrt":
        return file
    model: pathlib.Path | bytes = (fold_batch_normalizations(file) if options.provider == "cuda" else None) or file
    return _in_half_precision(file, model) if options.precision == "fp16" else model


def _in_half_precision(file: pathlib.Path, model: pathlib.Path | bytes) -> bytes:
    """The model of a file with FP16 weights and activations; inputs and outputs keep their datatypes."""
    try:
        import onnx
        from onnxruntime.transformers.float16 import convert_float_to_float16
    except ImportError as error:
        raise UsageError(f"--onnx precision=fp16 needs the onnx package ({error}): pip install onnx") from None
    try:
        loaded = onnx.load_from_string(model) if isinstance(model, bytes) else onnx.load(model)
        converted: bytes = convert_float_to_float16(loaded, keep_io_types=True).SerializeToString()
    except Exception as error:  # noqa: BLE001 - the converter raises whatever it meets in a broken file
        raise UsageError(f"{file} cannot be converted to FP16: {error}") from None
    return converted
