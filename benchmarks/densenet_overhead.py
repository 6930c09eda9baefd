"""What perfkit and the bundled server add to DenseNet-121: its p50 at concurrency 1 beside ONNX Runtime called directly.

    python benchmarks/densenet_overhead.py [--rounds 5] [--seconds 10] [--out reports/densenet-overhead.md]

In each round ONNX Runtime runs the same file in a loop, with the threads and on the CPUs that the bundled server then
has, and perfkit measures over HTTP and gRPC. The machine may drift, so differences are taken within a round.
"""

import argparse
import json
import pathlib
import statistics
import subprocess
import sys
import tempfile
import time

import numpy as np

ROOT = pathlib.Path(__file__).parents[1]
ALLOWED_SHARE, ALLOWED_MS = 0.05, 2.0


def direct_p50_ms(threads: int, cpus: str, seconds: float) -> float:
    """The median of ONNX Runtime alone, in a process of its own so that it can be pinned as the server is."""
    command = [sys.executable, __file__, "--direct", "--threads", str(threads), "--cpus", cpus, "--seconds", str(seconds)]
    return float(subprocess.run(command, check=True, capture_output=True, text=True).stdout)


def run_direct(threads: int, cpus: str, seconds: float) -> float:
    """The loop in that process."""
    import os

    from server_stub.executors.onnx import OnnxExecutor
    from server_stub.models.densenet import seeded_file
    from server_stub.options import parse_cpus

    os.sched_setaffinity(0, parse_cpus(cpus))
    executor = OnnxExecutor(seeded_file(), threads)
    image = np.random.default_rng(0).random((1, 3, 224, 224), dtype=np.float32)
    taken_ms: list[float] = []
    end_s = time.perf_counter() + 1 + seconds
    while time.perf_counter() < end_s:
        start_ns = time.perf_counter_ns()
        executor.execute({"data_0": image})
        taken_ms.append((time.perf_counter_ns() - start_ns) / 1e6)
    return statistics.median(taken_ms[len(taken_ms) // int(seconds + 1) :])


def perfkit_p50_ms(threads: int, cpus: str, seconds: float) -> dict[str, float]:
    """What `perfkit run` reports, by protocol."""
    with tempfile.TemporaryDirectory() as folder:
        settings = {
            "server.threads": threads,
            "server.cpus": f'"{cpus}"',
            "load.closed.concurrency": 1,
            "measure.duration": f"{seconds}s",
            "measure.repetitions": 1,
        }
        command = [sys.executable, "-m", "perfkit", "run", str(ROOT / "scenarios" / "densenet.yaml"), "--quiet", "--out", f"{folder}/out"]
        command += [f"--set={key}={value}" for key, value in settings.items()]
        subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
        result = json.loads(pathlib.Path(folder, "out", "result.json").read_text(encoding="utf-8"))
    return {point["protocol"]: point["service_time_ns"]["p50"] / 1e6 for point in result["points"]}


def main() -> int:
    """Prints the table, and says whether the difference is allowed."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--seconds", type=float, default=10)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--cpus", default="0", help="the server's CPUs; the load generator takes another")
    parser.add_argument("--out", type=pathlib.Path)
    parser.add_argument("--direct", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.direct:
        print(run_direct(options.threads, options.cpus, options.seconds))
        return 0
    lines = [
        "| round | ONNX Runtime p50 | HTTP p50 | gRPC p50 | HTTP − direct | gRPC − direct | allowed |",
        "|---|---|---|---|---|---|---|",
    ]
    excess_ms: dict[str, list[float]] = {"http": [], "grpc": []}
    for number in range(options.rounds):
        direct = direct_p50_ms(options.threads, options.cpus, options.seconds)
        measured = perfkit_p50_ms(options.threads, options.cpus, options.seconds)
        allowed = ALLOWED_SHARE * direct + ALLOWED_MS
        for protocol, values in excess_ms.items():
            values.append(measured[protocol] - direct - allowed)
        figures = (direct, measured["http"], measured["grpc"], measured["http"] - direct, measured["grpc"] - direct, allowed)
        lines.append(f"| {number + 1} | " + " | ".join(f"{figure:.2f} ms" for figure in figures) + " |")
    medians = {protocol: statistics.median(values) for protocol, values in excess_ms.items()}
    passed = all(value <= 0 for value in medians.values())
    lines += ["", f"Within 5 % + 2 ms of direct calls (median over the rounds): {'yes' if passed else 'no'}; to spare: "
              + ", ".join(f"{protocol} {-value:.2f} ms" for protocol, value in medians.items()) + "."]  # fmt: skip
    print("\n".join(lines))
    if options.out:
        head = f"# DenseNet-121 at concurrency 1, beside ONNX Runtime called directly\n\n{options.threads} thread(s), the server on CPU {options.cpus}.\n\n"
        options.out.write_text(head + "\n".join(lines) + "\n", encoding="utf-8")
    return 0 if passed else 1


if __name__ == "__main__":
    sys.exit(main())
