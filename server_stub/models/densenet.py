"""`densenet_onnx`: the image classifier of Triton's quick start, with weights from a seed or from a trained file.

`densenet_batch` is the same one with a batch dimension and dynamic batching, always with the weights from the seed.
"""

import dataclasses
import os
import pathlib
import sys
import tempfile

import platformdirs

from perfkit.errors import UsageError
from perfkit.protocol.message import TensorMetadata
from perfkit.protocol.tensor import Datatype
from server_stub.batching import BatchingPolicy
from server_stub.definition import ModelDefinition, TensorDefinition
from server_stub.devices import Kind
from server_stub.executors.onnx import OnnxExecutor
from server_stub.models import densenet_graph

NAME, BATCH_NAME = "densenet_onnx", "densenet_batch"
LABEL_FILENAME = "densenet_labels.txt"
_CLASSES = 1000
_MAX_BATCH_SIZE = 8
_INPUT = TensorDefinition("data_0", Datatype.FP32, (3, 224, 224), reshape=(1, 3, 224, 224), format="FORMAT_NCHW")


def load(threads: int, trained: pathlib.Path | None = None, device: Kind = "cpu") -> tuple[ModelDefinition, OnnxExecutor]:
    """The model, ready to execute: `trained` is the model zoo's densenet-7 file, None takes the weights from the seed."""
    executor = OnnxExecutor(trained or seeded_file(), threads, device)
    expected = (TensorMetadata("data_0", "FP32", (1, 3, 224, 224)), TensorMetadata("fc6_1", "FP32", (1, _CLASSES, 1, 1)))
    found = (*executor.inputs, *executor.outputs)
    if found != expected:
        raise UsageError(f"{trained} is not the model zoo's densenet-7: it has {_listed(found)}, where {_listed(expected)} are expected.")
    labels = read_labels(trained.with_name(LABEL_FILENAME)) if trained else neutral_labels()
    return dataclasses.replace(definition(labels), device=device), executor


def load_batched(threads: int, device: Kind = "cpu") -> tuple[ModelDefinition, OnnxExecutor]:
    """The model with a batch dimension, ready to execute."""
    image = TensorDefinition("data_0", Datatype.FP32, (3, 224, 224), format="FORMAT_NCHW")
    logits = TensorDefinition(
        "fc6_1", Datatype.FP32, (_CLASSES,), reshape=(_CLASSES, 1, 1), labels=neutral_labels(), label_filename=LABEL_FILENAME
    )
    definition = ModelDefinition(
        BATCH_NAME,
        "onnxruntime_onnx",
        "onnxruntime",
        max_batch_size=_MAX_BATCH_SIZE,
        inputs=(image,),
        outputs=(logits,),
        default_model_filename="model.onnx",
        # a core's caches hold the activations of two images: eight take it an eighth longer each, where a GPU takes less
        scheduling=BatchingPolicy() if device == "cuda" else BatchingPolicy((2,)),
        device=device,
    )
    return definition, OnnxExecutor(seeded_file(BATCH_NAME), threads, device)


def definition(labels: tuple[str, ...]) -> ModelDefinition:
    """The model as clients see it; the names of its classes are all that varies."""
    logits = TensorDefinition(
        "fc6_1", Datatype.FP32, (_CLASSES,), reshape=(1, _CLASSES, 1, 1), labels=labels, label_filename=LABEL_FILENAME if labels else ""
    )
    return ModelDefinition(
        NAME, "onnxruntime_onnx", "onnxruntime", max_batch_size=0, inputs=(_INPUT,), outputs=(logits,), default_model_filename="model.onnx"
    )


def neutral_labels() -> tuple[str, ...]:
    """Names that promise no more than weights from a seed can keep."""
    return tuple(f"CLASS {index}" for index in range(_CLASSES))


def read_labels(file: pathlib.Path) -> tuple[str, ...]:
    """The labels beside a trained file, one a line; the neutral ones if there are none."""
    if not file.exists():
        return neutral_labels()
    labels = tuple(file.read_text(encoding="utf-8").splitlines())
    if len(labels) != _CLASSES:
        raise UsageError(f"{file} holds {len(labels)} lines, where the names of {_CLASSES} classes are expected.")
    return labels


def seeded_file(name: str = NAME) -> pathlib.Path:
    """The model's file with the weights from the seed, made on first use and kept; PERFKIT_CACHE_DIR says where."""
    folder = pathlib.Path(os.environ.get("PERFKIT_CACHE_DIR") or platformdirs.user_cache_dir("perfkit")) / "models"
    file = folder / f"{name}-{densenet_graph.BUILDER_VERSION}.onnx"
    if file.exists():
        return file
    sys.stderr.write(f"making the weights of {name} (once; kept in {file})\n")
    try:
        encoded = densenet_graph.build_model(is_batched=name == BATCH_NAME).SerializeToString(deterministic=True)
        folder.mkdir(parents=True, exist_ok=True)
        # written aside and moved into place, so that a second server never reads half a file
        with tempfile.NamedTemporaryFile(dir=folder, prefix=f"{name}-", suffix=".part", delete=False) as part:
            part.write(encoded)
        pathlib.Path(part.name).replace(file)
    except ImportError as error:
        raise UsageError(f"making {name} needs the onnx package ({error}): pip install 'perfkit[server]'") from None
    except OSError as error:
        raise UsageError(
            f"the weights of {name} cannot be kept in {folder} ({error}): set PERFKIT_CACHE_DIR to a writable folder."
        ) from None
    return file


def _listed(tensors: tuple[TensorMetadata, ...]) -> str:
    return ", ".join(f"{one.name} {one.datatype} {list(one.shape)}" for one in tensors)
