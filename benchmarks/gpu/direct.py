"""The bundled server's executor of DenseNet-121 called directly, without a server: the bound for what is served.

python -m benchmarks.gpu.direct [--device cuda|cpu] [--onnx KEY=VALUE …] [--batch-sizes 1 8 64] [--seconds 2]

As many threads call it as in the server. It prints, for each batch size, the median time of a call and the images per second as
JSON, and how long loading took. The exit code is 2 if the options do not exist on this machine.
"""

import argparse
import json
import statistics
import sys
import threading
import time
from collections.abc import Sequence
from typing import Any

from perfkit.errors import UsageError

_WARMUP_SHARE = 0.3


def measure(device: str, settings: Sequence[str], batch_sizes: Sequence[int], seconds: float) -> dict[str, Any]:
    """The times by batch size. Raises UsageError if the executor cannot be made."""
    import numpy as np

    from server_stub.devices.device import choose_device
    from server_stub.executors.onnx import OnnxRuntime
    from server_stub.executors.onnx_options import parse_onnx_options, resolve_onnx_options
    from server_stub.models.densenet import load_batched

    started_s = time.perf_counter()
    chosen = choose_device(device)
    options = resolve_onnx_options(parse_onnx_options(settings), chosen.kind, chosen.reason)
    definition, executor = load_batched(OnnxRuntime(1, options, chosen.driver))
    count = executor.concurrency or definition.instances
    images = np.random.default_rng(0).random((max(batch_sizes), 3, 224, 224), dtype=np.float32)
    phase, taken_ns = threading.Barrier(count + 1), [[0]] * count
    limits = {"batch": 0, "measured_from_s": 0.0, "end_s": 0.0}
    errors: list[BaseException] = []

    def call(number: int) -> None:
        try:
            executor.prepare()
            phase.wait()
            for _ in batch_sizes:
                phase.wait()
                given = {"data_0": images[: int(limits["batch"])]}
                times: list[int] = []
                while not times or time.perf_counter() < limits["end_s"]:
                    start_ns = time.perf_counter_ns()
                    executor.execute(executor.join([given]))
                    if time.perf_counter() >= limits["measured_from_s"] or time.perf_counter() >= limits["end_s"]:
                        times.append(time.perf_counter_ns() - start_ns)
                taken_ns[number] = times
                phase.wait()
        except BaseException as error:  # noqa: BLE001 - raised again by the main thread
            errors.append(error)
            phase.abort()

    threads = [threading.Thread(target=call, args=(number,), daemon=True) for number in range(count)]
    for thread in threads:
        thread.start()
    points = []
    try:
        phase.wait()
        loaded_s = time.perf_counter() - started_s
        for batch in batch_sizes:
            now_s = time.perf_counter()
            limits.update(batch=batch, measured_from_s=now_s + _WARMUP_SHARE * seconds, end_s=now_s + (1 + _WARMUP_SHARE) * seconds)
            phase.wait()
            phase.wait()
            mean_ns = statistics.mean(value for times in taken_ns for value in times)
            median_ns = statistics.median(value for times in taken_ns for value in times)
            points.append({"batch": batch, "p50_ms": median_ns / 1e6, "images_per_s": batch * count * 1e9 / mean_ns})
    except threading.BrokenBarrierError:
        raise errors[0] from None
    return {"device": chosen.kind, "onnx": list(settings), "threads": count, "loaded_s": round(loaded_s, 2), "points": points}


def main() -> int:
    """Prints the figures as JSON."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--device", choices=("cuda", "cpu"), default="cuda")
    parser.add_argument("--onnx", nargs="*", default=[], metavar="KEY=VALUE")
    parser.add_argument("--batch-sizes", type=int, nargs="+", default=[1, 8, 64])
    parser.add_argument("--seconds", type=float, default=2)
    options = parser.parse_args()
    try:
        print(json.dumps(measure(options.device, options.onnx, options.batch_sizes, options.seconds)))
    except UsageError as error:
        print(error, file=sys.stderr)
        return 2
    return 0


if __name__ == "__main__":
    sys.exit(main())
