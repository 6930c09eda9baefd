"""Runs the command lines of perf_analyzer's documentation with perf_analyzer and perfkit on a real Triton, one after the other.

    python -m benchmarks.documented_commands [--peers FOLDER] [--out reports/documented-commands.md]

The lines are those of tests/documented_command_lines.py. They get models, inputs and the URL of this Triton, and short windows. Compared are the
exit code and how many loads the summary has; where they differ, the exit code is 1. Lines that need TLS, a GPU, or a model that calls others are left out.
"""

import contextlib
import dataclasses
import pathlib
import re
import shlex
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator

from benchmarks.peers.install import peers_folder
from benchmarks.peers.server_process import PeerError
from benchmarks.peers.triton import MODELS, TRAFFIC_MODELS, Triton, running_triton
from benchmarks.report import Report, program_options
from tests.documented_command_lines import FILES, LINES

_LEFT_OUT = ("--ssl-", "https://", "=cuda", "--bls")
"""Lines with these need TLS, a GPU, or a model that calls others."""
_SHORT_WINDOWS = ("-r", "3", "-s", "9999")
_LOAD = re.compile(r"^(?:Concurrency|Request Rate): [^,]*, throughput", re.MULTILINE)
_TIMEOUT_S = 180
_STEP = '{"INPUT0": [1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16], "INPUT1": [1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1]'
_CONTENTS = {
    "input_data.json": f'{{"data": [{_STEP}, "timestamp": [100]}}, {_STEP}, "timestamp": [300]}}]}}',
    "json_file1.json": f'{{"data": [{_STEP}}}]}}',
    "json_file2.json": f'{{"data": [{_STEP}}}]}}',
    "my_intervals.txt": "10000\n20000\n50000\n",
}
"""Contents that fit the model, in place of those that only parse."""


@dataclasses.dataclass(frozen=True)
class Outcome:
    """A program's exit code, the loads of its summary, and the last line of stderr."""

    exit_code: int
    loads: int
    complaint: str

    def __str__(self) -> str:
        return f"{self.exit_code}: {self.complaint[:100]}" if self.exit_code else f"0, {self.loads} loads"


def main() -> int:
    """Runs the lines and writes the report."""
    options = program_options(__doc__, out="documented-commands", peers=peers_folder())
    programs = [options.peers.absolute() / "bin" / "perf_analyzer"], [pathlib.Path(sys.executable).with_name("perfkit"), "perf-analyzer"]
    lines = [line for _, line, _ in LINES if not any(mark in line for mark in _LEFT_OUT)]
    try:
        with tempfile.TemporaryDirectory() as models, running_on(options.peers, pathlib.Path(models)) as triton:
            report = Report(options.out, f"perf_analyzer's documented command lines on Triton {triton.version}")
            report.add(
                f"{len(lines)} lines; {len(LINES) - len(lines)} that need TLS, a GPU, or a model that calls others are left out.", ""
            )
            report.table("line", "perf_analyzer", "perfkit", "alike")
            for line in lines:
                theirs, ours = (run([*map(str, program), *fitted(line, triton)]) for program in programs)
                report.judged_row((theirs.exit_code, theirs.loads) == (ours.exit_code, ours.loads), f"`{line}`", theirs, ours)
    except PeerError as error:
        sys.exit(str(error))
    return report.write()


@contextlib.contextmanager
def running_on(peers: pathlib.Path, folder: pathlib.Path) -> Iterator[Triton]:
    """A Triton with the plain models and those for streams and sequences, whose copies go to the folder."""
    for models in (MODELS, TRAFFIC_MODELS):
        shutil.copytree(models, folder, dirs_exist_ok=True)
    with running_triton(peers, models=folder) as triton:
        yield triton


def fitted(line: str, triton: Triton) -> list[str]:
    """The line's arguments with a model, inputs and the URL of this Triton."""
    words, model = shlex.split(line), "simple"
    if "sequence" in line:
        model = "sequence_sum"
        words.append("--input-data=zero")  # the sum of perf_analyzer's random numbers does not fit its type
    elif "--string" in line:
        model = "identity_bytes"
    words = ["--shape=INPUT0:16" if word.startswith(("--shape=", "IMAGE:")) else word for word in words]
    words = [word for word in words if word != "--shape"]
    words = [f"--metrics-url=127.0.0.1:{triton.metrics_port}/metrics" if word.startswith("--metrics-url") else word for word in words]
    if "--collect-metrics" in words and "--metrics-url" not in line:
        words.append(f"--metrics-url=127.0.0.1:{triton.metrics_port}/metrics")
    words[words.index("-m") + 1] = model
    if "-x" in words:
        words[words.index("-x") + 1] = "1"
    protocol = "grpc" if "grpc" in words else "http"
    if model == "identity_bytes":
        words += ["--shape", "INPUT0:1"]
    if any(":0" in word for word in words):
        words += ["-l", "1"]  # the first load is above it, and ends a range without an end
    windows = ["-p", "300"] if "request-count" not in line else []
    return [*words, *windows, *_SHORT_WINDOWS, "-u", triton.url(protocol).partition("://")[2]]


def run(command: list[str]) -> Outcome:
    """What becomes of a command in a folder with the files that the lines name."""
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        for file, text in (FILES | _CONTENTS).items():
            (folder / file).parent.mkdir(exist_ok=True)
            (folder / file).write_text(text)
        (folder / "data" / "INPUT").unlink()
        for number in range(2):
            (folder / "data" / f"INPUT{number}").write_bytes(b"\1\0\0\0" * 16)
        done = subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=_TIMEOUT_S, check=False)
    complaints = [line for line in done.stderr.splitlines() if line.strip() and not line.startswith("perfkit:")]
    return Outcome(done.returncode, len(_LOAD.findall(done.stdout)), complaints[-1] if complaints else "")


if __name__ == "__main__":
    sys.exit(main())
