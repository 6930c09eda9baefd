"""The common parts of the proof on a GPU: the time budget, and a report with checks, failures, skipped steps, plots and raw results."""

import dataclasses
import datetime
import json
import pathlib
import platform
import re
import subprocess
import sys
import time
import traceback
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple, TypeVar

from benchmarks.processes import ROOT
from benchmarks.report import table_head, table_row, write_report, yes_no

_Result = TypeVar("_Result")


class ServedModel(NamedTuple):
    """A model with its input, for parts that need any model on the GPU."""

    name: str
    input: str
    row_shape: tuple[int, ...]
    batch_sizes: tuple[int, ...]


DENSENET = ServedModel("densenet_batch", "data_0", (3, 224, 224), (1, 8, 64))
IDENTITY = ServedModel("identity_fp32", "INPUT0", (3 * 224 * 224,), (1, 8))
"""It takes DenseNet's place where ONNX Runtime has no CUDA: it needs CuPy alone."""
_NEEDS_ONNX = "ONNX Runtime's CUDA provider does not work here"


class UnavailableError(Exception):
    """A step cannot be done on this machine; the message says why."""


class Check(NamedTuple):
    """A required figure: what was measured, and whether it is as required."""

    figure: str
    measured: str
    required: str
    is_met: bool


@dataclasses.dataclass
class Proof:
    """One part of the proof while it is measured. The report is stored after each step, so that an interruption loses one step."""

    part: str
    title: str
    device: str
    """cuda or cpu. On the CPU it is a dry run, whose figures prove nothing but that the steps work."""
    out: pathlib.Path
    """The folder of the reports."""
    budget_s: float
    is_short: bool = False
    """Shorter still: for the test suite."""
    now_s: Callable[[], float] = time.monotonic
    lines: list[str] = dataclasses.field(default_factory=list)
    checks: list[Check] = dataclasses.field(default_factory=list)
    skipped: list[str] = dataclasses.field(default_factory=list)
    failed: list[str] = dataclasses.field(default_factory=list)
    raw: dict[str, Any] = dataclasses.field(default_factory=dict)

    def __post_init__(self) -> None:
        self.out.mkdir(parents=True, exist_ok=True)
        self._without_onnx: str | None = None
        self._deadline_s = self.now_s() + self.budget_s
        self._machine = describe_gpu() if self.device == "cuda" else "no GPU is used"

    @property
    def is_dry_run(self) -> bool:
        """Whether this runs on the CPU."""
        return self.device == "cpu"

    @property
    def settings(self) -> tuple[str, ...]:
        """The values of `--onnx` for the server: its defaults, unless ONNX models cannot run on the GPU."""
        return ("provider=cpu",) if self.without_onnx else ()

    @property
    def without_onnx(self) -> str:
        """Why ONNX models cannot run on the GPU; empty if they can, and in a dry run. Tried once, in another process."""
        if self._without_onnx is None:
            code = "from server_stub.devices.device import find_usable_cuda; find_usable_cuda()"
            if self.is_dry_run:
                self._without_onnx = ""
            else:
                tried = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False, cwd=ROOT, timeout=180)
                words = tried.stderr.strip().splitlines()[-1:] or [f"exit code {tried.returncode}"]
                self._without_onnx = f"{_NEEDS_ONNX}: {words[0]}" if tried.returncode else ""
        return self._without_onnx

    @property
    def model(self) -> ServedModel:
        """DenseNet, or the model that takes its place."""
        return IDENTITY if self.without_onnx else DENSENET

    def has_onnx(self) -> bool:
        """Whether the part's models can run; otherwise the report says why it is skipped."""
        if self.without_onnx:
            self.skip("DenseNet-121", self.without_onnx)
            self.write()
        return not self.without_onnx

    @property
    def remaining_s(self) -> float:
        """What is left of the budget."""
        return max(0.0, self._deadline_s - self.now_s())

    def attempt(self, name: str, need_s: float, step: Callable[[], _Result]) -> _Result | None:
        """Do a step that takes about `need_s`. None if time is short, it is unavailable or it failed; the report then says so."""
        result: _Result | None = None
        started_s = self.now_s()
        print(f"{self.part}: {name} ({self.remaining_s:.0f} s left)", flush=True)
        if need_s > self.remaining_s:
            self.skip(name, f"it needs about {need_s:.0f} s, and {self.remaining_s:.0f} s of the part's {self.budget_s:.0f} s are left")
        else:
            try:
                result = step()
            except UnavailableError as error:
                self.skip(name, str(error))
            except Exception as error:  # noqa: BLE001 - the time on a GPU is rare: the other steps go on
                self.failed.append(f"{name}: {type(error).__name__}: {str(error)[-1500:]}")
                self.add_traceback(name)
                print(self.failed[-1], flush=True)
        self.raw.setdefault("seconds", {})[name] = round(self.now_s() - started_s, 2)
        self.write()
        return result

    def add_traceback(self, name: str) -> None:
        """Store where the exception that is handled was raised, without the folder of this checkout."""
        self.raw.setdefault("tracebacks", {})[name] = traceback.format_exc().replace(f"{ROOT}/", "")

    def skip(self, name: str, why: str) -> None:
        """Report a step that is not done, and why."""
        self.skipped.append(f"{name}: {why}")
        print(f"skipped {self.skipped[-1]}", flush=True)

    def check(self, figure: str, measured: str, required: str, *, is_met: bool) -> None:
        """Add a required figure. On the CPU it is a figure without a verdict."""
        self.checks.append(Check(figure, measured, required, is_met))

    def add(self, *lines: str) -> None:
        """Add lines of Markdown to the report."""
        self.lines += [*lines, ""]

    def plot(self, name: str, title: str, axes: tuple[str, str], curves: Mapping[str, Sequence[tuple[float, float]]], *, log: bool) -> None:
        """Draw curves to an SVG file beside the report, and show it there."""
        import matplotlib as mpl

        mpl.use("Agg")
        from matplotlib import pyplot as plt

        figure, axis = plt.subplots(figsize=(7, 4), layout="constrained")
        for label, points in curves.items():
            axis.plot([x for x, _ in points], [y for _, y in points], label=label, marker="o" if len(points) < 20 else "")
        if log:
            axis.set_xscale("log", base=2)
        axis.set(title=title, xlabel=axes[0], ylabel=axes[1])
        axis.set_ylim(bottom=0)
        axis.legend()
        file = self.out / f"gpu-{self.part}-{name}.svg"
        figure.savefig(file)
        plt.close(figure)
        self.add(f"![{title}]({file.name})")

    @property
    def is_passed(self) -> bool:
        """Whether nothing failed, and on a GPU every required figure is met."""
        return not self.failed and (self.is_dry_run or all(check.is_met for check in self.checks))

    def write(self) -> None:
        """Store `gpu-PART.md` and `gpu-PART.json`."""
        write_report(self.out / f"gpu-{self.part}.md", self._report())
        document = {
            "part": self.part, "device": self.device, "machine": self._machine, "checks": [check._asdict() for check in self.checks],
            "skipped": self.skipped, "failed": self.failed, **self.raw,
        }  # fmt: skip
        (self.out / f"gpu-{self.part}.json").write_text(json.dumps(document, indent=1) + "\n", encoding="utf-8")

    def _report(self) -> list[str]:
        date = datetime.datetime.now(datetime.UTC).strftime("%Y-%m-%d %H:%M UTC")
        head = [f"# {self.title}", "", f"`make prove-gpu PART={self.part} DEVICE={self.device}`, {date}: {self._machine}.", ""]
        if self.is_dry_run:
            head += ["**A dry run on the CPU: the steps work, and no figure here says anything about a GPU.**", ""]
        if self.checks:
            met = [("–" if self.is_dry_run else yes_no(check.is_met)) for check in self.checks]
            rows = [table_row(*check[:3], is_met) for check, is_met in zip(self.checks, met, strict=True)]
            head += [*table_head("figure", "measured", "required", "met"), *rows, ""]
        for title, entries in (("Failed", self.failed), ("Skipped", self.skipped)):
            if entries:
                head += [f"**{title}**", "", *(f"- {' '.join(entry.split())}" for entry in entries), ""]
        return [*head, *self.lines]


