"""ONNX Runtime called directly on DenseNet-121, in a process of its own on chosen CPUs: the bound for any server.

python -m benchmarks.onnx_directly densenet_onnx [--batch-size 1] [--seconds 5] [--threads 1] [--cpus 0]
"""

import argparse
import json
import os
import statistics
import subprocess
import sys
import time
from typing import NamedTuple

from benchmarks.processes import ROOT

_WARMUP_S = 1.0


class DirectCalls(NamedTuple):
    """The median time of an execution, and the executions per second."""

    p50_ms: float
    per_s: float


def call_directly(model: str, *, batch_size: int = 1, seconds: float, threads: int = 1, cpus: str) -> DirectCalls:
    """Starts the process and returns its figures."""
    options = [f"--batch-size={batch_size}", f"--seconds={seconds}", f"--threads={threads}", f"--cpus={cpus}"]
    command = [sys.executable, "-m", "benchmarks.onnx_directly", model, *options]
    return DirectCalls(**json.loads(subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True, cwd=ROOT).stdout))


def measure(model: str, batch_size: int, seconds: float, threads: int) -> DirectCalls:
    """Executes the model in a loop: a warm-up of a second, then the measured time."""
    import numpy as np  # only now: NumPy and ONNX Runtime start threads, which inherit the CPUs set before

    from server_stub.executors.onnx import OnnxExecutor
    from server_stub.models.densenet import seeded_file

    executor = OnnxExecutor(seeded_file(model), threads)
    image = np.random.default_rng(0).random((batch_size, 3, 224, 224), dtype=np.float32)

    def execute_for(length_s: float) -> list[int]:
        taken_ns: list[int] = []
        end_s = time.perf_counter() + length_s
        while not taken_ns or time.perf_counter() < end_s:
            start_ns = time.perf_counter_ns()
            executor.execute({"data_0": image})
            taken_ns.append(time.perf_counter_ns() - start_ns)
        return taken_ns

    execute_for(_WARMUP_S)
    taken_ns = execute_for(seconds)
    return DirectCalls(statistics.median(taken_ns) / 1e6, len(taken_ns) / sum(taken_ns) * 1e9)


def main() -> int:
    """Prints the figures as JSON."""
    from server_stub.options import parse_cpus

    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("model", choices=("densenet_onnx", "densenet_batch"))
    parser.add_argument("--batch-size", type=int, default=1)
    parser.add_argument("--seconds", type=float, default=5)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--cpus", default="0")
    options = parser.parse_args()
    os.sched_setaffinity(0, parse_cpus(options.cpus))
    print(json.dumps(measure(options.model, options.batch_size, options.seconds, options.threads)._asdict()))
    return 0


if __name__ == "__main__":
    sys.exit(main())
