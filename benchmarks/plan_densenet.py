"""A capacity plan for DenseNet-121, with a check of its prediction at a held-out rate against a later measurement.

    python -m benchmarks.plan_densenet [--restarts 3] [--window-requests 130] [--work build/plan-densenet] [--out reports/plan-densenet.md]

`densenet_onnx` and `densenet_batch` on the bundled server, with one thread and with two, planned for 1,000/s at p99 < 500 ms. For
each of the four setups, a closed loop gives the saturated throughput X. Open loops at shares of X, each series on a restarted
server, give the data of the plan. The plan predicts p50, p95 and p99 at 0.66·X, a rate that is not in the data; then that rate is
measured, after another restart. Assumed price: $0.05 per core and hour, one core per thread.

It takes about 25 minutes on two cores. Results in the work folder are not measured again, so an interrupted run continues;
another work folder starts from the beginning. The exit code is 1 if a measured p99 lies outside its 90 % interval.
"""

import json
import os
import pathlib
import shutil
import subprocess
import sys
from collections.abc import Iterator
from typing import Any, NamedTuple

from benchmarks.processes import ROOT, run_perfkit
from benchmarks.report import Report, program_options, yes_no

SLO, DEMAND, DOLLARS_PER_CORE_HOUR = "p99<500ms", "1000/s", 0.05
SHARES, HELD_OUT_SHARE = (0.55, 0.62, 0.7, 0.78, 0.88), 0.66
FIRST_SERIES_SHARES = (0.2, 0.35, 1.4)  # in the first series only: low rates, which say little about percentiles, and an overload
MAX_WINDOW_S, PERCENTILES = 40.0, ("p50", "p95", "p99")


class ServerSetup(NamedTuple):
    """One way to serve the model."""

    model: str
    threads: int
    cpus: str

    @property
    def label(self) -> str:
        """A label such as `batch-2`."""
        return f"{self.model.removeprefix('densenet_')}-{self.threads}"


class HeldOutPercentile(NamedTuple):
    """A percentile at the rate held out: whether it lies within the prediction's 90 % interval, and its line of the table."""

    percentile: str
    is_inside: bool
    cells: tuple[object, ...]


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
    return results, [*compare(setup.label, predicted, measured)]


def _open(rates_per_s: list[float]) -> dict[str, Any]:
    return {"open": {"rate": rates_per_s, "arrivals": "poisson"}}


def compare(label: str, predicted: dict[str, Any], measured: dict[str, Any]) -> Iterator[HeldOutPercentile]:
    """Each percentile's prediction with the measured value, if there are enough samples."""
    (configuration,), (point,) = predicted["configurations"], measured["summary"]
    times = point["response_time_ns"]
    for prediction in configuration["predictions"]:
        percentile, expected = prediction["percentile"], prediction["expected"]
        if percentile in PERCENTILES:
            value, low, high = (expected[name] for name in ("value", "low", "high"))
            found = times[percentile]
            is_inside = found is not None and low <= found <= high
            shown = "–" if found is None else f"{found / 1e6:.0f} ms"
            interval = (f"{value / 1e6:.0f} ms", f"{low / 1e6:.0f} to {high / 1e6:.0f} ms", f"{max(high - value, value - low) / value:.0%}")
            cells = (
                label,
                f"{expected['rate_per_s']:g}/s",
                percentile,
                *interval,
                shown,
                times["count"],
                yes_no(is_inside),
                yes_no(point["valid"]),
            )
            yield HeldOutPercentile(percentile, is_inside, cells)


def main() -> int:
    """Measures, plans, and writes the report."""
    options = program_options(
        __doc__,
        out="plan-densenet",
        restarts=(3, "series of open loops, each on a restarted server"),
        window_requests=(130, "arrivals per window at the lowest rate"),
        slo=(SLO, "the SLO, if this machine cannot meet the default"),
        setups=("onnx-1,onnx-2,batch-1,batch-2", "labels of the setups to measure"),
        cpus=("0;0,1", "the server's CPUs with one thread, and with two"),
        work=(ROOT / "build" / "plan-densenet", "folder of the results"),
    )
    cpus = options.cpus.split(";")
    setups = [ServerSetup(model, threads, cpus[threads - 1]) for model in ("densenet_onnx", "densenet_batch") for threads in (1, 2)]
    report = Report(options.out, "A capacity plan for DenseNet-121, and its predictions compared with a later measurement")
    report.add(
        f"`python -m benchmarks.plan_densenet`: {options.slo}, {DEMAND}. The plan is not made from the rate below; it was measured after the plan, on",
        "a restarted server, in two windows, each as long as those that the intervals are for. A single window would vary more.",
        "",
    )
    report.table("setup", ">rate", ">percentile", ">expected", "90 % interval", ">half-width", ">measured", ">samples", "inside", "valid")
    results, prices, without_plan = list[str](), list[str](), list[str]()
    percentiles = list[HeldOutPercentile]()
    for setup in (setup for setup in setups if setup.label in options.setups.split(",")):
        try:
            of_setup, predictions = measure_setup(setup, options.work, options.restarts, options.window_requests, options.slo)
        except NoPlanError as error:
            without_plan.append(f"No plan for {setup.label}: {error}")
            continue
        results += of_setup
        percentiles += predictions
        prices += ["--price", f"{setup.label}=${DOLLARS_PER_CORE_HOUR * setup.threads:.2f}/h"]
        for one in predictions:
            report.row(*one.cells)
    p99s = [one for one in percentiles if one.percentile == "p99"]
    of_all, of_p99s = (f"{sum(one.is_inside for one in group)} of {len(group)}" for group in (percentiles, p99s))
    report.add("", f"Inside their intervals: {of_all}; of the p99: {of_p99s}.", "", *without_plan)
    report.is_met = bool(results) and not without_plan and all(one.is_inside for one in p99s)
    if results:
        plan(results, options.slo, options.work / "plan", *prices)
        text = (options.work / "plan" / "plan.md").read_text(encoding="utf-8")
        report.add("## The plan\n" + text.partition("\n")[2].replace("\n## ", "\n### "))  # the title names model and date
        shutil.copy(options.work / "plan" / "plan.html", options.out.with_suffix(".html"))
    return report.write()


if __name__ == "__main__":
    sys.exit(main())
