"""The measurements, the plan and the picture of docs/tutorials/capacity-plan.md, made by its commands.

    .venv/bin/python -m benchmarks.tutorial_plan [--work build/tutorial-plan] [--realtime] [--pictures docs/screens]

Three kinds of machine are stood in for by the bundled server's model `synthetic` with three declared speeds. Each is started twice, and measured at
eight rates, with other arrivals after each start. One machine needs longer windows than that, as the first plan says: it is started a third time. It takes twenty minutes. Results in the work folder are not measured again.
"""

import contextlib
import pathlib
import sys
from collections.abc import Sequence

from benchmarks.processes import ROOT, run_perfkit, running_server
from benchmarks.report import program_options
from benchmarks.screens import save_picture
from benchmarks.synthetic import open_loop, scenario
from perfkit.cli.main import main as main_of_perfkit
from tests.chromium import chromium

MACHINES = {"small": ("8ms", 125), "medium": ("4ms", 250), "large": ("2ms", 500)}
"""By label, the declared time of a request, and so the requests per second at which the machine is full."""
SHARES = (0.2, 0.4, 0.56, 0.64, 0.736, 0.832, 0.928, 1.28)
"""The rates, as shares of that."""
LONGER = ("large", 3, (400.0, 440.0, 470.0), "45s")
"""What the first plan asks for: a third start, with its rates and windows."""
STARTS, WIDTH_PX, HEIGHT_PX = (1, 2), 1280, 1500
PLAN = (
    "plan", "small=small-1", "small=small-2", "medium=medium-1", "medium=medium-2", "large=large-1", "large=large-2",
    "large=large-3",
    "--slo", "p99<60ms", "--demand", "2000/s", "--demand-uncertainty", "20%", "--redundancy", "1",
    "--price", "small=$0.60/h", "--price", "medium=$1.10/h", "--price", "large=$3.00/h", "--out", "plan",
)  # fmt: skip


def measure(folder: pathlib.Path, service: str, rates: Sequence[float], seed: int, duration: str, *, realtime: bool) -> None:
    """Measures a newly started machine at its rates, into a folder, unless it is there."""
    if folder.exists():
        return
    synthetic = f"--synthetic=service=lognormal:{service}:cv=0.3,seed={seed}"
    with running_server("--model=synthetic", synthetic, realtime=realtime) as server:
        document = scenario(server.url(), open_loop(*rates), 0, seed=seed, name="rates")
        document["workload"]["inputs"] = {"INPUT0": {"generate": "random", "shape": [4]}}
        document["measure"] = {"duration": duration, "repetitions": 1}
        run = run_perfkit(document, out=folder, realtime=realtime)
    print(f"{folder.name}: exit code {run.exit_code}", flush=True)


def main() -> int:
    """Measures what is missing, plans, and takes the picture."""
    options = program_options(
        __doc__, work=(ROOT / "build/tutorial-plan", "the folder of results and plan"), realtime=False,
        pictures=(ROOT / "docs/screens", "the folder of the picture"),
    )  # fmt: skip
    options.work.mkdir(parents=True, exist_ok=True)
    cases = [
        (label, seed, [round(share * full_per_s, 1) for share in SHARES], "15s")
        for label, (_, full_per_s) in MACHINES.items()
        for seed in STARTS
    ]
    for label, seed, rates, duration in [*cases, LONGER]:
        measure(options.work / f"{label}-{seed}", MACHINES[label][0], rates, seed, duration, realtime=options.realtime)
    pictures = options.pictures.absolute()
    with contextlib.chdir(options.work):
        code = main_of_perfkit([*PLAN])
        with chromium() as browser:
            browser.show(pathlib.Path("plan/plan.html").absolute(), width=WIDTH_PX)
            save_picture(browser, pictures / "tutorial-plan-1280-light.png", WIDTH_PX, HEIGHT_PX)
    return code


if __name__ == "__main__":
    sys.exit(main())
