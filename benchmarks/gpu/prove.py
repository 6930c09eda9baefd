"""The proof on a GPU, in parts that stand alone, each within a budget of seconds and with a report.

    python -m benchmarks.gpu.prove [--part server …] [--device cuda|cpu] [--budget SECONDS] [--out reports] [--short]

`make prove-gpu` does the same with PART, DEVICE, BUDGET and OUT. Each part writes `gpu-PART.md`, plots, and the raw results as
`gpu-PART.json`; what cannot be done on the machine is skipped with its reason. `--device cpu` is a dry run, without a GPU, of
every step that needs none; its reports go to build/prove-cpu. Exit codes: 0, all that is required was shown; 1, something was
not, or a step failed; 3, there is no GPU to prove anything on.
"""

import argparse
import importlib
import os
import pathlib
import signal
import subprocess
import sys
from collections.abc import Sequence

from benchmarks.gpu.proof import Proof
from benchmarks.processes import ROOT
from perfkit.errors import UsageError

PARTS = {
    "default": ("The first command on a GPU: scenarios/densenet-cuda.yaml as it is shipped", 215),
    "server": ("DenseNet-121 on a GPU: served and called directly", 240),
    "memory": ("CUDA shared memory beside binary tensors", 65),
    "telemetry": ("GPU telemetry: NVML beside nvidia-smi, and energy two ways", 85),
    "plan": ("A capacity search and a plan for this GPU", 115),
    "gate": ("A gate of FP32 against FP16", 105),
}
"""The parts' titles and budgets in seconds, the most telling first. With a start and the wheels, they fit into 15 minutes of a GPU."""
REQUIRED = {
    "default": ("exit code", "every point valid", "no point below half", "beside tuned options", "direct ÷ PyTorch's graph"),
    "server": ("served ÷ direct over http", "served ÷ direct over grpc", "one in flight over http", "one in flight over grpc", "GPU utilisation", "tests"),
    "telemetry": ("mean power", "energy", "the server's metric nv_gpu_utilization", "the matrix product's figures"),
    "memory": ("p50 with CUDA shared memory over http", "p50 with CUDA shared memory over grpc", "outputs in all ways"),
    "plan": ("capacity",),
    "gate": ("minimum detectable effect",),
}  # fmt: skip
"""How the figures begin that each part must show on a GPU."""
_GRACE_S = 20


def prove(part: str, device: str, out: pathlib.Path, *, budget_s: float | None = None, is_short: bool = False) -> Proof:
    """Measure one part in this process, within its own budget unless another is given, and store its report."""
    title, own_budget_s = PARTS[part]
    proof = Proof(part, title, device, out, own_budget_s if budget_s is None else budget_s, is_short)
    try:
        importlib.import_module(f"benchmarks.gpu.prove_{part}").prove(proof)
    except Exception as error:  # noqa: BLE001 - what was measured before is worth a report
        proof.failed.append(f"{type(error).__name__}: {error}")
        proof.add_traceback("the part")
    if device == "cuda":
        add_missing(proof)
    proof.write()
    return proof


def add_missing(proof: Proof) -> None:
    """Add the required figures that were not measured, so that a part whose steps were skipped does not pass."""
    for figure in REQUIRED[proof.part]:
        if not any(check.figure.startswith(figure) for check in proof.checks):
            proof.check(figure, "not measured", "measured", is_met=False)


def missing_gpu() -> str:
    """Why nothing can be proved here; empty if ONNX Runtime or at least the driver finds a GPU."""
    from server_stub.devices.cuda_driver import CudaDriver, CudaError

    try:
        CudaDriver()
    except CudaError as error:
        return str(error)
    return ""


def main() -> int:
    """Runs the parts, each in a process of its own that ends with its budget."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--part", nargs="*", choices=(*PARTS, "all"), default=["all"], help="the parts to prove (default: all)")
    parser.add_argument("--device", choices=("cuda", "cpu"), default="cuda")
    parser.add_argument(
        "--budget", type=_positive, metavar="SECONDS", help="the time of each part in place of its own; later steps are left out"
    )
    parser.add_argument("--out", type=pathlib.Path, help="folder of the reports (default: reports, or build/prove-cpu for --device cpu)")
    parser.add_argument("--short", action="store_true", help="a few seconds for each part, for tests")
    options = parser.parse_args()
    if options.device == "cuda" and (why := missing_gpu()):
        print(f"prove-gpu: {why}; DEVICE=cpu makes a dry run without a GPU.", file=sys.stderr)
        return 3
    out = (options.out or ROOT / ("reports" if options.device == "cuda" else "build/prove-cpu")).resolve()
    parts = list(PARTS) if "all" in options.part else [part for part in PARTS if part in options.part]
    if len(parts) == 1:
        signal.signal(signal.SIGALRM, _end_step)
        signal.setitimer(signal.ITIMER_REAL, options.budget or PARTS[parts[0]][1])
        proof = prove(parts[0], options.device, out, budget_s=options.budget, is_short=options.short)
        print(f"{out / f'gpu-{parts[0]}.md'}: {len(proof.checks)} figures, {len(proof.skipped)} skipped, {len(proof.failed)} failed")
        return 0 if proof.is_passed else 1
    more = (*(["--budget", str(options.budget)] if options.budget else []), *(["--short"] if options.short else []))
    codes = [_run_part(part, options.device, out, options.budget or PARTS[part][1], more) for part in parts]
    return max(codes)


def _positive(text: str) -> float:
    """For argparse: a number above 0."""
    value = float(text)
    if value <= 0:
        raise ValueError
    return value


def _end_step(*_: object) -> None:
    """End the present step, so that the report has what was measured; the later ones have no time left."""
    raise TimeoutError("the part's time is over")


def _run_part(part: str, device: str, out: pathlib.Path, budget_s: float, more: Sequence[str]) -> int:
    command = [sys.executable, "-m", "benchmarks.gpu.prove", "--part", part, "--device", device, "--out", str(out)]
    process = subprocess.Popen([*command, *more], cwd=ROOT, start_new_session=True)
    try:
        return 1 if process.wait(budget_s + _GRACE_S) else 0
    except subprocess.TimeoutExpired:
        print(f"{part}: stopped {_GRACE_S} s after its budget; {out / f'gpu-{part}.md'} has the steps that had ended.", flush=True)
        return 1
    finally:
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()


if __name__ == "__main__":
    try:
        sys.exit(main())
    except UsageError as error:
        print(f"prove-gpu: {error}", file=sys.stderr)
        sys.exit(2)
