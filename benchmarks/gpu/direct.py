"""The bundled server's executor of DenseNet-121 called directly, without a server: the bound for what is served.

python -m benchmarks.gpu.direct [--device cuda|cpu] [--onnx KEY=VALUE …] [--batch-sizes 1 8 64] [--seconds 2]

As many threads call it as in the server. It prints, for each batch size, the median time of a call and the images per second as
JSON, the median time where one thread calls it alone, and how long loading took. The exit code is 2 if the options do not exist
on this machine.
"""

import argparse
import json
import statistics
import sys
import threading
import time
from collections.abc import Mapping, Sequence
from typing import Any

from perfkit.errors import UsageError
from server_stub.executors.array import Executor, Inputs

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
    images = np.random.default_rng(0).random((max(batch_sizes), 3, 224, 224), dtype=np.float32)
    inputs = {batch: {"data_0": images[:batch]} for batch in batch_sizes}
    threads = executor.concurrency or definition.instances
    ready_s, alone_ms, points = time_calls(executor, threads, inputs, seconds)
    return {
        "device": chosen.kind, "onnx": list(settings), "threads": threads, "loaded_s": round(ready_s - started_s, 2),
        "alone_p50_ms": alone_ms, "points": points,
    }  # fmt: skip


def time_calls(
    executor: Executor, threads: int, inputs: Mapping[int, Inputs], seconds: float
) -> tuple[float, float, list[dict[str, float]]]:
    """When all threads were prepared, the median time of the first input's calls by one thread alone, and the figures of all threads.

    `inputs` are by batch size. Calls that began before the warm-up's end do not count: the first of each size takes far longer.
    """
    phases = [(next(iter(inputs)), 1), *((batch, threads) for batch in inputs)]
    barrier, taken_ns = threading.Barrier(threads + 1), [list[int]() for _ in range(threads)]
    window = {"from_s": 0.0, "end_s": 0.0}
    errors: list[BaseException] = []

    def call(number: int) -> None:
        try:
            executor.prepare()
            barrier.wait()
            for batch, active in phases:
                barrier.wait()
                times: list[int] = []
                while number < active and (not times or time.perf_counter() < window["end_s"]):
                    start_s, start_ns = time.perf_counter(), time.perf_counter_ns()
                    executor.execute(executor.join([inputs[batch]]))
                    if start_s >= window["from_s"]:
                        times.append(time.perf_counter_ns() - start_ns)
                taken_ns[number] = times
                barrier.wait()
        except BaseException as error:  # noqa: BLE001 - raised again by the main thread
            errors.append(error)
            barrier.abort()

    for number in range(threads):
        threading.Thread(target=call, args=(number,), daemon=True).start()
    points = []
    try:
        barrier.wait()
        ready_s = time.perf_counter()
        for batch, active in phases:
            now_s = time.perf_counter()
            window.update(from_s=now_s + _WARMUP_SHARE * seconds, end_s=now_s + (1 + _WARMUP_SHARE) * seconds)
            barrier.wait()
            barrier.wait()
            times_ns = [value for times in taken_ns for value in times]
            rate_per_s = batch * active * 1e9 / statistics.mean(times_ns)
            points.append({"batch": batch, "p50_ms": statistics.median(times_ns) / 1e6, "images_per_s": rate_per_s})
    except threading.BrokenBarrierError:
        raise errors[0] from None
    return ready_s, points[0]["p50_ms"], points[1:]


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
