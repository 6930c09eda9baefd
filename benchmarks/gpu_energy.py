"""Checks GPU readings against a known load: a matrix product of known FLOPs, and an idle GPU.

    python -m benchmarks.gpu_energy [--seconds 20] [--size 8192] [--out reports/gpu-energy.md]

A separate process multiplies matrices with PyTorch or CuPy while the sampler reads the GPU 20 times per second, as it does in a
run. Required: the energy counter and the integrated power agree within 5 % under load; utilisation is above 95 % under load
and below 5 % before it. The exit code is 1 otherwise. Without a GPU, or without either library, nothing is measured, and the
report says so.
"""

import argparse
import importlib.util
import json
import subprocess
import sys
import threading
from collections.abc import Callable
from typing import NamedTuple

from benchmarks.processes import ROOT
from benchmarks.report import Report, option_parser
from perfkit.clock import MonotonicClock
from perfkit.figures.resources import GpuFigures
from perfkit.telemetry.gpu.sampler import GpuSampler
from perfkit.telemetry.series import SamplerThread, take_notes

RATE_PER_S, REST_S, BATCH = 20.0, 5.0, 10
ALLOWED_SHARE, MIN_BUSY, MAX_IDLE = 0.05, 0.95, 0.05
_START_WITHIN_S = 30.0


class NotMeasuredError(Exception):
    """The measurement is not possible on this machine; the message says why."""


class Work(NamedTuple):
    """The load: its start and end on the monotonic clock, its floating point operations, and the library."""

    start_ns: int
    end_ns: int
    operations: int
    library: str

    @property
    def length_s(self) -> float:
        """The length of the load."""
        return (self.end_ns - self.start_ns) / 1e9


class Check(NamedTuple):
    """A figure, its measured and its required value, and whether they agree."""

    figure: str
    measured: str
    required: str
    is_met: bool


def multiply(seconds: float, size: int) -> Work:
    """Multiplies square single-precision matrices for some time without letting the GPU's queue run empty."""
    library = next((name for name in ("torch", "cupy") if importlib.util.find_spec(name)), None)
    if library is None:
        raise NotMeasuredError("neither PyTorch nor CuPy is installed")
    clock = MonotonicClock()
    product: Callable[[], object]
    finish: Callable[[], object]
    if library == "torch":
        import torch  # type: ignore[import-not-found, unused-ignore] # installed only on machines with a GPU

        if not torch.cuda.is_available():
            raise NotMeasuredError("PyTorch finds no CUDA device")
        left, right = (torch.rand((size, size), device="cuda") for _ in range(2))
        product, finish = (lambda: torch.mm(left, right)), torch.cuda.synchronize
    else:
        import cupy  # type: ignore[import-not-found, unused-ignore] # installed only on machines with a GPU

        left, right = (cupy.random.rand(size, size, dtype=cupy.float32) for _ in range(2))
        product, finish = (lambda: cupy.matmul(left, right)), cupy.cuda.Device().synchronize
    product()
    finish()
    start_ns, products = clock.now_ns(), 0
    while clock.now_ns() - start_ns < seconds * 1e9:
        for _ in range(BATCH):
            product()
        finish()
        products += BATCH
    return Work(start_ns, clock.now_ns(), 2 * size**3 * products, library)


def checks(rest: GpuFigures, loaded: GpuFigures, work: Work, allowed_share: float = ALLOWED_SHARE) -> list[Check]:
    """Compares the figures of a GPU at rest and under load with the required ones; `allowed_share` is of the energy."""
    idle, busy = rest.utilization_mean or 0.0, loaded.utilization_mean or 0.0
    utilization = [
        Check("utilisation at rest", _percent(rest.utilization_mean), f"below {MAX_IDLE:.0%}", idle < MAX_IDLE),
        Check("utilisation under load", _percent(loaded.utilization_mean), f"above {MIN_BUSY:.0%}", busy > MIN_BUSY),
    ]
    counted_j = loaded.energy_j if loaded.energy_source == "counter" else None
    if counted_j is None or loaded.power_mean_w is None:
        measured, is_met = "the GPU reports only one of them", False
    else:
        integrated_j = loaded.power_mean_w * work.length_s
        error = integrated_j / counted_j - 1
        measured = f"{counted_j:,.0f} J counted, {integrated_j:,.0f} J integrated ({loaded.power_source}), {error:+.1%}"
        is_met = abs(error) <= allowed_share
    return [*utilization, Check("integrated power compared with the energy counter", measured, f"within {allowed_share:.0%}", is_met)]


def measure(seconds: float, size: int, allowed_share: float = ALLOWED_SHARE) -> tuple[GpuFigures, list[Check], Work, list[str]]:
    """The busiest GPU, its checks, the load, and the sampler's notes; raises NotMeasuredError."""
    clock = MonotonicClock()
    thread = SamplerThread("gpus", GpuSampler(RATE_PER_S, clock), clock)
    try:
        if not thread.submit(lambda sampler: sampler.latest()).result(_START_WITHIN_S):
            raise NotMeasuredError(" ".join(thread.submit(take_notes).result(_START_WITHIN_S)))
        start_ns = clock.now_ns()
        threading.Event().wait(REST_S)
        end_ns = clock.now_ns()
        at_rest = thread.submit(lambda sampler: sampler.window(start_ns, end_ns)).result().summary or ()
        command = [sys.executable, "-m", "benchmarks.gpu_energy", "--multiply", f"--seconds={seconds}", f"--size={size}"]
        load = subprocess.run(command, cwd=ROOT, check=False, stdout=subprocess.PIPE, text=True)
        if load.returncode:
            raise NotMeasuredError(load.stdout.strip() or f"the load ended with exit code {load.returncode}")
        work = Work(**json.loads(load.stdout))
        under_load = thread.submit(lambda sampler: sampler.window(work.start_ns, work.end_ns)).result().summary or ()
        notes = thread.submit(take_notes).result()
    finally:
        thread.close(_START_WITHIN_S)
    rest, loaded = max(zip(at_rest, under_load, strict=True), key=lambda pair: pair[1].utilization_mean or 0.0)
    return loaded, checks(rest, loaded, work, allowed_share), work, notes


def _percent(share: float | None) -> str:
    return "not reported" if share is None else f"{share:.1%}"


def main() -> int:
    """Prints the table, or why nothing was measured."""
    parser = option_parser(__doc__)
    parser.add_argument("--seconds", type=float, default=20, help="length of the load (default %(default)s)")
    parser.add_argument("--size", type=int, default=8192, help="rows of the square matrices (default %(default)s)")
    parser.add_argument("--multiply", action="store_true", help=argparse.SUPPRESS)  # for the process that is the load
    options = parser.parse_args()
    if options.multiply:
        try:
            print(json.dumps(multiply(options.seconds, options.size)._asdict()))
        except NotMeasuredError as error:
            print(error)
            return 1
        return 0
    page = Report(options.out, "GPUs at rest and under a matrix product")
    try:
        gpu, results, work, notes = measure(options.seconds, options.size)
    except NotMeasuredError as error:
        page.add(f"**Not measured**: {error}")
        return page.write()
    page.add(
        f"{gpu.name}, driver {gpu.driver_version}: {work.library}, products of {options.size} × {options.size} single-precision "
        f"matrices, {work.operations / work.length_s / 1e12:.1f} TFLOP/s for {work.length_s:.1f} s; sampled {RATE_PER_S:g} times per second.",
        *notes,
        "",
    )
    page.table("figure", "measured", "required", "met")
    for check in results:
        page.judged_row(check.is_met, *check[:3])
    return page.write()


if __name__ == "__main__":
    sys.exit(main())
