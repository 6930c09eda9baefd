"""DenseNet-121 (Huang et al., 2017) as the graph of the ONNX model zoo's densenet-7, with random weights.

Operators, shapes and tensor names are the zoo's, so inference costs as much as with the trained model. Every filter has
mean zero and a variance of gain² / fan-in, where the gain makes up for the variance that ReLU removes from a normal
variable (Brock et al., 2021, "Characterizing signal propagation to close the performance gap in unnormalized ResNets").
Activations therefore keep a mean near 0 and a variance near 1 through all layers, and batch normalization with the
statistics 0 and 1 leaves them unchanged. The weights come from the Philox generator with a fixed seed, and are converted
to floats by exact operations only, so they are the same on every machine.
"""

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

BUILDER_VERSION = 1
"""Part of the cached file's name. Increase it with every change of the graph or the weights."""

_SEED = 121
_OPSET, _IR_VERSION = 7, 4
_GROWTH, _BOTTLENECK, _BLOCKS, _FIRST_CHANNELS, _CLASSES = 32, 128, (6, 12, 24, 16), 64, 1000
_RELU_GAIN = 1 / math.sqrt(0.5 - 0.5 / math.pi)  # 1 / the standard deviation of max(0, x), x normal
_UNIFORM_GAIN = math.sqrt(12)  # 1 / the standard deviation of an input uniform in [0, 1)
_POOL_GAIN = 1.4  # averaging four correlated values removes about a third of the standard deviation
_LOGIT_GAIN = 5.0  # makes up for the average over 7 x 7, so that the logits spread over some units as trained ones do


