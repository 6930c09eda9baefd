"""Whether GPUs are read right, on a machine that has one: a matrix product of known FLOPs, and rest.

    python -m benchmarks.gpu_energy [--seconds 20] [--size 8192] [--out reports/gpu-energy.md]

A process of its own multiplies matrices with PyTorch or CuPy, whichever is there; the sampler watches it as it watches a
run, 20 times a second. Wanted: the energy counter and the integrated power within 5 % of each other under load, utilisation
above 95 % under load and below 5 % before it. The exit code is 1 where a figure is not reached. Where there is no GPU, or
neither library, nothing is tried, and that is what is said: it is neither passed nor failed.
"""

import argparse
import contextlib
import importlib.util
import json
import pathlib
import subprocess
import sys
import threading
from collections.abc import Callable
from typing import NamedTuple

sys.path.insert(0, str(pathlib.Path(__file__).parents[1]))  # the tree that this file is in, installed or not
from perfkit.clock import MonotonicClock
from perfkit.telemetry.figures import GpuFigures
from perfkit.telemetry.gpu.sampler import GpuSampler
from perfkit.telemetry.sampler_thread import SamplerThread, take_notes

ROOT = pathlib.Path(__file__).parents[1]
RATE_PER_S, REST_S, BATCH = 20.0, 5.0, 10
ALLOWED_SHARE, BUSY, AT_REST = 0.05, 0.95, 0.05
_START_WITHIN_S = 30.0


class NotTriedError(Exception):
    """It cannot be tried here; the text says why."""


class Work(NamedTuple):
    """What the load did: instants of the monotonic clock, floating point operations, the library."""

    start_ns: int
    end_ns: int
    operations: int
    library: str


class Check(NamedTuple):
    """A figure, what was wanted of it, and whether it is so."""

    what: str
    found: str
    wanted: str
    is_right: bool


def multiply(seconds: float, size: int) -> Work:
    """Multiplies square matrices of single precision until the time is over, the GPU's queue never empty for long."""
    library = next((name for name in ("torch", "cupy") if importlib.util.find_spec(name)), None)
    if library is None:
        raise NotTriedError("neither PyTorch nor CuPy is installed")
    clock = MonotonicClock()
    product: Callable[[], object]
    finish: Callable[[], object]
    if library == "torch":
        import torch  # type: ignore[import-not-found, unused-ignore]

        if not torch.cuda.is_available():
            raise NotTriedError("PyTorch finds no CUDA device")
        left, right = (torch.rand((size, size), device="cuda") for _ in range(2))
        product, finish = (lambda: torch.mm(left, right)), torch.cuda.synchronize
    else:
        import cupy  # type: ignore[import-not-found, unused-ignore]

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


def checks(rest: GpuFigures, loaded: GpuFigures, work: Work) -> list[Check]:
    """What the figures of a GPU at rest and under load must show."""
    length_s = (work.end_ns - work.start_ns) / 1e9
    counted_j = loaded.energy_j if loaded.energy_source == "counter" else None
    integrated_j = None if loaded.power_mean_w is None else loaded.power_mean_w * length_s
    found = [
        Check("utilisation at rest", _percent(rest.utilization_mean), f"below {AT_REST:.0%}", (rest.utilization_mean or 0.0) < AT_REST),
        Check("utilisation under load", _percent(loaded.utilization_mean), f"above {BUSY:.0%}", (loaded.utilization_mean or 0.0) > BUSY),
    ]
    if counted_j is None or integrated_j is None:
        return [
            *found,
            Check("energy counter against integrated power", "one of the two is not told", f"within {ALLOWED_SHARE:.0%}", False),
        ]
    off = integrated_j / counted_j - 1
    text = f"{counted_j:,.0f} J counted, {integrated_j:,.0f} J integrated ({loaded.power_source}), {off:+.1%}"
    return [*found, Check("energy counter against integrated power", text, f"within {ALLOWED_SHARE:.0%}", abs(off) <= ALLOWED_SHARE)]


def measure(seconds: float, size: int) -> tuple[GpuFigures, list[Check], Work, list[str]]:
    """The GPU that worked, what its figures show, the work, and what the sampler noted; raises NotTriedError."""
    clock = MonotonicClock()
    thread = SamplerThread("gpus", GpuSampler(RATE_PER_S, clock), clock)
    try:
        if not thread.submit(lambda sampler: sampler.latest()).result(_START_WITHIN_S):
            raise NotTriedError(" ".join(thread.submit(take_notes).result(_START_WITHIN_S)))
        start_ns = clock.now_ns()
        threading.Event().wait(REST_S)
        end_ns = clock.now_ns()
        at_rest = thread.submit(lambda sampler: sampler.window(start_ns, end_ns)).result().summary or ()
        command = [sys.executable, "-m", "benchmarks.gpu_energy", "--multiply", f"--seconds={seconds}", f"--size={size}"]
        load = subprocess.run(command, cwd=ROOT, check=False, stdout=subprocess.PIPE, text=True)
        if load.returncode:
            raise NotTriedError(load.stdout.strip() or "the load could not be run")
        work = Work(**json.loads(load.stdout))
        under_load = thread.submit(lambda sampler: sampler.window(work.start_ns, work.end_ns)).result().summary or ()
        notes = thread.submit(take_notes).result()
    finally:
        thread.close(_START_WITHIN_S)
    rest, loaded = max(zip(at_rest, under_load, strict=True), key=lambda pair: pair[1].utilization_mean or 0.0)
    return loaded, checks(rest, loaded, work), work, notes


def _percent(share: float | None) -> str:
    return "not told" if share is None else f"{share:.1%}"


def main() -> int:
    """Prints the table, or that nothing was tried."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--seconds", type=float, default=20)
    parser.add_argument("--size", type=int, default=8192, help="of the square matrices")
    parser.add_argument("--out", type=pathlib.Path)
    parser.add_argument("--multiply", action="store_true", help=argparse.SUPPRESS)  # of the process that is the load
    options = parser.parse_args()
    if options.multiply:
        try:
            print(json.dumps(multiply(options.seconds, options.size)._asdict()))
        except NotTriedError as error:
            print(error)
            return 1
        return 0
    lines, is_right = ["# GPUs at rest and under a matrix product", ""], True
    try:
        gpu, found, work, notes = measure(options.seconds, options.size)
    except NotTriedError as error:
        lines += [f"**Not tried**: {error}"]
    else:
        tera_per_s = work.operations / (work.end_ns - work.start_ns) / 1e3
        setting = (
            f"{gpu.name}, driver {gpu.driver_version}: {work.library}, products of {options.size} × {options.size} single-precision matrices, "
            f"{tera_per_s:.1f} TFLOP/s for {(work.end_ns - work.start_ns) / 1e9:.1f} s; sampled {RATE_PER_S:g} times a second."
        )
        lines += [
            setting,
            *notes,
            "",
            "| what | found | wanted | as it should be |",
            "|---|---|---|---|",
            *(f"| {one.what} | {one.found} | {one.wanted} | {'yes' if one.is_right else 'no'} |" for one in found),
        ]
        is_right = all(one.is_right for one in found)
    print("\n".join(lines))
    if options.out:
        options.out.write_text("\n".join([*lines, ""]), encoding="utf-8")
    return 0 if is_right else 1


if __name__ == "__main__":
    with contextlib.suppress(KeyboardInterrupt):
        sys.exit(main())