def describe_gpu() -> str:
    """The GPU, its driver and the versions of the packages that matter, on one line."""
    import importlib.metadata

    command = ["nvidia-smi", "--query-gpu=name,driver_version,memory.total", "--format=csv,noheader"]
    try:
        gpu = subprocess.run(command, capture_output=True, text=True, check=True, timeout=30).stdout.strip().replace("\n", "; ")
    except (OSError, subprocess.SubprocessError) as error:
        gpu = f"nvidia-smi gave no answer ({error})"
    versions = [f"Python {platform.python_version()}"]
    for name in ("onnxruntime-gpu", "onnxruntime", "cupy-cuda13x", "cupy-cuda12x", "nvidia-cudnn-cu13"):
        try:
            versions.append(f"{name} {importlib.metadata.version(name)}")
        except importlib.metadata.PackageNotFoundError:
            continue
    return f"{gpu}; {', '.join(versions)}"


def _words(stderr: str) -> str:
    """The last line that a program wrote, without colours."""
    lines = re.sub(r"\x1b\[[\d;]*m", "", stderr).strip().splitlines()
    return lines[-1][:600] if lines else ""


def run_json(command: Sequence[str], timeout_s: float) -> Any:
    """The JSON that a program prints. Raises UnavailableError with its words for exit code 2, RuntimeError for others."""
    ended = subprocess.run(command, capture_output=True, text=True, check=False, cwd=ROOT, timeout=timeout_s)
    if ended.returncode == 2:
        raise UnavailableError(_words(ended.stderr))
    if ended.returncode:
        raise RuntimeError(f"{' '.join(command)} ended with exit code {ended.returncode}: {ended.stderr.strip()[-1200:]}")
    return json.loads(ended.stdout.strip().splitlines()[-1])
