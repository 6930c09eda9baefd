"""Fuzzes stored results: damages files of each kind, and runs every command that reads them, in this process.

    python -m benchmarks.fuzz_results [--minutes 10] [--seed 0] [--out reports/fuzz-results.md]

Each command must end with a documented exit code, within 30 s, without a traceback, and what it prints must not have control
characters, commands of CI systems, or figures that nothing can measure.
"""

import argparse
import collections
import contextlib
import dataclasses
import io
import os
import pathlib
import platform
import random
import re
import resource
import shutil
import signal
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, NoReturn

from benchmarks import fuzzing
from benchmarks.fuzz_results_damage import damage
from benchmarks.fuzz_results_files import MANIFEST, make_files, update_checksums
from benchmarks.report import table_head, table_row
from perfkit.cli.main import main as perfkit
from perfkit.errors import PerfkitError
from perfkit.gate.folder import GateFolder
from perfkit.gate.metrics import MetricChoice
from perfkit.gate.paired import rule_for
from perfkit.gate.paired_decision import decide_pairs
from perfkit.result.sweep import SweepFolder, read_sweep
from perfkit.text import safe_stream

DOCUMENTED = {"compare": (0, 2, 4), "gate": (0, 1, 2, 3, 4, 5), "baseline": (0, 2, 4, 5), "history": (0, 2), "plan": (0, 2, 3), "report": (0, 2), "resume": (0, 2), "resume-gate": (0, 2)}  # fmt: skip
"""The exit codes of each command on stored files."""
LONGEST_S, MEMORY_BYTES = 30, 2 * 2**30
_COMMAND = re.compile(
    r"^\s*::(?!(?:error|warning|notice) title=perfkit |(?:error|warning) title=(?:regressed|inconclusive)%3A )", re.MULTILINE
)
_CONTROL = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u200b\u202e\u2028]|##\[|##vso\[")
_RATE = re.compile(r"(?<![\w.,+-])([\d,]+(?:\.\d+)?(?:e[+-]?\d+)?)/s\b")
_SECONDS = re.compile(r"(?<![\w.,+-])([\d,]+(?:\.\d+)?(?:e[+-]?\d+)?) s\b")
_NO_FIGURE = re.compile(r"(?<![\w.'\"(])-?(?:nan|inf)(?: (?:ns|µs|ms|s|%)|/s|%)", re.IGNORECASE)
# why the result of a sweep's case is not shown, in the report of the sweep
_QUOTED_REFUSAL = re.compile(r"/result\.json: [^|\n]*")
_HIGHEST_PER_S, _LONGEST_TIME_S = 1.1e9, 4_000.0
_SLO = ("--slo", "p99<200ms", "--demand", "500/s", "--quiet", "--out", "plan")


class ViolationError(Exception):
    """A promise that a command broke."""


@dataclasses.dataclass(frozen=True)
class Target:
    """A file to damage, and the commands that read it; a weight of 3 is chosen three times as often."""

    file: str
    commands: tuple[tuple[str, ...], ...]
    weight: int = 3


_ON_RESULT = (
    ("compare", "run1", "new"),
    ("compare", "new", "run1", "--format", "markdown"),
    ("compare", "run1", "new", "--format", "html"),
    ("gate", "--baseline", "baseline.json", "--candidate", "new", "--github", "on", "--junit", "junit.xml", "--markdown", "verdict.md"),
    ("baseline", "run1", "new", "--out", "made.json"),
    ("baseline", "new"),
    ("history", "add", "new", "--file", "history.sqlite"),
)
TARGETS = (
    Target("new/result.json", _ON_RESULT, 12),
    Target("new/result.json", (("report", "new"),), 2),
    Target("search/result.json", (("compare", "search", "run1"), ("history", "add", "search", "--file", "history.sqlite")), 2),
    Target("search/result.json", (("report", "search"),), 2),
    Target("new/latency.hlog", (("baseline", "run1", "new", "--out", "made.json"),), 4),
    Target("new/latency.hlog", (("report", "new"),), 1),
    Target("new/telemetry.csv", (("report", "new"),), 2),
    Target("new/checksums.sha256", (("compare", "run1", "new"), ("baseline", "new", "--out", "made.json")), 2),
    Target("baseline.json", (("gate", "--baseline", "baseline.json", "--candidate", "new", "--github", "on", "--markdown", "verdict.md"), ("gate", "--baseline", "new", "--candidate", "baseline.json"), ("baseline", "baseline.json", "new", "--out", "made.json")), 8),
    Target("verdict.json", (("gate", "accept", "verdict.json", "--reason", "known", "--expires", "2199-12-31", "--file", "made.yaml"),), 4),
    Target("history.sqlite", (("history", "list", "--file", "history.sqlite"), ("history", "steps", "--file", "history.sqlite"), ("history", "add", "new", "--file", "history.sqlite")), 5),
    Target("history.sqlite", (("history", "plot", "--file", "history.sqlite"),), 1),
    Target("sweep/sweep.json", (("report", "--table-only", "sweep"), ("plan", "sweep", *_SLO), ("resume", "sweep")), 4),
    Target("sweep/threads=1/result.json", (("report", "--table-only", "sweep"), ("resume", "sweep")), 3),
    Target("open/result.json", (("plan", "open", *_SLO),), 3),
    Target("open/latency.hlog", (("plan", "open", *_SLO),), 1),
    Target("gate.partial/pairs.json", (("resume-gate", "gate"),), 2),
    Target("gate.partial/gate.json", (("resume-gate", "gate"),), 1),
    Target("parquet/telemetry.parquet", (("report", "parquet"),), 1),
    Target("old.json", (("compare", "old.json", "new"), ("report", "old.json")), 2),
    Target("old.csv", (("compare", "new", "old.csv", "old.json"), ("compare", "old.csv", "new", "--format", "html"), ("report", "old.csv")), 2),
    Target("peaks.csv", (("plan", "open", *_SLO, "--peaks", "peaks.csv"),), 1),
)  # fmt: skip

