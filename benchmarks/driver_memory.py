"""Peak memory of the load generator in a short and a long run, at full speed on `simple`: it must not grow with the length.

    python -m benchmarks.driver_memory [--seconds 10 120] [--out reports/driver-memory.md]

The peak is the kernel's VmHWM for perfkit's own process, without the bundled server. Linux only.
"""

import subprocess
import sys
import time

from benchmarks.processes import ROOT, peak_memory_kib, run_perfkit
from benchmarks.report import option_parser, publish, table_head, table_row

_SAMPLE_INTERVAL_S = 0.2


def measure(seconds: int) -> tuple[int, float]:
    """The requests sent in a run of that length, and the load generator's peak memory in MiB."""
    peaks_kib = [0]

    def sample(process: "subprocess.Popen[bytes]") -> None:
        while process.poll() is None:
            peaks_kib.append(peak_memory_kib(process.pid))
            time.sleep(_SAMPLE_INTERVAL_S)

    settings = {"target.protocols": "[http]", "load.closed.concurrency": 8, "measure.duration": f"{seconds}s", "measure.repetitions": 1}
    run = run_perfkit(ROOT / "scenarios" / "simple.yaml", *(f"--set={key}={value}" for key, value in settings.items()), during=sample)
    return run.point["requests"]["sent"], max(peaks_kib) / 1024


def main() -> int:
    """Prints the table."""
    parser = option_parser(__doc__)
    parser.add_argument("--seconds", type=int, nargs="+", default=[10, 120], help="lengths of the runs")
    options = parser.parse_args()
    lines = ["# Peak memory of the load generator by the length of the run", "", *table_head(">measured for", ">requests", ">peak memory")]
    for seconds in options.seconds:
        sent, peak_mib = measure(seconds)
        lines.append(table_row(f"{seconds} s", f"{sent:,}", f"{peak_mib:.1f} MiB"))
    return publish(options.out, lines)


if __name__ == "__main__":
    sys.exit(main())
