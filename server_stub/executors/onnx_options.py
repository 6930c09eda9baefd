"""How ONNX models are executed: the options `--onnx KEY=VALUE`, and which combinations of them exist."""

import dataclasses
import difflib
from collections.abc import Iterable, Mapping
from typing import Any, Literal, get_args

from perfkit.digits import whole_number
from perfkit.errors import UsageError
from server_stub.devices.device import Kind

Provider = Literal["cpu", "cuda", "tensorrt"]
Precision = Literal["fp32", "tf32", "fp16", "bf16"]
Layout = Literal["nchw", "nhwc"]
MAX_BATCH, MAX_INSTANCES = 64, 16
GPU_INSTANCES = 3
"""While one instance waits for the host, the others keep the GPU busy; small batches fill a GPU only together."""
_CPU_BATCH = 8
_FIRST_NHWC = (8, 0)  # tensor cores for FP32 data, which compute with channels last; cuDNN adds the bias in the same kernel


@dataclasses.dataclass(frozen=True, slots=True)
class OnnxOptions:
    """The execution of ONNX models. None leaves a value to `resolve_onnx_options`."""

    provider: Provider | None = None
    """ONNX Runtime's execution provider: by default, that of the device."""
    precision: Precision | None = None
    """The precision of convolutions and matrix products: FP32 on the CPU, and TF32 on a GPU, which is FP32 where the GPU has no TF32."""
    layout: Layout | None = None
    """The layout of activations inside the model: channels last from compute capability 8.0 on."""
    graphs: bool | None = None
    """Whether the prepared batch sizes are captured as CUDA graphs when the model is loaded: on a GPU, unless by TensorRT."""
    instances: int | None = None
    """Executions at a time, each on a GPU with a session, a stream and buffers of its own: `GPU_INSTANCES`, or as many as fit."""
    max_batch: int | None = None
    """The largest batch of `densenet_batch`."""

    def document(self) -> dict[str, Any]:
        """The provider, and by key the other values that were given or chosen, as in the server's ready line."""
        return {key: value for key, value in dataclasses.asdict(self).items() if value is not None}


DEFAULT = OnnxOptions()
_CHOICES: Mapping[str, tuple[str, ...]] = {"provider": get_args(Provider), "precision": get_args(Precision), "layout": get_args(Layout)}
_SWITCHES: Mapping[str, bool] = {"on": True, "true": True, "off": False, "false": False}
_NUMBERS: Mapping[str, int] = {"instances": MAX_INSTANCES, "max_batch": MAX_BATCH}
_KEYS = tuple(field.name for field in dataclasses.fields(OnnxOptions))


def parse_onnx_options(settings: Iterable[str]) -> OnnxOptions:
    """Parse `KEY=VALUE` texts; the last value of a key counts. Raises UsageError that names the key and its values."""
    values: dict[str, Any] = {}
    for text in settings:
        key, equals, value = text.partition("=")
        if key not in _KEYS:
            near = difflib.get_close_matches(key, _KEYS, n=1)
            raise UsageError(f"--onnx {text}: unknown key; {f'did you mean {near[0]}? ' if near else ''}Keys: {', '.join(_KEYS)}.")
        if not equals:
            raise UsageError(f"--onnx {text}: a value is missing, as in {key}={_example(key)}.")
        values[key] = _parse(text, key, value)
    return OnnxOptions(**values)


def resolve_onnx_options(options: OnnxOptions, kind: Kind, reason: str = "", compute_capability: tuple[int, int] = (0, 0)) -> OnnxOptions:
    """The options with what the device implies, checked for combinations that do not exist.

    On a GPU, that is what executes fastest with the model's own numbers; `instances` stays None, since it depends on the memory that a
    model needs. `reason` is why the device was chosen. Raises UsageError with the reason and what to change.
    """
    provider: Provider = options.provider or kind
    if provider != "cpu" and kind == "cpu":
        because = f": {reason}" if reason else ""
        raise UsageError(
            f"--onnx provider={provider}: models of this server run on the CPU{because}; use --onnx provider=cpu or --device cuda."
        )
    options = dataclasses.replace(options, provider=provider)
    if provider == "cpu":
        _check_cpu(options)
        return dataclasses.replace(options, instances=options.instances or 1, max_batch=options.max_batch or _CPU_BATCH)
    options = dataclasses.replace(options, precision=options.precision or "tf32", max_batch=options.max_batch or MAX_BATCH)
    if provider == "tensorrt":
        _check_tensorrt(options)
        return dataclasses.replace(options, graphs=False)
    if options.precision == "bf16":
        raise UsageError(
            "--onnx precision=bf16: ONNX Runtime's CUDA provider has no batch normalization or max pooling in BF16 (1.31); use precision=fp16, "
            "or provider=tensorrt."
        )
    layout: Layout = options.layout or ("nhwc" if compute_capability >= _FIRST_NHWC else "nchw")
    return dataclasses.replace(options, layout=layout, graphs=options.graphs is not False)


def _check_cpu(options: OnnxOptions) -> None:
    refused = {
        "layout=nhwc": (options.layout == "nhwc", "ONNX Runtime's CPU provider chooses the layout of each convolution itself"),
        "graphs=on": (options.graphs, "CUDA graphs need a GPU"),
        "precision=tf32": (options.precision == "tf32", "TF32 is a format of NVIDIA's tensor cores"),
        "precision=bf16": (options.precision == "bf16", "ONNX Runtime's CPU provider has no BF16 convolution"),
    }
    for setting, (is_given, why) in refused.items():
        if is_given:
            raise UsageError(f"--onnx {setting} on the CPU: {why}; remove it, or use --device cuda.")


def _check_tensorrt(options: OnnxOptions) -> None:
    if options.graphs:
        raise UsageError(
            "--onnx graphs=on with provider=tensorrt: its provider captures one graph per session, not one for each batch size; "
            "remove it, or use provider=cuda."
        )
    if options.layout == "nhwc":
        raise UsageError("--onnx layout=nhwc with provider=tensorrt: TensorRT chooses layouts itself; remove it, or use provider=cuda.")


def _parse(text: str, key: str, value: str) -> object:
    if key in _CHOICES:
        if value in _CHOICES[key]:
            return value
        raise UsageError(f"--onnx {text}: must be one of {', '.join(_CHOICES[key])}.")
    if key in _NUMBERS:
        if number := whole_number(value, _NUMBERS[key]):
            return number
        raise UsageError(f"--onnx {text}: must be a number from 1 to {_NUMBERS[key]}.")
    if value in _SWITCHES:
        return _SWITCHES[value]
    raise UsageError(f"--onnx {text}: must be on or off.")


def _example(key: str) -> str:
    return _CHOICES[key][-1] if key in _CHOICES else str(_NUMBERS.get(key, "on"))
