"""The bundled server and `perfkit run` as child processes of a benchmark. They run the code of this checkout, or of another one."""

import argparse
import contextlib
import json
import os
import pathlib
import shlex
import signal
import subprocess
import sys
import tempfile
import urllib.request
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from typing import IO, Any, NamedTuple

from perfkit.gate.folder import VERDICT_FILE, read_verdict
from perfkit.gate.verdict import Verdict

ROOT = pathlib.Path(__file__).parents[1]
REALTIME = ("chrt", "-f", "1")
"""Put before a command, it starts the command at real-time priority (SCHED_FIFO)."""
_STOPS_WITHIN_S = 60


class Checkout(NamedTuple):
    """A version of perfkit: the folder of its source, in which its commands run, and the Python that runs them."""

    folder: pathlib.Path
    python: str
    program: Sequence[str] = ("-m", "perfkit")
    """The arguments of Python for the command `perfkit`."""

    @property
    def perfkit(self) -> list[str]:
        """The command `perfkit`, without its own arguments."""
        return [self.python, *self.program]


def checkout(folder: str) -> Checkout:
    """The value of an option: a folder with a `.venv` of its own; raises ArgumentTypeError without one."""
    path = pathlib.Path(folder).resolve()
    python = path / ".venv/bin/python"
    if not python.exists():
        raise argparse.ArgumentTypeError(f"there is no {python}")
    return Checkout(path, str(python))


THIS = Checkout(ROOT, sys.executable)
OWN, BEFORE = "perfkit", "perfkit before"
"""The names of this checkout and of another one, where both are measured."""
BEFORE_OPTION = (checkout, "another version of perfkit, a folder with a `.venv` of its own, which is measured, too")
"""The option `--before` of `program_options`."""


class RunningServer(NamedTuple):
    """The bundled server's process, and the description that it prints when it is ready."""

    process: "subprocess.Popen[str]"
    ready: Mapping[str, Any]

    @property
    def http_port(self) -> int:
        """The port for HTTP on the loopback."""
        return int(self.ready["http_port"])

    def inference_count(self, model: str) -> int:
        """The number of inferences that a model has executed."""
        return int(self.statistics(model)["inference_count"])

    def statistics(self, model: str) -> Mapping[str, Any]:
        """A model's statistics since its start."""
        with urllib.request.urlopen(f"http://127.0.0.1:{self.http_port}/v2/models/{model}/stats", timeout=10) as answer:
            found: Mapping[str, Any] = json.load(answer)["model_stats"][0]
        return found

    def url(self, protocol: str = "http") -> str:
        """The URL for a protocol."""
        return f"{protocol}://127.0.0.1:{self.ready[f'{protocol}_port']}"


@contextlib.contextmanager
def running_canned_server(prefix: Sequence[str] = ()) -> Iterator[RunningServer]:
    """Runs the server that answers each request with the same bytes, without reading it, for the length of the block; its model is `canned`."""
    command, pipe = [*prefix, sys.executable, "-m", "perfkit.calibration.canned_server"], subprocess.PIPE
    with subprocess.Popen(command, stdin=pipe, stdout=pipe, cwd=ROOT, text=True) as process:
        assert process.stdout is not None
        yield RunningServer(process, json.loads(process.stdout.readline()))
        process.communicate()


@contextlib.contextmanager
def running_server(
    *options: str,
    realtime: bool = False,
    prefix: Sequence[str] = (),
    stderr: IO[str] | int = subprocess.DEVNULL,
    checkout: Checkout = THIS,
) -> Iterator[RunningServer]:
    """Runs the bundled server on free ports for the length of the block; at real-time priority, only its event loop is.

    `prefix` is put before the command.
    """
    command = [*prefix, checkout.python, "-m", "server_stub", "--http-port=0", "--grpc-port=0", "--exit-with-stdin", *options]
    pipe = subprocess.PIPE
    process = subprocess.Popen(command, stdin=pipe, stdout=pipe, stderr=stderr, cwd=checkout.folder, text=True)
    try:
        assert process.stdout is not None
        ready = process.stdout.readline()
        if not ready:
            raise RuntimeError(f"the bundled server did not start: {' '.join(command)}")
        if realtime:
            os.sched_setscheduler(process.pid, os.SCHED_FIFO, os.sched_param(1))
        yield RunningServer(process, json.loads(ready))
    finally:
        try:
            process.communicate(timeout=_STOPS_WITHIN_S)  # closes its stdin, which ends it
        except BaseException:  # one that hangs would keep its ports and the GPU
            process.kill()
            process.communicate()
            raise


