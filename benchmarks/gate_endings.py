"""What a gate leaves when it ends without a verdict: each output exists, and names the arm, how its server ended, and a line of its log.

    python -m benchmarks.gate_endings [--out reports/gate-endings.md]

Each case is a `perfkit gate` on real processes, with every output asked for, as on GitHub: a server that crashes at its start, in the
trial and in pair 3, one that is never ready, one that listens at another port, and a perfkit that is interrupted, terminated and killed
in pair 3. The crashes are signals that this program sends to the candidate's server under load. Required: each output of each
case exists, is well formed, and names what ended the gate; a killed perfkit cannot write annotations and job summary. The exit code is 1 if
a requirement is missed.
"""

import html
import json
import os
import pathlib
import shlex
import signal
import subprocess
import sys
import tempfile
import textwrap
import time
from collections.abc import Callable
from typing import NamedTuple
from xml.etree import ElementTree

import psutil

from benchmarks.processes import write_scenario
from benchmarks.report import describe_machine, option_parser, publish, table_head, table_row
from perfkit.machine.process_tree import listening_ports

_UNDER_LOAD_S, _POLL_S = 0.7, 0.02
_SCENARIO = {
    "name": "gate-endings",
    "target": {"model": "synthetic"},
    "workload": {"inputs": {"INPUT0": {"generate": "zeros", "shape": [4]}}},
    "load": {"closed": {"concurrency": 2}},
    "measure": {"warmup": "200ms", "duration": "1s"},
}
_LISTENS_ELSEWHERE = "import socket, time; s = socket.create_server(('127.0.0.1', 0)); print('serving', flush=True); time.sleep(600)"
_SERVICE_TIMES = {"baseline": "5ms", "candidate": "5000us"}  # the same, and the commands differ
_EVERY_OUTPUT = ("JUnit", "Markdown", "HTML", "verdict.json", "stdout", "annotation", "summary")
_OF_A_KILLED = ("JUnit", "Markdown", "HTML", "verdict.json")


class Case(NamedTuple):
    """A way to end: at a line of progress something is done to perfkit or to the candidate's server."""

    title: str
    texts: tuple[str, ...]
    """What each output names."""
    candidate: str | None = None
    """The candidate's command in place of the bundled server's."""
    at_line: str = ""
    act: "Callable[[psutil.Process], None] | None" = None
    outputs: tuple[str, ...] = _EVERY_OUTPUT
    last_line: str = '"event": "ready"'
    exit_code: int = 6


def serve(arm: str) -> str:
    """The command of an arm's server."""
    words = [sys.executable, "-m", "server_stub", "--model", "synthetic", "--synthetic", f"service=constant:{_SERVICE_TIMES[arm]}"]
    return f"{shlex.join(words)} --http-port {{port}} --grpc-port 0"


def server_of(perfkit: psutil.Process, arm: str) -> psutil.Process:
    """The server of an arm, once it listens."""
    while True:
        for process in perfkit.children():
            try:
                if any(word.endswith(f":{_SERVICE_TIMES[arm]}") for word in process.cmdline()) and listening_ports(process.pid):
                    return process
            except psutil.Error:  # it has just ended
                continue
        time.sleep(_POLL_S)


def end_server(number: signal.Signals) -> Callable[[psutil.Process], None]:
    """Sends a signal to the candidate's server under load."""

    def act(perfkit: psutil.Process) -> None:
        server = server_of(perfkit, "candidate")
        time.sleep(_UNDER_LOAD_S)
        server.send_signal(number)

    return act


def end_perfkit(number: signal.Signals) -> Callable[[psutil.Process], None]:
    """Sends a signal to perfkit while it measures the candidate."""

    def act(perfkit: psutil.Process) -> None:
        server_of(perfkit, "candidate")
        time.sleep(_UNDER_LOAD_S)
        perfkit.send_signal(number)

    return act


CASES = (
    Case("crash at start", ("candidate failed in the trial", "ended with exit code 3"), "sh -c 'echo no GPU; exit 3' {port}", last_line="no GPU"),
    Case("crash in the trial", ("candidate failed in the trial", "signal 11 (SIGSEGV)"), at_line="trial: candidate", act=end_server(signal.SIGSEGV)),
    Case("crash in pair 3", ("candidate failed in pair 3", "signal 9 (SIGKILL)"), at_line="pair 3 ", act=end_server(signal.SIGKILL)),
    Case("never ready", ("candidate failed in the trial", "not ready within 8s (--ready-timeout)", "no TCP port"), "sh -c 'echo loading; exec sleep 600' {port}", last_line="loading"),
    Case("wrong port", ("candidate failed in the trial", "its processes listen on port"), f"{shlex.quote(sys.executable)} -c {shlex.quote(_LISTENS_ELSEWHERE)} {{port}}", last_line="serving"),
    Case("Ctrl-C in pair 3", ("In pair 3, candidate", "SIGINT"), at_line="pair 3 ", act=end_perfkit(signal.SIGINT), last_line="", exit_code=130),
    Case("SIGTERM in pair 3", ("In pair 3, candidate", "SIGTERM"), at_line="pair 3 ", act=end_perfkit(signal.SIGTERM), last_line="", exit_code=143),
    Case("killed in pair 3", ("In pair 3, candidate", "has not finished: 2 pairs so far"), at_line="pair 3 ", act=end_perfkit(signal.SIGKILL), outputs=_OF_A_KILLED, last_line="", exit_code=-9),
)  # fmt: skip