QUICK_TARGETS = tuple(
    dataclasses.replace(target, commands=quick)
    for target in TARGETS
    if (quick := tuple(one for one in target.commands if one[0] not in ("plan", "report") and one[:2] != ("history", "plot")))
)
"""The targets without the commands that draw plots."""


class Fuzzing:
    """Trials in a folder of sound files, which each trial damages in a copy."""

    def __init__(self, folder: pathlib.Path, targets: Sequence[Target] = TARGETS) -> None:
        self.sound, self.copy, self.targets = folder / "sound", folder / "copy", targets
        self.sound.mkdir()
        make_files(self.sound)
        self.outcomes: dict[str, collections.Counter[str]] = {}
        self.failures: list[str] = []
        self.slowest_s = 0.0
        self.current = ""

    def trial(self, seed: int) -> None:
        """Damages one file and runs one command on it; records the exit code or the violation."""
        rng = random.Random(seed)
        target = rng.choices(self.targets, [one.weight for one in self.targets])[0]
        shutil.rmtree(self.copy, ignore_errors=True)
        shutil.copytree(self.sound, self.copy)
        file = self.copy / target.file
        done = damage(file, rng)
        if rng.random() < 0.7 and (file.parent / "checksums.sha256").is_file() and file.name != "checksums.sha256":
            update_checksums(file.parent)
        command = rng.choice(target.commands)
        self.current = f"seed {seed}, {target.file} ({done[:160]}), `perfkit {' '.join(command)}`"
        try:
            code = self.run(command)
        except ViolationError as error:
            self.failures.append(f"{self.current}: {error}")
            print(self.failures[-1], file=sys.stderr, flush=True)
        else:
            self.outcomes.setdefault(f"{command[0]}, {pathlib.Path(target.file).name}", collections.Counter())[f"exit {code}"] += 1

    def run(self, command: Sequence[str]) -> int:
        """Runs a command in the copy; raises ViolationError."""
        out, err, began_s = io.StringIO(), io.StringIO(), time.monotonic()
        with contextlib.chdir(self.copy), contextlib.redirect_stdout(out), contextlib.redirect_stderr(err), _within(LONGEST_S):
            try:
                code = RESUMED[command[0]](self.copy / command[1]) if command[0] in RESUMED else int(perfkit(command))
            except SystemExit as error:
                raise ViolationError(f"exit by argparse, {error.code}: {err.getvalue()[-200:]}") from None
            except Exception as error:
                raise ViolationError(f"{type(error).__name__}: {error}") from error
        self.slowest_s = max(self.slowest_s, time.monotonic() - began_s)
        written = {name: (self.copy / name).read_text("utf-8") for name in ("verdict.md", "junit.xml") if (self.copy / name).is_file()}
        written |= {str(file): file.read_text("utf-8") for file in self.copy.rglob("report.md")}
        check(command, code, {"stdout": out.getvalue(), "stderr": err.getvalue(), **written})
        return code


