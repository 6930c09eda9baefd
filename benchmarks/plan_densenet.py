"""A capacity plan for DenseNet-121, with a check of its prediction at a held-out rate against a later measurement.

    python -m benchmarks.plan_densenet [--restarts 3] [--window-requests 130] [--work build/plan-densenet] [--out reports/plan-densenet.md]

`densenet_onnx` and `densenet_batch` on the bundled server, with one thread and with two, planned for 1,000/s at p99 < 500 ms. For
each of the four setups, a closed loop gives the saturated throughput X. Open loops at shares of X, each series on a restarted
server, give the data of the plan. The plan predicts p50, p95 and p99 at 0.66·X, a rate that is not in the data; then that rate is
measured, after another restart. Assumed price: $0.05 per core and hour, one core per thread.

It takes about 25 minutes on two cores. Results in the work folder are not measured again, so an interrupted run continues;
another work folder starts from the beginning. The exit code is 1 if a measured p99 lies outside its 90 % interval.
"""

import dataclasses
import json
import os
import pathlib
import shutil
import subprocess
import sys
from typing import Any

from benchmarks.processes import ROOT, run_perfkit
from benchmarks.report import option_parser, table_head, table_row, write_report, yes_no

SLO, DEMAND, DOLLARS_PER_CORE_HOUR = "p99<500ms", "1000/s", 0.05
SHARES, HELD_OUT_SHARE = (0.55, 0.62, 0.7, 0.78, 0.88), 0.66
FIRST_SERIES_SHARES = (0.2, 0.35, 1.4)  # in the first series only: low rates, which say little about percentiles, and an overload
MAX_WINDOW_S, PERCENTILES = 40.0, ("p50", "p95", "p99")


@dataclasses.dataclass(frozen=True, slots=True)
class ServerSetup:
    """One way to serve the model."""

    model: str
    threads: int
    cpus: str

    @property
    def label(self) -> str:
        """A label such as `batch-2`."""
        return f"{self.model.removeprefix('densenet_')}-{self.threads}"

    @property
    def price(self) -> str:
        """The value for `--price`."""
        return f"{self.label}=${DOLLARS_PER_CORE_HOUR * self.threads:.2f}/h"


@dataclasses.dataclass(frozen=True, slots=True)
class HeldOutPercentile:
    """A percentile at the rate held out: the prediction with its 90 % interval, and the measured value if there are enough samples."""

    label: str
    rate_per_s: float
    percentile: str
    expected_ns: float
    low_ns: float
    high_ns: float
    measured_ns: float | None
    samples: int
    is_valid: bool

    @property
    def half_width(self) -> float:
        """The larger distance between the prediction and a bound of its interval, relative to the prediction."""
        return max(self.high_ns - self.expected_ns, self.expected_ns - self.low_ns) / self.expected_ns

    @property
    def is_inside(self) -> bool:
        """Whether the measured value lies in the interval."""
        return self.measured_ns is not None and self.low_ns <= self.measured_ns <= self.high_ns

    def row(self) -> str:
        """The line of the table."""
        expected, low, high = (f"{value_ns / 1e6:.0f}" for value_ns in (self.expected_ns, self.low_ns, self.high_ns))
        measured = "–" if self.measured_ns is None else f"{self.measured_ns / 1e6:.0f} ms"
        cells = (f"{expected} ms", f"{low} to {high} ms", f"{self.half_width:.0%}", measured, self.samples)
        return table_row(self.label, f"{self.rate_per_s:g}/s", self.percentile, *cells, yes_no(self.is_inside), yes_no(self.is_valid))


class NoPlanError(Exception):
    """`perfkit plan` made no plan; the message is its error."""


def measure(
    folder: pathlib.Path, setup: ServerSetup, load: dict[str, Any], seed: int, window_s: float, repetitions: int = 1
) -> dict[str, Any]:
    """The result stored in a folder; measures it if there is none. An invalid point has a result too."""
    if (folder / "result.json").exists():
        document: dict[str, Any] = json.loads((folder / "result.json").read_text(encoding="utf-8"))
        return document
    print(f"{setup.label}: {folder.name}, windows of {window_s:.1f} s", flush=True)
    scenario = {
        "name": f"{setup.label}-{folder.name}",
        "target": {"model": setup.model},
        "server": {"threads": setup.threads, "cpus": setup.cpus},
        "workload": {"seed": seed},
        "load": load,
        "measure": {"warmup": "1s", "duration": f"{window_s:.3f}s", "repetitions": repetitions},
    }
    run = run_perfkit(scenario, out=folder)
    if run.result is None:
        sys.exit(f"plan_densenet: perfkit run ended with exit code {run.exit_code}: {run.stderr}")
    return run.result


def rates(saturated_per_s: float, shares: tuple[float, ...]) -> list[float]:
    """Arrival rates at shares of the saturated throughput, rounded to two decimals."""
    return [round(share * saturated_per_s, 2) for share in shares]


def plan(results: list[str], slo: str, out: pathlib.Path, *options: str) -> dict[str, Any]:
    """Runs `perfkit plan` on results, and returns the plan; raises NoPlanError."""
    # relative paths, because the plan names them and is stored
    relative = [f"{label}={os.path.relpath(folder, ROOT)}" for label, _, folder in (result.partition("=") for result in results)]
    command = [sys.executable, "-m", "perfkit", "plan", *relative, "--slo", slo, "--demand", DEMAND, "--redundancy", "1", "--out", str(out)]
    ended = subprocess.run([*command, "--quiet", *options], capture_output=True, text=True, cwd=ROOT, check=False)
    if ended.returncode:
        raise NoPlanError(ended.stderr.strip())
    document: dict[str, Any] = json.loads((out / "plan.json").read_text(encoding="utf-8"))
    return document


