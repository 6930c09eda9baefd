"""What a model takes and gives, and how the v2 protocol words it: metadata and model configuration."""

import dataclasses
from typing import Any

from google.protobuf import json_format

from perfkit.protocol import v2_pb2
from perfkit.protocol.message import ModelMetadata, TensorMetadata
from perfkit.protocol.tensor import Datatype


@dataclasses.dataclass(frozen=True, slots=True)
class TensorDefinition:
    """An input or output; `dims` leave the batch dimension out, and -1 is a size that the request chooses."""

    name: str
    datatype: Datatype
    dims: tuple[int, ...]
    reshape: tuple[int, ...] | None = None
    """The shape in which the model itself has the tensor, where that differs from `dims`."""
    format: str = "FORMAT_NONE"
    labels: tuple[str, ...] = ()
    """For an output: the names of its classes, by index."""
    label_filename: str = ""


@dataclasses.dataclass(frozen=True, slots=True)
class ModelDefinition:
    """A model as clients see it; `max_batch_size` 0 means that its tensors have no batch dimension."""

    name: str
    platform: str
    backend: str
    max_batch_size: int
    inputs: tuple[TensorDefinition, ...]
    outputs: tuple[TensorDefinition, ...]
    versions: tuple[str, ...] = ("1",)
    default_model_filename: str = ""

    def shape(self, tensor: TensorDefinition) -> tuple[int, ...]:
        """A tensor's shape in requests and replies: `dims` behind -1 for the batch, if there is one."""
        return (-1, *tensor.dims) if self.max_batch_size else tensor.dims

    def metadata(self) -> ModelMetadata:
        """What `GET /v2/models/NAME` and `ModelMetadata` answer."""
        inputs, outputs = (
            tuple(TensorMetadata(one.name, one.datatype.value, self.shape(one)) for one in some) for some in (self.inputs, self.outputs)
        )
        return ModelMetadata(self.name, self.versions, self.platform or self.backend, inputs, outputs)

    def config(self) -> dict[str, Any]:
        """What `GET /v2/models/NAME/config` answers: Triton's model configuration as JSON, numbers as numbers."""
        return {
            "name": self.name,
            "platform": self.platform,
            "backend": self.backend,
            "max_batch_size": self.max_batch_size,
            "input": [
                {**_common(one), "format": one.format, "allow_ragged_batch": False, "optional": False, "is_shape_tensor": False}
                for one in self.inputs
            ],
            "output": [{**_common(one), "label_filename": one.label_filename, "is_shape_tensor": False} for one in self.outputs],
            "default_model_filename": self.default_model_filename,
        }

    def config_message(self) -> v2_pb2.ModelConfig:
        """The same configuration as a protobuf message."""
        return json_format.ParseDict(self.config(), v2_pb2.ModelConfig())


def _common(tensor: TensorDefinition) -> dict[str, Any]:
    name = "STRING" if tensor.datatype is Datatype.BYTES else tensor.datatype.value
    document: dict[str, Any] = {"name": tensor.name, "data_type": f"TYPE_{name}", "dims": list(tensor.dims)}
    if tensor.reshape is not None:
        document["reshape"] = {"shape": list(tensor.reshape)}
    return document