class PerfkitRun(NamedTuple):
    """How `perfkit run` ended: its exit code, its result if it measured anything, and what it wrote to stderr."""

    exit_code: int
    result: dict[str, Any] | None
    stderr: str

    @property
    def points(self) -> list[dict[str, Any]]:
        """The load points; raises RuntimeError without a result."""
        if self.result is None:
            raise RuntimeError(f"perfkit run ended with exit code {self.exit_code} and no result: {self.stderr[-1000:]}")
        points: list[dict[str, Any]] = self.result["points"]
        return points

    @property
    def point(self) -> dict[str, Any]:
        """The only load point; raises RuntimeError without a result."""
        (point,) = self.points
        return point


def run_perfkit(
    scenario: Mapping[str, Any] | pathlib.Path,
    *options: str,
    prefix: Sequence[str] = (),
    realtime: bool = False,
    environment: Mapping[str, str] | None = None,
    out: pathlib.Path | None = None,
    during: Callable[["subprocess.Popen[bytes]"], None] = lambda _: None,
    checkout: Checkout = THIS,
    quiet: Sequence[str] = ("--quiet", "--no-report"),
) -> PerfkitRun:
    """Runs `perfkit run` on a scenario, without progress and report unless `quiet` is empty.

    `prefix` is put before the command, which `realtime` starts at real-time priority; `during` is called with the running process, and `out` keeps the result's folder.
    """
    with tempfile.TemporaryDirectory(prefix="perfkit-benchmark-") as name, tempfile.TemporaryFile() as stderr:
        folder = out or pathlib.Path(name, "out")
        file = scenario if isinstance(scenario, pathlib.Path) else write_scenario(pathlib.Path(name), scenario)
        words = ["run", str(file), *quiet, "--out", str(folder), *options]
        command = [*prefix, *(REALTIME if realtime else ()), *checkout.perfkit, *words]
        with subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=stderr, cwd=checkout.folder, env=environment) as process:
            during(process)
        stderr.seek(0)
        result = folder / "result.json"
        document = json.loads(result.read_text(encoding="utf-8")) if result.exists() else None
        return PerfkitRun(process.returncode, document, stderr.read().decode(errors="replace"))


def server_arm(*options: str) -> str:
    """A target for `perfkit gate`: the bundled server with these options, started and ended by the gate."""
    words = [sys.executable, "-m", "server_stub", "--grpc-port", "0", "--exit-with-stdin", *options]
    return f"cmd:{shlex.join(words)} --http-port {{port}}"


def run_gate(folder: pathlib.Path, scenario: Mapping[str, Any], baseline: str, candidate: str, *options: str) -> Verdict:
    """The verdict of `perfkit gate`, which is interrupted with this process, so that it stores its pairs and stops its servers.

    The gate's folder is `gate` in `folder`: a gate that was interrupted continues. Raises RuntimeError if it ends without a verdict.
    """
    folder.mkdir(parents=True, exist_ok=True)
    words = [write_scenario(folder, scenario), "--baseline", baseline, "--candidate", candidate, "--out", folder / "gate", *options]
    code = run_interruptibly("gate", *map(str, words))
    if not (folder / "gate" / VERDICT_FILE).exists():
        raise RuntimeError(f"perfkit gate ended with exit code {code} and no verdict")
    return read_verdict(folder / "gate")


def run_interruptibly(*words: str) -> int:
    """Runs a command of perfkit, of which only stderr is shown, and passes an interruption on to it; returns its exit code."""
    with subprocess.Popen([sys.executable, "-m", "perfkit", *words], cwd=ROOT, stdout=subprocess.DEVNULL) as process:
        try:
            return process.wait()
        except BaseException:
            process.send_signal(signal.SIGINT)
            process.wait()
            raise


def write_scenario(folder: pathlib.Path, scenario: Mapping[str, Any]) -> pathlib.Path:
    """Writes a scenario file; JSON is YAML."""
    file = folder / "scenario.yaml"
    file.write_text(json.dumps(scenario, indent=1), encoding="utf-8")
    return file


def peak_memory_kib(pid: int) -> int:
    """A process's largest resident memory so far, the kernel's VmHWM; 0 after its end."""
    try:
        status = pathlib.Path(f"/proc/{pid}/status").read_text(encoding="ascii")
    except OSError:
        return 0
    return max((int(line.split()[1]) for line in status.splitlines() if line.startswith("VmHWM:")), default=0)


def process_tree(pid: int) -> list[int]:
    """A process and its descendants, as far as they still run."""
    try:
        children = pathlib.Path(f"/proc/{pid}/task/{pid}/children").read_text(encoding="ascii").split()
    except OSError:
        return [pid]
    return [pid, *(descendant for child in children for descendant in process_tree(int(child)))]


@contextlib.contextmanager
def on_cpus(cpus: Collection[int]) -> Iterator[None]:
    """Pins this process, and what it starts within the block, to CPUs."""
    before = os.sched_getaffinity(0)
    os.sched_setaffinity(0, cpus)
    try:
        yield
    finally:
        os.sched_setaffinity(0, before)
