"""`densenet_onnx`: the image classifier of Triton's quick start, with random weights or from a trained file.

`densenet_batch` is the same model with a batch dimension and dynamic batching, always with random weights.
"""

import dataclasses
import pathlib
import sys
import tempfile

from perfkit.errors import UsageError
from perfkit.input_file import LARGEST_TEXT_BYTES, read_bounded
from perfkit.installation import cache_folder
from perfkit.protocol.message import TensorMetadata
from perfkit.protocol.tensor import Datatype
from server_stub.executors.array import Executor
from server_stub.executors.onnx import OnnxRuntime
from server_stub.inference.definition import ModelDefinition, TensorDefinition
from server_stub.models import densenet_graph
from server_stub.scheduling.batching import BatchingPolicy

NAME, BATCH_NAME = "densenet_onnx", "densenet_batch"
LABEL_FILENAME = "densenet_labels.txt"
_CLASSES = 1000
_INPUT = TensorDefinition("data_0", Datatype.FP32, (3, 224, 224), reshape=(1, 3, 224, 224), format="FORMAT_NCHW")


def load(runtime: OnnxRuntime, trained: pathlib.Path | None = None) -> tuple[ModelDefinition, Executor]:
    """`densenet_onnx` and its executor. `trained` is the model zoo's densenet-7 file; None uses random weights."""
    executor = runtime.load(trained or seeded_file())
    expected = (TensorMetadata("data_0", "FP32", (1, 3, 224, 224)), TensorMetadata("fc6_1", "FP32", (1, _CLASSES, 1, 1)))
    actual = (*executor.inputs, *executor.outputs)
    if actual != expected:
        raise UsageError(f"{trained} is not the model zoo's densenet-7: it has {_listed(actual)}, expected {_listed(expected)}.")
    labels = read_labels(trained.with_name(LABEL_FILENAME)) if trained else neutral_labels()
    return dataclasses.replace(definition(labels), device=runtime.device, instances=executor.instances), executor


def load_batched(runtime: OnnxRuntime) -> tuple[ModelDefinition, Executor]:
    """`densenet_batch` and its executor."""
    max_batch = runtime.options.max_batch
    assert max_batch is not None, "the options are resolved"
    executor = runtime.load(seeded_file(BATCH_NAME), max_batch=max_batch)
    image = TensorDefinition("data_0", Datatype.FP32, (3, 224, 224), format="FORMAT_NCHW")
    logits = TensorDefinition(
        "fc6_1", Datatype.FP32, (_CLASSES,), reshape=(_CLASSES, 1, 1), labels=neutral_labels(), label_filename=LABEL_FILENAME
    )
    # a CPU core's caches hold the activations of two images; with eight, each takes an eighth longer
    scheduling = BatchingPolicy() if runtime.device == "cuda" else BatchingPolicy((2,))
    definition = ModelDefinition(
        BATCH_NAME, "onnxruntime_onnx", "onnxruntime", max_batch, (image,), (logits,),
        default_model_filename="model.onnx", instances=executor.instances, scheduling=scheduling, device=runtime.device,
    )  # fmt: skip
    return definition, executor


def definition(labels: tuple[str, ...]) -> ModelDefinition:
    """The definition of `densenet_onnx` with these class names."""
    logits = TensorDefinition(
        "fc6_1", Datatype.FP32, (_CLASSES,), reshape=(1, _CLASSES, 1, 1), labels=labels, label_filename=LABEL_FILENAME if labels else ""
    )
    return ModelDefinition(
        NAME, "onnxruntime_onnx", "onnxruntime", max_batch_size=0, inputs=(_INPUT,), outputs=(logits,), default_model_filename="model.onnx"
    )


def neutral_labels() -> tuple[str, ...]:
    """Placeholder class names, for random weights."""
    return tuple(f"CLASS {index}" for index in range(_CLASSES))


def read_labels(file: pathlib.Path) -> tuple[str, ...]:
    """Read a trained model's class names, one per line. Returns placeholders if there is no such file."""
    if not file.exists():
        return neutral_labels()
    try:
        labels = tuple(read_bounded(file, LARGEST_TEXT_BYTES).decode().splitlines())
    except (OSError, UnicodeDecodeError) as error:
        raise UsageError(f"{file} cannot be read: {error}") from None
    if len(labels) != _CLASSES:
        raise UsageError(f"{file} has {len(labels)} lines, expected the names of {_CLASSES} classes.")
    return labels


def seeded_file(name: str = NAME) -> pathlib.Path:
    """The model file with random weights from a fixed seed, generated on first use and cached in PERFKIT_CACHE_DIR."""
    folder = cache_folder() / "models"
    file = folder / f"{name}-{densenet_graph.BUILDER_VERSION}.onnx"
    if file.exists():
        return file
    sys.stderr.write(f"generating the weights of {name} (once; cached in {file})\n")
    try:
        encoded = densenet_graph.build_model(is_batched=name == BATCH_NAME).SerializeToString(deterministic=True)
        folder.mkdir(parents=True, exist_ok=True)
        # written to a temporary file first, so that another server never reads half a file
        with tempfile.NamedTemporaryFile(dir=folder, prefix=f"{name}-", suffix=".part", delete=False) as part:
            part.write(encoded)
        pathlib.Path(part.name).replace(file)
    except ImportError as error:
        raise UsageError(f"generating {name} needs the onnx package ({error}): pip install onnx") from None
    except OSError as error:
        raise UsageError(
            f"the weights of {name} cannot be cached in {folder} ({error}): set PERFKIT_CACHE_DIR to a writable folder."
        ) from None
    return file


def _listed(tensors: tuple[TensorMetadata, ...]) -> str:
    return ", ".join(f"{tensor.name} {tensor.datatype} {list(tensor.shape)}" for tensor in tensors)
