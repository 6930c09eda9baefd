"""DenseNet-121 by PyTorch as one CUDA graph, called directly: what a GPU can be expected to do.

python -m benchmarks.gpu.torch_limit [--precision tf32 fp16] [--batch-sizes 1 8 64] [--seconds 0.4]

The model is torchvision's with random weights, in both memory formats; the faster one is the limit. It prints the median time of a replay and
the images per second as JSON. The exit code is 2 without PyTorch, torchvision or a GPU that PyTorch can use.
"""

import argparse
import importlib
import json
import statistics
import sys
import time
from collections.abc import Sequence
from typing import Any

_WARM_CALLS = 3


class NotMeasuredError(Exception):
    """The measurement is not possible on this machine; the message says why."""


def measure(precisions: Sequence[str], batch_sizes: Sequence[int], seconds: float) -> dict[str, Any]:
    """For each precision, the points by batch size, each in the faster memory format. Raises NotMeasuredError."""
    try:
        torch: Any = importlib.import_module("torch")
        models: Any = importlib.import_module("torchvision.models")
    except ImportError as error:
        raise NotMeasuredError(f"PyTorch's graph is not measured, because it needs torch and torchvision: {error}") from None
    if not torch.cuda.is_available():
        raise NotMeasuredError("PyTorch's graph is not measured, because PyTorch finds no GPU")
    torch.backends.cudnn.benchmark = torch.backends.cudnn.allow_tf32 = torch.backends.cuda.matmul.allow_tf32 = True
    found: dict[str, Any] = {}
    for precision in precisions:
        datatype = torch.float16 if precision == "fp16" else torch.float32
        best: dict[int, dict[str, Any]] = {}
        for name in ("channels_last", "contiguous"):
            memory_format = torch.channels_last if name == "channels_last" else torch.contiguous_format
            model = models.densenet121(weights=None).eval().cuda().to(datatype).to(memory_format=memory_format)
            for batch in batch_sizes:
                images = torch.rand(batch, 3, 224, 224, device="cuda", dtype=datatype).to(memory_format=memory_format)
                ms = 1e3 * _replay_s(torch, model, images, seconds)
                if batch not in best or ms < best[batch]["p50_ms"]:
                    best[batch] = {"batch": batch, "p50_ms": ms, "images_per_s": 1e3 * batch / ms, "memory_format": name}
        found[precision] = list(best.values())
    return {"torch": torch.__version__, "gpu": torch.cuda.get_device_name(0), "points": found}


def _replay_s(torch: Any, model: Any, images: Any, seconds: float) -> float:
    """The median time of a replay of the model's graph."""
    stream, graph = torch.cuda.Stream(), torch.cuda.CUDAGraph()
    with torch.no_grad(), torch.cuda.stream(stream):
        for _ in range(_WARM_CALLS):
            model(images)
        torch.cuda.synchronize()
        with torch.cuda.graph(graph, stream=stream):
            model(images)
        for _ in range(_WARM_CALLS):
            graph.replay()
        torch.cuda.synchronize()
        taken_s: list[float] = []
        end_s = time.perf_counter() + seconds
        while not taken_s or time.perf_counter() < end_s:
            started_s = time.perf_counter()
            graph.replay()
            torch.cuda.synchronize()
            taken_s.append(time.perf_counter() - started_s)
    return statistics.median(taken_s)


def main() -> int:
    """Prints the figures as JSON."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--precision", nargs="+", choices=("tf32", "fp16"), default=["tf32", "fp16"])
    parser.add_argument("--batch-sizes", type=int, nargs="+", default=[1, 8, 64])
    parser.add_argument("--seconds", type=float, default=0.4)
    options = parser.parse_args()
    try:
        print(json.dumps(measure(options.precision, options.batch_sizes, options.seconds)))
    except NotMeasuredError as error:
        print(error, file=sys.stderr)
        return 2
    return 0


if __name__ == "__main__":
    sys.exit(main())
