"""The bundled server's executor of DenseNet-121 called directly, without a server: the bound for what is served.

python -m benchmarks.gpu.direct [--device cuda|cpu] [--model densenet_batch|densenet_onnx] [--onnx KEY=VALUE …] [--batch-sizes 1 8 64] [--seconds 0.5]

It is called by one thread, then by two, up to the number of the server's instances. The images are in the kind of memory that the server
receives requests into. It prints, for each batch size and number of threads, the median time of a call and the images per second as JSON, and how long loading took.
The exit code is 2 if the options do not exist on this machine.
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

MODELS = ("densenet_batch", "densenet_onnx")
_WARMUP_SHARE = 0.3


def measure(device: str, model: str, settings: Sequence[str], batch_sizes: Sequence[int], seconds: float) -> dict[str, Any]:
    """The times by batch size. Raises UsageError if the executor cannot be made."""
    import numpy as np

    from server_stub.devices.device import choose_device
    from server_stub.devices.host_memory import HostMemory
    from server_stub.models.densenet import load, load_batched
    from server_stub.options import parse_options
    from server_stub.repository.sources import open_runtime

    started_s = time.perf_counter()
    chosen = choose_device(device)
    options = parse_options(["--onnx", *settings] if settings else [])
    definition, executor = (load_batched if model == MODELS[0] else load)(open_runtime(options, 1, chosen))
    loaded_s = time.perf_counter() - started_s
    memory, random = HostMemory(chosen.driver), np.random.default_rng(0)

    def images(batch: int) -> Inputs:
        array = np.frombuffer(memory.take(batch * 3 * 224 * 224 * 4), np.float32).reshape(batch, 3, 224, 224)
        array[:] = random.random(array.shape, dtype=np.float32)
        return {"data_0": array}

    inputs = {batch: [images(batch) for _ in range(definition.instances)] for batch in batch_sizes}
    points = time_calls(executor, inputs, seconds)
    document = {"device": chosen.kind, "onnx": list(settings), "threads": definition.instances, "loaded_s": round(loaded_s, 2)}
    return {**document, "execution": executor.document(), "points": points}


def time_calls(executor: Executor, inputs: Mapping[int, Sequence[Inputs]], seconds: float) -> list[dict[str, float]]:
    """The figures of each batch size with 1, 2, … threads; `inputs` are those of each thread by batch size.

    Calls that began before the warm-up's end do not count. An error of a call is raised.
    """
    count = len(next(iter(inputs.values())))
    phases = [(batch, active) for batch in inputs for active in range(1, count + 1)]
    barrier, taken_ns = threading.Barrier(count + 1), [list[int]() for _ in range(count)]
    window = {"from_s": 0.0, "end_s": 0.0}
    errors: list[BaseException] = []

    def call(number: int) -> None:
        try:
            for batch, active in phases:
                barrier.wait()
                times: list[int] = []
                while number < active and (not times or time.perf_counter() < window["end_s"]):
                    start_s, start_ns = time.perf_counter(), time.perf_counter_ns()
                    executor.execute(executor.join([inputs[batch][number]]))
                    if start_s >= window["from_s"]:
                        times.append(time.perf_counter_ns() - start_ns)
                taken_ns[number] = times
                barrier.wait()
        except BaseException as error:  # noqa: BLE001 - raised again by the main thread
            errors.append(error)
            barrier.abort()

    for number in range(count):
        threading.Thread(target=call, args=(number,), daemon=True).start()
    points = []
    try:
        for batch, active in phases:
            now_s = time.perf_counter()
            window.update(from_s=now_s + _WARMUP_SHARE * seconds, end_s=now_s + (1 + _WARMUP_SHARE) * seconds)
            barrier.wait()
            barrier.wait()
            times_ns = [value for times in taken_ns for value in times]
            rate_per_s = batch * active * 1e9 / statistics.mean(times_ns)
            points.append({"batch": batch, "threads": active, "p50_ms": statistics.median(times_ns) / 1e6, "images_per_s": rate_per_s})
    except threading.BrokenBarrierError:
        raise errors[0] from None
    return points


def main() -> int:
    """Prints the figures as JSON."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--device", choices=("cuda", "cpu"), default="cuda")
    parser.add_argument("--model", choices=MODELS, default=MODELS[0])
    parser.add_argument("--onnx", nargs="*", default=[], metavar="KEY=VALUE")
    parser.add_argument("--batch-sizes", type=int, nargs="+", default=[1, 8, 64])
    parser.add_argument("--seconds", type=float, default=0.5)
    options = parser.parse_args()
    try:
        print(json.dumps(measure(options.device, options.model, options.onnx, options.batch_sizes, options.seconds)))
    except UsageError as error:
        print(error, file=sys.stderr)
        return 2
    return 0


if __name__ == "__main__":
    sys.exit(main())
