"""A plan for DenseNet-121, and whether what it predicts at a rate that it has not seen is then measured there.

    python -m benchmarks.plan_densenet [--restarts 3] [--window-requests 130] [--work build/plan-densenet] [--out reports/plan-densenet.md]

`densenet_onnx` and `densenet_batch` on the bundled server, with one thread and with two, planned for 1,000/s at p99 < 500 ms. For
each of the four: a closed loop finds the saturated throughput X; open loops at shares of X, the server restarted for each
series, are what the plan is made from; the plan predicts p50, p95 and p99 at 0.66·X, which is none of those rates; then that
rate is measured, after another restart. Prices are an assumption: $0.05 for a core and an hour, a thread a core.

Some 25 minutes on two cores. What is in the work folder already is not measured again, so an interrupted run goes on where it
stopped; another work folder begins anew. The exit code is 1 where a measured p99 lies outside its 90 % interval.
"""

import argparse
import dataclasses
import json
import os
import pathlib
import shutil
import subprocess
import sys
from typing import Any

ROOT = pathlib.Path(__file__).parents[1]
SLO, DEMAND, DOLLARS_A_CORE_HOUR = "p99<500ms", "1000/s", 0.05
SHARES, HELD_OUT_SHARE = (0.55, 0.62, 0.7, 0.78, 0.88), 0.66
ONCE_SHARES = (0.2, 0.35, 1.4)  # in the first series alone: little to learn of a percentile, and an overload
LONGEST_WINDOW_S, PERCENTILES = 40.0, ("p50", "p95", "p99")


@dataclasses.dataclass(frozen=True, slots=True)
class Setting:
    """One way to serve the model."""

    model: str
    threads: int
    cpus: str

    @property
    def label(self) -> str:
        """`batch-2`, for instance."""
        return f"{self.model.removeprefix('densenet_')}-{self.threads}"

    @property
    def price(self) -> str:
        """For `--price`."""
        return f"{self.label}=${DOLLARS_A_CORE_HOUR * self.threads:.2f}/h"


@dataclasses.dataclass(frozen=True, slots=True)
class Held:
    """A percentile at the rate held out: what the plan said, and what was measured then."""

    label: str
    rate_per_s: float
    percentile: str
    expected_ns: float
    low_ns: float
    high_ns: float
    half_width: float
    measured_ns: float | None
    samples: int
    is_valid: bool

    @property
    def is_inside(self) -> bool:
        """Whether the measured value lies in the interval."""
        return self.measured_ns is not None and self.low_ns <= self.measured_ns <= self.high_ns


class NoPlanError(Exception):
    """What `perfkit plan` said in place of a plan."""


def measure(
    folder: pathlib.Path, setting: Setting, load: dict[str, Any], seed: int, window_s: float, repetitions: int = 1
) -> dict[str, Any]:
    """The result in a folder, measured unless it is there already."""
    if not (folder / "result.json").exists():
        scenario = {
            "name": f"{setting.label}-{folder.name}",
            "target": {"model": setting.model},
            "server": {"threads": setting.threads, "cpus": setting.cpus},
            "workload": {"seed": seed},
            "load": load,
            "measure": {"warmup": "1s", "duration": f"{window_s:.3f}s", "repetitions": repetitions},
        }
        folder.parent.mkdir(parents=True, exist_ok=True)
        file = folder.with_suffix(".yaml")
        file.write_text(json.dumps(scenario, indent=1), encoding="utf-8")  # JSON is YAML
        print(f"{setting.label}: {folder.name}, windows of {window_s:.1f} s", flush=True)
        command = [sys.executable, "-m", "perfkit", "run", str(file), "--quiet", "--out", str(folder)]
        subprocess.run(
            command, stdout=subprocess.DEVNULL, cwd=ROOT, check=False
        )  # an invalid point has an exit code of its own, and is written
    result = json.loads((folder / "result.json").read_text(encoding="utf-8"))
    assert isinstance(result, dict)
    return result


def rates(saturated_per_s: float, shares: tuple[float, ...]) -> list[float]:
    """Arrival rates at shares of the saturated throughput, as people would write them."""
    return [round(share * saturated_per_s, 2) for share in shares]


def plan(results: list[str], slo: str, out: pathlib.Path, *options: str) -> dict[str, Any]:
    """`perfkit plan` of results, and what it found."""
    # relative to where it runs: the plan names them, and is kept
    relative = [f"{label}={os.path.relpath(folder, ROOT)}" for label, _, folder in (result.partition("=") for result in results)]
    command = [sys.executable, "-m", "perfkit", "plan", *relative, "--slo", slo, "--demand", DEMAND, "--redundancy", "1", "--out", str(out)]
    done = subprocess.run(
        [*command, "--quiet", *options], stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True, cwd=ROOT, check=False
    )
    if done.returncode:
        raise NoPlanError(done.stderr.strip())
    found = json.loads((out / "plan.json").read_text(encoding="utf-8"))
    assert isinstance(found, dict)
    return found