def measure_setup(
    setup: ServerSetup, work: pathlib.Path, restarts: int, window_requests: int, slo: str
) -> tuple[list[str], list[HeldOutPercentile]]:
    """The results of one setup, each with its label, and the predictions with the measured values."""
    folder = work / setup.label
    closed = measure(folder / "closed", setup, {"closed": {"concurrency": [1, 8]}}, 0, 5.0)
    saturated = max(point["throughput_per_s"] for point in closed["summary"])
    window_s = min(window_requests / (SHARES[0] * saturated), MAX_WINDOW_S)
    for restart in range(restarts):
        shares = (*FIRST_SERIES_SHARES, *SHARES) if restart == 0 else SHARES
        measure(folder / f"open-{restart}", setup, _open(rates(saturated, shares)), 100 + restart, window_s)
    results = [f"{setup.label}={folder / name}" for name in ("closed", *(f"open-{restart}" for restart in range(restarts)))]
    (rate,) = rates(saturated, (HELD_OUT_SHARE,))
    predicted = plan(results, slo, folder / "plan", "--at", f"{rate}/s")
    measured = measure(folder / "held-out", setup, _open([rate]), 999, window_s, repetitions=2)
    return results, compare(setup.label, predicted, measured)


def _open(rates_per_s: list[float]) -> dict[str, Any]:
    return {"open": {"rate": rates_per_s, "arrivals": "poisson"}}


def compare(label: str, predicted: dict[str, Any], measured: dict[str, Any]) -> list[HeldOutPercentile]:
    """Each percentile's prediction with the measured value."""
    (configuration,), (point,) = predicted["configurations"], measured["summary"]
    times = point["response_time_ns"]
    return [
        HeldOutPercentile(
            label,
            prediction["expected"]["rate_per_s"],
            prediction["percentile"],
            prediction["expected"]["value"],
            prediction["expected"]["low"],
            prediction["expected"]["high"],
            times[prediction["percentile"]],
            times["count"],
            point["valid"],
        )
        for prediction in configuration["predictions"]
        if prediction["percentile"] in PERCENTILES
    ]


def report(plan_text: str, percentiles: list[HeldOutPercentile], without_plan: list[str], slo: str = SLO) -> list[str]:
    """The report's lines, with the plan at the end."""
    p99s = [percentile for percentile in percentiles if percentile.percentile == "p99"]
    counts = [f"{sum(one.is_inside for one in group)} of {len(group)}" for group in (percentiles, p99s)]
    plan_section = "## The plan\n" + plan_text.partition("\n")[2].replace("\n## ", "\n### ")  # the title names model and date
    return [
        "# A capacity plan for DenseNet-121, and its predictions compared with a later measurement",
        "",
        f"`python -m benchmarks.plan_densenet`: {slo}, {DEMAND}. The plan is not made from the rate below; it was measured after the plan, on",
        "a restarted server, in two windows, each as long as those that the intervals are for. A single window would vary more.",
        "",
        *table_head(
            "setup", ">rate", ">percentile", ">expected", "90 % interval", ">half-width", ">measured", ">samples", "inside", "valid"
        ),
        *(percentile.row() for percentile in percentiles),
        "",
        f"Inside their intervals: {counts[0]}; of the p99: {counts[1]}.",
        "",
        *(f"No plan for {sentence}" for sentence in without_plan),
        plan_section,
    ]


def main() -> int:
    """Measures, plans, and writes the report."""
    parser = option_parser(__doc__, out=ROOT / "reports" / "plan-densenet.md")
    parser.add_argument("--restarts", type=int, default=3, help="series of open loops, each on a restarted server (default %(default)s)")
    parser.add_argument("--window-requests", type=int, default=130, help="arrivals per window at the lowest rate (default %(default)s)")
    parser.add_argument("--slo", default=SLO, help="the SLO, if this machine cannot meet the default (default %(default)s)")
    parser.add_argument("--setups", help="labels of the setups to measure, such as onnx-1,batch-2 (default: all)")
    parser.add_argument("--cpus", default="0;0,1", help="the server's CPUs with one thread, and with two (default %(default)s)")
    parser.add_argument("--work", type=pathlib.Path, default=ROOT / "build" / "plan-densenet", help="folder of the results")
    options = parser.parse_args()
    cpus = options.cpus.split(";")
    setups = [ServerSetup(model, threads, cpus[threads - 1]) for model in ("densenet_onnx", "densenet_batch") for threads in (1, 2)]
    results: list[str] = []
    percentiles: list[HeldOutPercentile] = []
    without_plan, prices = [], []
    for setup in setups:
        if options.setups and setup.label not in options.setups.split(","):
            continue
        try:
            of_setup, predictions = measure_setup(setup, options.work, options.restarts, options.window_requests, options.slo)
        except NoPlanError as error:
            without_plan.append(f"{setup.label}: {error}")
            print(without_plan[-1], flush=True)
            continue
        results += of_setup
        percentiles += predictions
        prices += ["--price", setup.price]
    if not results:
        return 1
    plan(results, options.slo, options.work / "plan", *prices)
    lines = report((options.work / "plan" / "plan.md").read_text(encoding="utf-8"), percentiles, without_plan, options.slo)
    write_report(options.out, lines)
    shutil.copy(options.work / "plan" / "plan.html", options.out.with_suffix(".html"))
    print("\n".join(lines[:-1]))
    return 0 if not without_plan and all(one.is_inside for one in percentiles if one.percentile == "p99") else 1


if __name__ == "__main__":
    sys.exit(main())