def check(command: Sequence[str], code: int, texts: Mapping[str, str]) -> None:
    """Raises ViolationError for an undocumented exit code, a traceback, a hostile text that got through, or an absurd figure."""
    if code not in DOCUMENTED[command[0]]:
        raise ViolationError(f"exit code {code}: {texts['stderr'][-800:]}")
    if code == 2 and not texts["stderr"].startswith("perfkit: "):
        raise ViolationError(f"no sentence on stderr: {texts['stderr'][:200]!r}")
    for name, text in texts.items():
        if "Traceback (most recent call last)" in text:
            raise ViolationError(f"a traceback on {name}: {text[-800:]}")
        if found := _CONTROL.search(text) or _COMMAND.search(text):
            raise ViolationError(f"{found[0]!r} on {name}: {text[max(found.start() - 80, 0) : found.end() + 40]!r}")
        if name == "stderr" and code == 2:
            continue  # a refusal quotes what it refuses
        shown = _QUOTED_REFUSAL.sub("", text)
        for pattern, highest in ((_RATE, _HIGHEST_PER_S), (_SECONDS, _LONGEST_TIME_S)):
            for figure in pattern.finditer(shown):
                if float(figure[1].replace(",", "") or 0) > highest:
                    raise ViolationError(f"{figure[0]} on {name}: {shown[max(figure.start() - 80, 0) : figure.end() + 20]!r}")
        if found := _NO_FIGURE.search(text):
            raise ViolationError(f"{found[0]!r} on {name}: {text[max(found.start() - 80, 0) : found.end() + 40]!r}")


def _resume(folder: pathlib.Path) -> int:
    """What `perfkit run --out SWEEP` reads when it continues a sweep, without measuring the rest."""
    try:
        cases: list[tuple[Mapping[str, Any], Mapping[str, Any]]] = [(case.values, {}) for case in read_sweep(folder).cases]
        SweepFolder(folder, "smoke", cases).pending()
    except PerfkitError as error:
        print(f"perfkit: {error}", file=safe_stream(sys.stderr))
        return 2
    return 0


def _resume_gate(folder: pathlib.Path) -> int:
    """What `perfkit gate --out GATE` reads when it continues, and the decision on the pairs that are there, without measuring more."""
    try:
        pairs = GateFolder(folder, MANIFEST).pairs
        decide_pairs(rule_for(4), pairs[:12], MetricChoice(is_standard=True))
    except PerfkitError as error:
        print(f"perfkit: {error}", file=safe_stream(sys.stderr))
        return 2
    return 0


RESUMED = {"resume": _resume, "resume-gate": _resume_gate}
"""What continues after an interruption; the rest of it would measure."""


@contextlib.contextmanager
def _within(seconds: int) -> Iterator[None]:
    def on_alarm(*_: object) -> NoReturn:
        raise TimeoutError(f"not done within {seconds} s")

    before = signal.signal(signal.SIGALRM, on_alarm)
    signal.alarm(seconds)
    try:
        yield
    finally:
        signal.alarm(0)
        signal.signal(signal.SIGALRM, before)


def fuzz(folder: pathlib.Path, seed: int, continues: Callable[[int], bool], targets: Sequence[Target] = TARGETS) -> tuple[Fuzzing, int]:
    """Runs trials while `continues(number)` holds and few have failed; returns them with their number."""
    fuzzing_, number = Fuzzing(folder, targets), 0
    while continues(number) and len(fuzzing_.failures) < fuzzing.MAX_FAILURES:
        fuzzing_.trial(seed + number)
        number += 1
    return fuzzing_, number


def main() -> int:
    """Runs the trials; the exit code is 1 at a violation."""
    options: argparse.Namespace = fuzzing.parse_options(__doc__)
    for name in ("GITHUB_ACTIONS", "GITHUB_STEP_SUMMARY"):
        os.environ.pop(name, None)
    resource.setrlimit(resource.RLIMIT_AS, (MEMORY_BYTES + 2**31, resource.RLIM_INFINITY))
    end_s = time.monotonic() + options.minutes * 60
    with tempfile.TemporaryDirectory() as folder:
        found, trials = fuzz(pathlib.Path(folder), options.seed, lambda _: time.monotonic() < end_s)
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024
    rows = [(name, outcome, count) for name, counts in sorted(found.outcomes.items()) for outcome, count in sorted(counts.items())]
    lines = [
        f"{options.minutes:g} minutes, {trials:,} trials from seed {options.seed}, Python {platform.python_version()}.",
        "Each trial damages one stored file and runs one command that reads it: exit codes are the documented ones, nothing printed has",
        "control characters or commands of CI systems, and no figure is one that nothing can measure.",
        "",
        *table_head("command, file", "outcome", ">count"),
        *(table_row(name, outcome, f"{count:,}") for name, outcome, count in rows),
        "",
        f"The slowest command took {found.slowest_s:.1f} s; the process took {peak} MiB at most.",
    ]
    return fuzzing.finish("Fuzzing stored results", lines, found.failures, options)


if __name__ == "__main__":
    sys.exit(main())
