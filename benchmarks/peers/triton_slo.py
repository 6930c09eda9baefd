"""Exit codes of `perfkit run URL --slo` on a healthy Triton, for limits that are far from what it does.

    python -m benchmarks.peers.triton_slo [--runs 7] [--protocols http grpc] [--out reports/triton-slo.md]

The command is a new user's, `perfkit run URL -m simple -c 1,4,16 --slo p99=LIMIT`, with its usual windows. The limit is ten times the p99 of a first run at 16 requests in
flight, which every run must find satisfied (exit code 0), or a third of the median at one request in flight, which every run must find violated (exit code 1). The exit code
is 1 if a run ends otherwise.
"""

import collections
import pathlib
import subprocess
import sys
import tempfile
from typing import Any

from benchmarks.peers.install import peers_folder
from benchmarks.peers.triton import running_triton
from benchmarks.report import Report, describe_machine, program_options
from perfkit.result.file import read_result
from perfkit.units import NS_PER_S

CONCURRENCY = "1,4,16"


def run(url: str, folder: pathlib.Path, *options: str) -> tuple[int, Any]:
    """The exit code of a run, and its result."""
    words = ["run", url, "-m", "simple", "-c", CONCURRENCY, "--out", str(folder), "--no-report", *options]
    code = subprocess.run(
        [sys.executable, "-m", "perfkit", *words], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, check=False
    ).returncode
    return code, read_result(folder)[0]


def main() -> int:
    """Runs Triton and the commands, and writes the report."""
    options = program_options(
        __doc__, out="triton-slo", runs=(7, "runs of each limit"), protocols=(["http", "grpc"], "over these"), peers=pathlib.Path
    )
    page = Report(options.out, "An SLO that is far from what Triton does")
    page.add(describe_machine(), "")
    page.table("protocol", "limit", ">runs", "exit codes", "must be", "verdicts of the load points", ">p99 at 1, 4, 16 (medians)")
    with tempfile.TemporaryDirectory() as name, running_triton(peers_folder(options.peers)) as triton:
        for protocol in options.protocols:
            url = triton.url(protocol)
            _, first = run(url, pathlib.Path(name, f"{protocol}-first"))
            points = sorted(first.summary, key=lambda point: point.load.concurrency)
            limits = {"ten times the p99": (10 * points[-1].times.p99, 0), "a third of the median": (points[0].times.p50 / 3, 1)}
            for what, (limit_ns, wanted) in limits.items():
                codes, verdicts, p99s = (
                    collections.Counter[int](),
                    collections.Counter[str](),
                    collections.defaultdict[int, list[float]](list),
                )
                for number in range(options.runs):
                    code, result = run(url, pathlib.Path(name, f"{protocol}-{wanted}-{number}"), "--slo", f"p99={limit_ns / 1e3:.0f}us")
                    codes[code] += 1
                    verdicts.update(point.slo.verdict for point in result.summary)
                    for point in result.summary:
                        p99s[point.load.concurrency].append(point.times.p99 or 0)
                medians = ", ".join(f"{sorted(found)[len(found) // 2] / NS_PER_S * 1e3:.2f} ms" for _, found in sorted(p99s.items()))
                page.row(
                    protocol, f"{what}, {limit_ns / 1e6:.3g} ms", options.runs, ", ".join(f"{code}: {count}" for code, count in sorted(codes.items())),
                    wanted, ", ".join(f"{verdict} {count}" for verdict, count in verdicts.items()), medians,
                )  # fmt: skip
                page.is_met &= set(codes) == {wanted}
    return page.write()


if __name__ == "__main__":
    sys.exit(main())