def run(case: Case, folder: pathlib.Path) -> tuple[int, dict[str, str]]:
    """The exit code of a gate that ends as in the case, and its outputs by name."""
    scenario, files = write_scenario(folder, _SCENARIO), {name: folder / name for name in ("junit", "markdown", "html")}
    commands = [serve("baseline"), case.candidate or serve("candidate")]
    arguments = ["--baseline", f"cmd:{commands[0]}", "--candidate", f"cmd:{commands[1]}", "--out", folder / "out", "--ready-timeout", "8s"]
    outputs = [word for name, file in files.items() for word in (f"--{name}", file)]
    environment = {**os.environ, "GITHUB_ACTIONS": "true", "GITHUB_STEP_SUMMARY": str(folder / "summary")}
    command = [sys.executable, "-m", "perfkit", "gate", scenario, *arguments, *outputs]
    with (
        (folder / "stdout").open("w") as stdout,
        subprocess.Popen(list(map(str, command)), stdout=stdout, stderr=subprocess.PIPE, text=True, env=environment) as process,
    ):
        assert process.stderr is not None
        for line in process.stderr:
            if case.act is not None and line.startswith(case.at_line):
                case.act(psutil.Process(process.pid))
                case = case._replace(act=None)
        code = process.wait()
    found = {
        "JUnit": files["junit"], "Markdown": files["markdown"], "HTML": files["html"], "summary": folder / "summary",
        "stdout": folder / "stdout", "verdict.json": folder / "out.partial" / "verdict.json",
    }  # fmt: skip
    texts = {name: file.read_text() for name, file in found.items() if file.exists()}
    texts["annotation"] = next((line for line in texts["stdout"].splitlines() if line.startswith("::error ")), "")
    return code, texts


def missing(case: Case, code: int, texts: dict[str, str]) -> list[str]:
    """What the case should have left and did not."""
    ElementTree.fromstring(texts.get("JUnit", "<none/>"))  # noqa: S314 - what perfkit has just written
    json.loads(texts.get("verdict.json", "{}"))
    named = (*case.texts, *filter(None, [case.last_line]))
    plain = {name: html.unescape(text.replace("\\", "")) for name, text in texts.items()}
    lacks = [f"{name}: {text}" for name in case.outputs for text in named if text not in plain.get(name, "")]
    return [*([] if code == case.exit_code else [f"exit code {code}"]), *lacks]


def main() -> int:
    """Runs all cases."""
    options = option_parser(__doc__, out=pathlib.Path("reports/gate-endings.md")).parse_args()
    machine, rows, is_met = describe_machine(), [], True
    for case in CASES:
        with tempfile.TemporaryDirectory() as folder:
            began_s = time.monotonic()
            code, texts = run(case, pathlib.Path(folder))
            failure = json.loads(texts["verdict.json"])["failure"]
            lacks = missing(case, code, texts)
        is_met = is_met and not lacks
        ended = failure["signal"] or ("–" if failure["exit_code"] is None else f"exit code {failure['exit_code']}")
        present = f"{sum(bool(texts.get(name)) for name in case.outputs)} of {len(case.outputs)}"
        last = textwrap.shorten(failure["last_lines"][-1], 40, placeholder=" …") if failure["last_lines"] else "–"
        row = (case.title, code, present, failure["arm"], failure["phase"], ended, last, "; ".join(lacks) or "nothing")
        print(*row, f"{time.monotonic() - began_s:.0f} s", sep=" | ", file=sys.stderr, flush=True)
        rows.append(table_row(*row))
    note = (
        "Each row is one `perfkit gate` on real processes, ended in that way, with `--junit`, `--markdown`, `--html`, annotations and job summary. "
        "Outputs: those of JUnit, Markdown, HTML, `verdict.json`, stdout, annotation and job summary that exist; a killed perfkit writes no "
        "stdout, annotation and job summary. Each was searched for the arm and its place, the exit code or signal, and the last line of the "
        "server's log; the last column is what was not found."
    )
    head = table_head("ending", ">exit code", ">outputs", "arm", "phase", "ended by", "last line of the log", "missing")
    lines = ["# Endings of a gate", "", "Made by `python -m benchmarks.gate_endings`.", "", note, "", *head, *rows, "", machine]
    return publish(options.out, lines, is_met=is_met)


if __name__ == "__main__":
    sys.exit(main())
