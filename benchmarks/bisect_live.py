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

from benchmarks.processes import ROOT, write_scenario
from benchmarks.report import describe_machine, option_parser, table_head, table_row, write_report
from perfkit.bisection.folder import BISECTION_FILE, Bisection, Interval, format_change

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
    folder.mkdir(parents=True)
    _git(folder, "init", "--quiet", "--initial-branch=main")
    for number in range(revisions + 1):
        service_us = round(SERVICE_US * (slower if number >= first_slower else 1.0))
        (folder / "serve.py").write_text(SERVER, encoding="utf-8")
        (folder / "settings.py").write_text(f"# revision {number}\nSERVICE_US = {service_us}\n", encoding="utf-8")
        _git(folder, "add", "--all")
        _git(folder, "commit", "--quiet", "-m", f"Revision {number}")


def _git(folder: pathlib.Path, *words: str) -> None:
    command = ["git", "-C", str(folder), *words]
    subprocess.run(command, check=True, env={**os.environ, **_COMMITTER, **_ALONE})


def bisect(folder: pathlib.Path, revisions: int, window: str) -> Bisection:
    """Runs the bisection, or continues it, in a process of its own."""
    document = {
        "name": "live-bisect",
        "target": {"model": "synthetic"},
        "workload": {"inputs": {"INPUT0": {"generate": "zeros", "shape": [4]}}},
        "load": {"closed": {"concurrency": IN_FLIGHT}},
        "measure": {"warmup": "200ms", "duration": window},
        "gate": {"metrics": ["throughput", "p50"]},
        "telemetry": False,
    }
    words = [
        "bisect",
        write_scenario(folder, document),
        "--good",
        f"main~{revisions}",
        "--bad",
        "main",
        "--repository",
        folder / "repository",
    ]
    words += [
        "--build",
        "cp settings.py built.py",
        "--serve",
        f"{shlex.quote(sys.executable)} ./serve.py {{port}}",
        "--out",
        folder / "bisect",
    ]
    with subprocess.Popen([sys.executable, "-m", "perfkit", *map(str, words)], cwd=ROOT) as process:
        try:
            process.wait()
        except BaseException:
            process.send_signal(signal.SIGINT)  # it stores its pairs and stops its servers
            process.wait()
            raise
    file = folder / "bisect" / BISECTION_FILE
    if not file.exists():
        raise RuntimeError(f"perfkit bisect ended with exit code {process.returncode} and no outcome")
    return Bisection.model_validate(json.loads(file.read_text(encoding="utf-8")))


def report(found: Bisection, first_slower: int, slower: float, window: str, minutes: float, machine: str) -> list[str]:
    """What was planted, what was found, and the gates."""
    good, regression = found.good.short, found.regression
    rows: list[tuple[str, int, int, float | None, Interval | None, str]] = []
    if regression is not None:
        rows.append(("1", found.revisions, regression.pairs, regression.estimate, regression.interval, "slower"))
    rows += [
        (str(number), one.position, one.pairs, one.estimate, one.interval, one.outcome.replace("_", " "))
        for number, one in enumerate(found.gates, 2)
    ]
    scale = "ratio" if regression is None else regression.scale
    answer = "none" if found.first_slower is None else found.first_slower.subject.lower()
    return [
        "# A planted regression found by `perfkit bisect`",
        "",
        f"`python -m benchmarks.bisect_live`: {found.revisions} revisions after the good one; from revision {first_slower} on, which was drawn by chance, the",
        f"service time of the bundled server's model `synthetic` is {slower - 1:.0%} longer ({SERVICE_US / 1000:g} ms before, {SERVERS} servers, {IN_FLIGHT} requests in",
        f"flight). Every revision was checked out, built and served by the command; windows of {window}, far shorter than in real use.",
        "",
        f"- Found: **{answer}**, {found.reasons[0]}",
        f"- {1 + len(found.gates)} gates in {minutes:.0f} minutes.",
        *(() if found.error_rate is None else [f"- The answer is wrong with a probability of at most {found.error_rate:.0%}."]),
        f"- Machine: {machine}",
        "",
        *table_head(">gate", ">revision", ">pairs", f">change of {regression.metric if regression else 'the metric'}", "outcome"),
        *(
            table_row(number, position, pairs, "–" if estimate is None else format_change(scale, estimate, interval), outcome)
            for number, position, pairs, estimate, interval, outcome in rows
        ),
        "",
        f"Changes are those against the good revision, {good}. What counts as slower, and how sure it is: [bisecting](../docs/how-to/bisecting.md).",
    ]


def main() -> int:
    """Plants, searches, and writes the report."""
    parser = option_parser(__doc__, out=ROOT / "reports" / "bisect-live.md")
    parser.add_argument("--revisions", type=int, default=32)
    parser.add_argument("--slower", type=float, default=1.1, metavar="FACTOR")
    parser.add_argument("--seed", type=int, default=1, help="of the planted position (default %(default)s)")
    parser.add_argument("--window", default="1s", help="length of each measured window (default %(default)s)")
    options = parser.parse_args()
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    machine = describe_machine()
    first_slower = random.Random(options.seed).randint(1, options.revisions)
    folder = options.out.with_suffix(".partial").resolve()
    if not (folder / "repository").exists():
        make_repository(folder / "repository", options.revisions, first_slower, options.slower)
    found = bisect(folder, options.revisions, options.window)
    minutes = (datetime.datetime.now(datetime.UTC) - datetime.datetime.fromisoformat(found.started_at)).total_seconds() / 60
    write_report(options.out, report(found, first_slower, options.slower, options.window, minutes, machine))
    shutil.rmtree(folder)
    print(f"{options.out} written")
    is_right = found.first_slower is not None and found.first_slower.subject == f"Revision {first_slower}"
    return 0 if is_right and 1 + len(found.gates) <= 1 + math.ceil(math.log2(options.revisions)) else 1


if __name__ == "__main__":
    raise SystemExit(main())