def build_model(*, is_batched: bool = False) -> Any:
    """Build the model as an `onnx.ModelProto`. If batched, it accepts any number of images, with the same weights."""
    graph = _Graph()
    graph.conv("conv1_w_0", (_FIRST_CHANNELS, 3, 7, 7), _UNIFORM_GAIN, stride=2, pad=3)
    graph.normalize_and_relu("conv1/bn", _FIRST_CHANNELS)
    graph.node("MaxPool", kernel_shape=(3, 3), strides=(2, 2), pads=(1, 1, 1, 1))
    channels = _FIRST_CHANNELS
    for block, layers in enumerate(_BLOCKS, start=2):
        for layer in range(1, layers + 1):
            _dense_layer(graph, f"conv{block}_{layer}", channels)
            channels += _GROWTH
        graph.normalize_and_relu(f"conv{block}_blk/bn", channels)
        if block <= len(_BLOCKS):
            graph.conv(f"conv{block}_blk_w_0", (channels // 2, channels, 1, 1), _RELU_GAIN * _POOL_GAIN)
            graph.node("AveragePool", kernel_shape=(2, 2), strides=(2, 2), pads=(0, 0, 0, 0))
            channels //= 2
    graph.node("GlobalAveragePool")
    graph.vector("fc6_b_0", _CLASSES, center=0.0, radius=0.1)
    graph.conv("fc6_w_0", (_CLASSES, channels, 1, 1), _LOGIT_GAIN, bias="fc6_b_0", output="fc6_1")
    return graph.model("batch" if is_batched else 1)


def _dense_layer(graph: "_Graph", name: str, channels: int) -> None:
    """BN, ReLU and a 1x1 convolution, then BN, ReLU and a 3x3 convolution, concatenated to the layer's input."""
    before = graph.last
    graph.normalize_and_relu(f"{name}/x1/bn", channels)
    graph.conv(f"{name}/x1_w_0", (_BOTTLENECK, channels, 1, 1), _RELU_GAIN)
    graph.normalize_and_relu(f"{name}/x2/bn", _BOTTLENECK)
    graph.conv(f"{name}/x2_w_0", (_GROWTH, _BOTTLENECK, 3, 3), _RELU_GAIN, pad=1)
    graph.node("Concat", [before, graph.last], axis=1)


class _Graph:
    """A graph under construction. `last` is the output of the latest node."""

    def __init__(self) -> None:
        self.last = "data_0"
        self._nodes: list[Any] = []
        self._initializers: list[Any] = []
        self._random = np.random.Philox(key=_SEED)

    def node(self, operator: str, inputs: Sequence[str] | None = None, output: str = "", **attributes: Any) -> str:
        """Add a node after the latest one, or after `inputs`. Returns the name of its output."""
        import onnx

        self.last = output or f"r{len(self._nodes)}"
        before = [node.output[0] for node in self._nodes[-1:]] or ["data_0"]
        self._nodes.append(onnx.helper.make_node(operator, before if inputs is None else inputs, [self.last], **attributes))
        return self.last

    def conv(
        self,
        weights: str,
        shape: tuple[int, int, int, int],
        gain: float,
        *,
        stride: int = 1,
        pad: int = 0,
        bias: str = "",
        output: str = "",
    ) -> None:
        """Add a convolution, with filters of mean zero."""
        inputs = [self.last, weights, *([bias] if bias else [])]
        self._constant(weights, self._filters(shape, gain))
        self.node("Conv", inputs, output, kernel_shape=shape[2:], strides=(stride, stride), pads=(pad, pad, pad, pad))

    def normalize_and_relu(self, name: str, channels: int) -> None:
        """Add batch normalization, Caffe's "Scale" layer as Mul and Add, and ReLU."""
        for suffix, value in (("scale", 1.0), ("bias", 0.0), ("mean", 0.0), ("var", 1.0)):
            self._constant(f"{name}_{suffix}_0", np.full(channels, value, np.float32))
        inputs = [self.last, *(f"{name}_{suffix}_0" for suffix in ("scale", "bias", "mean", "var"))]
        normalized = self.node("BatchNormalization", inputs, epsilon=1e-5)
        self.vector(f"{name}_w_0", channels, center=1.0, radius=0.1)
        scaled = self.node("Mul", [normalized, self.node("Unsqueeze", [f"{name}_w_0"], axes=(1, 2))])
        self.vector(f"{name}_b_0", channels, center=0.0, radius=0.1)
        self.node("Add", [scaled, self.node("Unsqueeze", [f"{name}_b_0"], axes=(1, 2))])
        self.node("Relu")

    def vector(self, name: str, size: int, *, center: float, radius: float) -> None:
        """Add a constant vector, uniform around `center`."""
        self._constant(name, (center + self._integers(size) * (radius / 2**23)).astype(np.float32))

    def model(self, batch: int | str) -> Any:
        """The complete model, from `data_0` to `fc6_1`. A `batch` given by name is a variable size."""
        import onnx

        image, logits = (
            onnx.helper.make_tensor_value_info(name, onnx.TensorProto.FLOAT, shape)
            for name, shape in (("data_0", (batch, 3, 224, 224)), ("fc6_1", (batch, _CLASSES, 1, 1)))
        )
        graph = onnx.helper.make_graph(self._nodes, "densenet121", [image], [logits], self._initializers)
        opset = onnx.helper.make_opsetid("", _OPSET)
        return onnx.helper.make_model(graph, producer_name="perfkit", opset_imports=[opset], ir_version=_IR_VERSION)

    def _filters(self, shape: tuple[int, int, int, int], gain: float) -> npt.NDArray[np.float32]:
        fan_in = math.prod(shape[1:])
        values = self._integers(math.prod(shape)).reshape(shape[0], fan_in)
        # in integers, since sums of floats depend on the order of summation, which differs between machines
        centered = values * fan_in - values.sum(axis=1, keepdims=True)
        scale = gain * math.sqrt(3 / fan_in) / (2**23 * fan_in)  # 1/3 is the variance of a uniform variable in [-1, 1)
        filters: npt.NDArray[np.float32] = (centered * scale).astype(np.float32)
        return filters.reshape(shape)

    def _integers(self, count: int) -> npt.NDArray[np.int64]:
        """Integers uniform in [-2^23, 2^23), which a float32 represents exactly."""
        bits: npt.NDArray[np.uint64] = self._random.random_raw(count)
        return (bits >> np.uint64(40)).astype(np.int64) - 2**23

    def _constant(self, name: str, values: npt.NDArray[np.float32]) -> None:
        import onnx

        self._initializers.append(onnx.numpy_helper.from_array(values, name))
