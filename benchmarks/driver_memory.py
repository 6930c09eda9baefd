"""Whether the driver's peak memory grows with the length of a run: 10 s beside 120 s, at full speed on `simple`.

    python benchmarks/driver_memory.py [--seconds 10 120] [--out reports/driver-memory.md]

The peak is the kernel's own (`VmHWM`) for perfkit's process alone: neither the bundled server nor the process that draws
the report counts. Linux only.
"""

import argparse
import json
import pathlib
import subprocess
import sys
import tempfile
import time

ROOT = pathlib.Path(__file__).parents[1]


def peak_mib(process: "subprocess.Popen[bytes]") -> float:
    """The highest peak that the kernel reports until the process ends."""
    peak = 0.0
    while process.poll() is None:
        try:
            status = pathlib.Path(f"/proc/{process.pid}/status").read_text(encoding="ascii")
        except OSError:
            break
        found = [int(line.split()[1]) / 1024 for line in status.splitlines() if line.startswith("VmHWM:")]
        peak = max([peak, *found])
        time.sleep(0.2)
    return peak


def measure(seconds: int) -> tuple[int, float]:
    """Requests sent in a run of that length, and the driver's peak."""
    with tempfile.TemporaryDirectory() as folder:
        command = [sys.executable, "-m", "perfkit", "run", str(ROOT / "scenarios" / "simple.yaml"), "--quiet", "--out", f"{folder}/out"]
        settings = {"target.protocols": "[http]", "load.closed.concurrency": 8, "measure.duration": f"{seconds}s", "measure.repetitions": 1}
        command += [f"--set={key}={value}" for key, value in settings.items()]
        with subprocess.Popen(command, stdout=subprocess.DEVNULL) as process:
            peak = peak_mib(process)
        result = json.loads(pathlib.Path(folder, "out", "result.json").read_text(encoding="utf-8"))
        return result["points"][0]["requests"]["sent"], peak


def main() -> int:
    """Prints the table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--seconds", type=int, nargs="+", default=[10, 120])
    parser.add_argument("--out", type=pathlib.Path)
    options = parser.parse_args()
    lines = ["| measured for | requests | peak memory of the driver |", "|---:|---:|---:|"]
    for seconds in options.seconds:
        sent, peak = measure(seconds)
        lines.append(f"| {seconds} s | {sent:,} | {peak:.1f} MiB |")
    print("\n".join(lines))
    if options.out:
        options.out.write_text("# The driver's peak memory, by the length of the run\n\n" + "\n".join(lines) + "\n", encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