def measure_setting(setting: Setting, work: pathlib.Path, restarts: int, window_requests: int, slo: str) -> tuple[list[str], list[Held]]:
    """The results of one setting, each with its label, and the predictions beside what was measured."""
    folder = work / setting.label
    closed = measure(folder / "closed", setting, {"closed": {"concurrency": [1, 8]}}, 0, 5.0)
    saturated = max(point["throughput_per_s"] for point in closed["summary"])
    window_s = min(window_requests / (SHARES[0] * saturated), LONGEST_WINDOW_S)
    for restart in range(restarts):
        shares = (*ONCE_SHARES, *SHARES) if restart == 0 else SHARES
        measure(folder / f"open-{restart}", setting, _open(rates(saturated, shares)), 100 + restart, window_s)
    results = [f"{setting.label}={folder / name}" for name in ("closed", *(f"open-{restart}" for restart in range(restarts)))]
    (rate,) = rates(saturated, (HELD_OUT_SHARE,))
    predicted = plan(results, slo, folder / "plan", "--at", f"{rate}/s")
    measured = measure(folder / "held-out", setting, _open([rate]), 999, window_s, repetitions=2)
    return results, compare(setting.label, predicted, measured)


def _open(rates_per_s: list[float]) -> dict[str, Any]:
    return {"open": {"rate": rates_per_s, "arrivals": "poisson"}}


def compare(label: str, predicted: dict[str, Any], measured: dict[str, Any]) -> list[Held]:
    """Each percentile's prediction beside the measured value."""
    (configuration,), (point,) = predicted["configurations"], measured["summary"]
    held = []
    for one in configuration["predictions"]:
        if one["percentile"] in PERCENTILES:
            expected, times = one["expected"], point["response_time_ns"]
            low, high = expected["low"], expected["high"]
            half_width = max(high - expected["value"], expected["value"] - low) / expected["value"]
            held.append(
                Held(
                    label,
                    expected["rate_per_s"],
                    one["percentile"],
                    expected["value"],
                    low,
                    high,
                    half_width,
                    times[one["percentile"]],
                    times["count"],
                    point["valid"],
                )
            )
    return held


def report(plan_text: str, held: list[Held], without: list[str], slo: str = SLO) -> str:
    """The page under `reports/`."""
    inside, of_p99 = sum(one.is_inside for one in held), [one for one in held if one.percentile == "p99"]
    lines = [
        "# A plan for DenseNet-121, and its prediction measured afterwards",
        "",
        (
            f"`python -m benchmarks.plan_densenet`: {slo}, {DEMAND}. The rate below is none of those that the plan was made from; it was measured after the plan, "
            "with the server started anew, in two windows together, each as long as those that the intervals are for; a single one would scatter more."
        ),
        "",
        "| setting | rate | percentile | expected | 90 % interval | half-width | measured | samples | inside | valid |",
        "|---|---:|---|---:|---|---:|---:|---:|---|---|",
    ]
    for one in held:
        measured = "–" if one.measured_ns is None else f"{one.measured_ns / 1e6:.0f} ms"
        lines.append(
            f"| {one.label} | {one.rate_per_s:g}/s | {one.percentile} | {one.expected_ns / 1e6:.0f} ms | {one.low_ns / 1e6:.0f} to {one.high_ns / 1e6:.0f} ms "
            f"| {one.half_width:.0%} | {measured} | {one.samples} | {'yes' if one.is_inside else 'no'} | {'yes' if one.is_valid else 'no'} |"
        )
    lines += [
        "",
        f"Inside their intervals: {inside} of {len(held)}; of the p99 {sum(one.is_inside for one in of_p99)} of {len(of_p99)}.",
        "",
    ]
    lines += [f"No plan for {sentence}" for sentence in without]
    return "\n".join(lines) + "\n" + plan_text.replace("\n## ", "\n### ").replace("# Capacity plan", "## The plan", 1)


def main() -> int:
    """Measures, plans, writes the report."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--restarts", type=int, default=3)
    parser.add_argument("--window-requests", type=int, default=130, help="arrivals that a window holds at the lowest rate of every series")
    parser.add_argument("--slo", default=SLO, help="another one, where a machine cannot meet it")
    parser.add_argument("--settings", help="of these labels alone, such as onnx-1,batch-2")
    parser.add_argument("--cpus", default="0;0,1", help="the server's CPUs with one thread; and with two")
    parser.add_argument("--work", type=pathlib.Path, default=ROOT / "build" / "plan-densenet")
    parser.add_argument("--out", type=pathlib.Path, default=ROOT / "reports" / "plan-densenet.md")
    options = parser.parse_args()
    cpus = options.cpus.split(";")
    settings = [Setting(model, threads, cpus[threads - 1]) for model in ("densenet_onnx", "densenet_batch") for threads in (1, 2)]
    chosen = [setting for setting in settings if not options.settings or setting.label in options.settings.split(",")]
    results, held, without = [], [], []
    for setting in chosen:
        try:
            its_results, its_held = measure_setting(setting, options.work, options.restarts, options.window_requests, options.slo)
        except NoPlanError as error:
            without.append(f"{setting.label}: {error}")
            print(without[-1], flush=True)
            continue
        results += its_results
        held += its_held
    if not results:
        return 1
    prices = [part for setting in chosen if any(one.label == setting.label for one in held) for part in ("--price", setting.price)]
    plan(results, options.slo, options.work / "plan", *prices)
    text = report((options.work / "plan" / "plan.md").read_text(encoding="utf-8"), held, without, options.slo)
    options.out.write_text(text, encoding="utf-8")
    shutil.copy(options.work / "plan" / "plan.html", options.out.with_suffix(".html"))
    print(text[: text.index("## The plan")])
    return 0 if not without and all(one.is_inside for one in held if one.percentile == "p99") else 1


if __name__ == "__main__":
    sys.exit(main())
