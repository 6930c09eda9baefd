"""A planted regression found by `perfkit bisect` among revisions of a small project, with real servers.

    python -m benchmarks.bisect_live [--revisions 32] [--slower 1.1] [--seed 1] [--window 1s] [--out reports/bisect-live.md]

The project's server is the bundled one with the model `synthetic`, whose service time is a constant of the project. One revision, at a
random position, makes it longer; the others change a comment. It takes about 15 minutes. The bisection's folder is beside the report until
it has ended: after an interruption, the same command continues. The exit code is 1 if another revision or none was found, or it took
more gates than half of the revisions can be left out each time.
"""

import datetime
import json
import math
import os
import pathlib
import random
import shlex
import shutil
import signal
import subprocess
import sys

from benchmarks.processes import run_interruptibly, write_scenario
from benchmarks.report import Report, describe_machine, program_options
from benchmarks.synthetic import INPUT
from perfkit.bisection.folder import BISECTION_FILE, Bisection
from perfkit.units import format_signed_change

SERVICE_US, SERVERS, IN_FLIGHT = 40_000, 12, 24
SERVER = f"""
import os, sys
from built import SERVICE_US
law = f"service=constant:{{SERVICE_US}}us,servers={SERVERS}"
words = ["--model", "synthetic", "--synthetic", law, "--http-port", sys.argv[1], "--grpc-port", "0", "--exit-with-stdin"]
os.execv(sys.executable, [sys.executable, "-m", "server_stub", *words])
"""
_COMMITTER = {f"GIT_{who}_{what}": value for who in ("AUTHOR", "COMMITTER") for what, value in (("NAME", "B"), ("EMAIL", "b@example.org"))}
_ALONE = {"GIT_CONFIG_GLOBAL": os.devnull, "GIT_CONFIG_SYSTEM": os.devnull}


def make_repository(folder: pathlib.Path, revisions: int, first_slower: int, slower: float) -> None:
    """A repository with a good revision and so many after it; from `first_slower` on the service time is `slower` times as long."""

    def git(*words: str) -> None:
        subprocess.run(["git", "-C", str(folder), *words], check=True, env={**os.environ, **_COMMITTER, **_ALONE})  # noqa: S607

    folder.mkdir(parents=True)
    git("init", "--quiet", "--initial-branch=main")
    for number in range(revisions + 1):
        service_us = round(SERVICE_US * (slower if number >= first_slower else 1.0))
        (folder / "serve.py").write_text(SERVER, encoding="utf-8")
        (folder / "settings.py").write_text(f"# revision {number}\nSERVICE_US = {service_us}\n", encoding="utf-8")
        git("add", "--all")
        git("commit", "--quiet", "-m", f"Revision {number}")


def bisect(folder: pathlib.Path, revisions: int, window: str) -> Bisection:
    """Runs the bisection, or continues it, in a process of its own."""
    document = {
        "name": "live-bisect", "target": {"model": "synthetic"}, "workload": {"inputs": INPUT}, "load": {"closed": {"concurrency": IN_FLIGHT}},
        "measure": {"warmup": "200ms", "duration": window}, "gate": {"metrics": ["throughput", "p50"]}, "telemetry": False,
    }  # fmt: skip
    options = {
        "--good": f"main~{revisions}", "--bad": "main", "--repository": folder / "repository", "--build": "cp settings.py built.py",
        "--serve": f"{shlex.quote(sys.executable)} ./serve.py {{port}}", "--out": folder / "bisect",
    }  # fmt: skip
    words = [str(word) for option in options.items() for word in option]
    code = run_interruptibly("bisect", str(write_scenario(folder, document)), *words)
    file = folder / "bisect" / BISECTION_FILE
    if not file.exists():
        raise RuntimeError(f"perfkit bisect ended with exit code {code} and no outcome")
    return Bisection.model_validate(json.loads(file.read_text(encoding="utf-8")))


def main() -> int:
    """Plants, searches, and writes the report."""
    options = program_options(
        __doc__, out="bisect-live", revisions=(32, "after the good one"), slower=(1.1, "the factor of the service time"),
        seed=(1, "of the planted position"), window=("1s", "length of each measured window"),
    )  # fmt: skip
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    machine, first_slower = describe_machine(), random.Random(options.seed).randint(1, options.revisions)
    folder = options.out.with_suffix(".partial").resolve()
    if not (folder / "repository").exists():
        make_repository(folder / "repository", options.revisions, first_slower, options.slower)
    found = bisect(folder, options.revisions, options.window)
    minutes = (datetime.datetime.now(datetime.UTC) - datetime.datetime.fromisoformat(found.started_at)).total_seconds() / 60
    regression, gates = found.regression, 1 + len(found.gates)
    page = Report(options.out, "A planted regression found by `perfkit bisect`")
    page.add(
        f"`python -m benchmarks.bisect_live`: {found.revisions} revisions after the good one; from revision {first_slower} on, which was drawn by chance, the",
        f"service time of the bundled server's model `synthetic` is {options.slower - 1:.0%} longer ({SERVICE_US / 1000:g} ms before, {SERVERS} servers, {IN_FLIGHT} "
        "requests in",
        f"flight). Every revision was checked out, built and served by the command; windows of {options.window}, far shorter than in real use.",
        "",
        f"- Found: **{'none' if found.first_slower is None else found.first_slower.subject.lower()}**, {found.reasons[0]}",
        f"- {gates} gates in {minutes:.0f} minutes.",
        *(() if found.error_rate is None else [f"- The answer is wrong with a probability of at most {found.error_rate:.0%}."]),
        f"- Machine: {machine}",
        "",
    )
    page.table(">gate", ">revision", ">pairs", f">change of {regression.metric if regression else 'the metric'}", "outcome")
    if regression is not None:
        change = format_signed_change(regression.scale, regression.estimate, regression.interval)
        page.row(1, found.revisions, regression.pairs, change, "slower")
    for number, one in enumerate(found.gates, 2):
        change = (
            "–"
            if one.estimate is None
            else format_signed_change("ratio" if regression is None else regression.scale, one.estimate, one.interval)
        )
        page.row(number, one.position, one.pairs, change, one.outcome.replace("_", " "))
    note = "What counts as slower, and how sure it is: [bisecting](../docs/how-to/bisecting.md)."
    page.add("", f"Changes are those against the good revision, {found.good.short}. {note}")
    shutil.rmtree(folder)
    is_right = found.first_slower is not None and found.first_slower.subject == f"Revision {first_slower}"
    page.is_met = is_right and gates <= 1 + math.ceil(math.log2(options.revisions))
    return page.write()


if __name__ == "__main__":
    sys.exit(main())
