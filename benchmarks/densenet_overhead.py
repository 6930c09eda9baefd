"""The time that perfkit and the bundled server add to DenseNet-121: p50 at concurrency 1 compared with ONNX Runtime called directly.

    python -m benchmarks.densenet_overhead [--rounds 5] [--seconds 10] [--out reports/densenet-overhead.md]

Each round calls ONNX Runtime directly, with the threads and CPUs that the bundled server then gets, and runs perfkit over
HTTP and gRPC. Differences are taken within a round, since the machine drifts. The exit code is 1 if the median difference is
above 5 % + 2 ms.
"""

import statistics
import sys

from benchmarks.onnx_directly import call_directly
from benchmarks.processes import ROOT, run_perfkit
from benchmarks.report import option_parser, table_head, table_row, write_report, yes_no

ALLOWED_SHARE, ALLOWED_MS = 0.05, 2.0


def perfkit_p50_ms(threads: int, cpus: str, seconds: float) -> dict[str, float]:
    """The p50 that `perfkit run` reports, by protocol."""
    settings = {
        "server.threads": threads,
        "server.cpus": f'"{cpus}"',
        "load.closed.concurrency": 1,
        "measure.duration": f"{seconds}s",
        "measure.repetitions": 1,
    }
    run = run_perfkit(ROOT / "scenarios" / "densenet.yaml", *(f"--set={key}={value}" for key, value in settings.items()))
    return {point["protocol"]: point["service_time_ns"]["p50"] / 1e6 for point in run.points}


def main() -> int:
    """Prints the table and the verdict."""
    parser = option_parser(__doc__)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--seconds", type=float, default=10, help="length of each measurement (default %(default)s)")
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--cpus", default="0", help="the server's CPUs; the load generator uses another")
    options = parser.parse_args()
    head = [
        "# DenseNet-121 at concurrency 1: perfkit and the bundled server compared with ONNX Runtime",
        "",
        f"{options.threads} thread(s), the server on CPU {options.cpus}.",
        "",
    ]
    lines = table_head(
        "round", *(f">{title}" for title in ("ONNX Runtime p50", "HTTP p50", "gRPC p50", "HTTP − direct", "gRPC − direct", "allowed"))
    )
    excess_ms: dict[str, list[float]] = {"http": [], "grpc": []}
    print("\n".join(lines))
    for number in range(options.rounds):
        direct = call_directly("densenet_onnx", seconds=options.seconds, threads=options.threads, cpus=options.cpus).p50_ms
        measured = perfkit_p50_ms(options.threads, options.cpus, options.seconds)
        allowed = ALLOWED_SHARE * direct + ALLOWED_MS
        for protocol, values in excess_ms.items():
            values.append(measured[protocol] - direct - allowed)
        figures = (direct, measured["http"], measured["grpc"], measured["http"] - direct, measured["grpc"] - direct, allowed)
        lines.append(table_row(number + 1, *(f"{figure:.2f} ms" for figure in figures)))
        print(lines[-1], flush=True)
    medians = {protocol: statistics.median(values) for protocol, values in excess_ms.items()}
    is_allowed = all(value <= 0 for value in medians.values())
    margins = ", ".join(f"{protocol} {-value:.2f} ms" for protocol, value in medians.items())
    lines += ["", f"Within 5 % + 2 ms of direct calls (median of the rounds): {yes_no(is_allowed)}; margin: {margins}."]
    print(lines[-1])
    write_report(options.out, [*head, *lines])
    return 0 if is_allowed else 1


if __name__ == "__main__":
    sys.exit(main())
