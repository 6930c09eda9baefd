"""Perfkit as a person runs it: a command, its exit code, what it prints."""

import contextlib
import dataclasses
import json
import os
import pathlib
import queue
import signal
import subprocess
import sys
import threading
import time

import psutil
import pytest
import yaml

from perfkit.cli.main import main
from perfkit.errors import ResultError
from perfkit.measurement.point_log import recorded_so_far
from perfkit.units import NS_PER_S
from tests import forked
from tests.bundled_server import bundled_server
from tests.cli.tune_target import Triton
from tests.json_server import serving, v2_handler
from tests.undisturbed import undisturbed

WAIT_S = 60
_PATIENT = """
import sys
import perfkit.cli.signals
from perfkit.cli.main import main
perfkit.cli.signals._KILLS_CHILDREN_AFTER_S = perfkit.cli.signals._ENDS_AFTER_S = 60
sys.exit(main(sys.argv[1:]))
"""


_UNDISTURBED = """
import sys
import perfkit.gate.tune.race
import perfkit.gate.tune.window_lengths
import perfkit.points.influence
from perfkit.cli.main import main
from perfkit.stats.validity import GeneratorVerdict
perfkit.points.influence.judge_generator = lambda *_, **__: GeneratorVerdict((), ())
perfkit.gate.tune.window_lengths._LONGEST_FIRST_S = 0.1
perfkit.gate.tune.race.NARROW = 0.5
sys.exit(main(sys.argv[1:]))
"""
"""As `undisturbed_tunes` in this process."""


@dataclasses.dataclass
class Finished:
    """How a command ended."""

    code: object
    stdout: str
    stderr: str
    folder: pathlib.Path

    @property
    def result(self):
        return json.loads((self.folder / "result.json").read_text())


def _logged_seconds(log):
    try:
        recorded = recorded_so_far(log) if log.exists() else None
    except ResultError:  # its head is being written
        recorded = None
    return 0 if recorded is None else (recorded.end_ns - recorded.recording.origin_ns) // NS_PER_S


class Running:
    """A `perfkit run` under way; its stderr can be waited on line by line."""

    def __init__(self, arguments, folder, environ, program=""):
        self.folder = folder
        self.lines: queue.SimpleQueue[str | None] = queue.SimpleQueue()
        self.seen = []
        self.process = forked.start(
            [sys.executable, *(["-c", program] if program else ["-m", "perfkit"]), *map(str, arguments)],
            stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env={**os.environ, **environ},
        )  # fmt: skip
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def _read(self):
        for line in self.process.stderr:
            self.lines.put(line)
        self.lines.put(None)

    def wait_for_line(self, text):
        while (line := self.lines.get(timeout=WAIT_S)) is not None:
            self.seen.append(line)
            if text in line:
                return
        pytest.fail(f"no line with {text!r}; stderr was:\n{''.join(self.seen)}")

    def wait_for_pieces(self, seconds):
        """Waits until the log of the first load point has so many seconds of its window from all workers; how many it has."""
        log = self.folder.with_name("out.partial") / "measured" / "00000.log"
        while (known := _logged_seconds(log)) < seconds:
            assert self.process.poll() is None, "".join(self.seen)
            time.sleep(0.1)
        return known

    def signal(self, number: signal.Signals):
        self.process.send_signal(number)

    def descendants(self):
        return [one for one in psutil.Process(self.process.pid).children(recursive=True) if not forked.is_server(one)]

    def child(self, name):
        """Waits for a child whose command line has this word."""
        while self.process.poll() is None:
            for child in self.descendants():
                with contextlib.suppress(psutil.Error):
                    if name in child.cmdline():
                        return child
            time.sleep(0.01)
        pytest.fail(f"the run has ended without a child {name}")

    def finish(self):
        stdout = self.process.stdout.read()
        code = self.process.wait(WAIT_S)
        self._reader.join(WAIT_S)
        while (line := self.lines.get(timeout=WAIT_S)) is not None:
            self.seen.append(line)
        self.process.stdout.close()
        self.process.stderr.close()
        return Finished(code, stdout, "".join(self.seen), self.folder)

    def end(self):
        """Leaves nothing open, also where a test failed halfway: what is left would fail another one, whose garbage it becomes."""
        if self.process.poll() is None:
            self.process.kill()
        self.process.wait(WAIT_S)
        if not self.process.stdout.closed:
            self.process.stdout.close()
        self._reader.join(WAIT_S)
        self.process.stderr.close()


@pytest.fixture(scope="session")
def server():
    """The bundled server's URLs, with its two smallest models."""
    with bundled_server("--model", "simple", "--model", "simple_identity") as urls:
        yield urls


@pytest.fixture
def perfkit(tmp_path, request):
    """Runs perfkit commands: `run` in this process, `start` in a process of their own, which can be interrupted.

    Runs draw no report, unless `report=True`.
    """
    started = []
    folder = tmp_path / "out"

    def completed(arguments, *, report):
        arguments = list(map(str, arguments))
        if arguments[:1] == ["run"]:
            arguments += [] if "--out" in arguments else ["--out", str(folder)]
            arguments += [] if report else ["--no-report"]
        return arguments

    class Perfkit:
        @staticmethod
        def start(*arguments, environ=(), report=False, is_patient=False, is_undisturbed=False, program=""):
            """With `is_patient`, what does not hang has a minute to end after the second signal: on a busy machine a second may not do.

            With `is_undisturbed`, the load generator's influence makes no window invalid. `program` is Python code in place of `-m perfkit`.
            """
            program = _PATIENT if is_patient else _UNDISTURBED if is_undisturbed else program
            running = Running(completed(arguments, report=report), folder, dict(environ), program)
            started.append(running)
            return running

        @staticmethod
        def run(*arguments, environ=(), report=False):
            capture = request.getfixturevalue("capfd")
            capture.readouterr()
            code: object
            with pytest.MonkeyPatch.context() as patch:
                for name, value in dict(environ).items():
                    patch.setenv(name, value)
                try:
                    code = main(completed(arguments, report=report))
                except SystemExit as end:  # argparse's way to refuse an option
                    code = end.code
            said = capture.readouterr()
            return Finished(code, said.out, said.err, folder)

        @classmethod
        def measure(cls, scenario, *options, code=0, **how):
            """Runs a scenario to its end, whatever else the machine does: the run is complete and ends with this exit code."""
            with undisturbed():
                finished = cls.run("run", scenario, *options, **how)
            assert finished.code == code, finished.stderr
            assert finished.result["status"] == "complete", finished.stderr
            return finished

    yield Perfkit
    for running in started:
        running.end()


@pytest.fixture
def write_scenario(tmp_path):
    """Writes a short scenario on the bundled server's `simple`; keyword arguments replace whole sections."""

    def write(**sections):
        document = {
            "target": {"model": "simple"},
            "load": {"closed": {"concurrency": [1, 2], "think_time": "1ms"}},  # no machine is so busy that the generator is the bottleneck
            "measure": {"warmup": "50ms", "requests": 50, "repetitions": 1},
            **sections,
        }
        path = tmp_path / "scenario.yaml"
        path.write_text(yaml.safe_dump(document, sort_keys=False))
        return path

    return write


@pytest.fixture
def write_quick_scenario(write_scenario, server):
    """Writes a scenario that starts neither a server nor telemetry, for tests of neither: each would be a process for every run."""

    def write(**sections):
        target = {"model": "simple", **sections.pop("target", {})}
        urls = {protocol: getattr(server, protocol) for protocol in target.pop("protocols", ["http"])}
        return write_scenario(**{"telemetry": False, **sections, "target": {**target, "urls": urls}})

    return write


@pytest.fixture(scope="session")
def slow_urls():
    with bundled_server("--model", "synthetic", "--synthetic", "service=constant:200ms,servers=1000") as urls:
        yield {"http": urls.http, "grpc": urls.grpc}


@pytest.fixture
def slow_server(slow_urls):
    """The sections of a scenario whose answers take 200 ms, for which many requests wait at once."""
    return {
        "target": {"model": "synthetic", "urls": slow_urls},
        "workload": {"inputs": {"INPUT0": {"generate": "zeros", "shape": [4]}}},
        "telemetry": False,
    }


@dataclasses.dataclass
class HangingServer:
    """Where it is, and whether a request hangs there by now."""

    url: str
    hangs: threading.Event


@pytest.fixture
def hanging_server():
    """Speaks enough v2 for a run to begin; from its second inference on it never answers."""
    hangs, end = threading.Event(), threading.Event()

    def hang(number):
        if number > 1:
            hangs.set()
            end.wait(WAIT_S)

    with serving(v2_handler(hang)) as port:
        yield HangingServer(f"http://127.0.0.1:{port}", hangs)
        end.set()


@pytest.fixture(autouse=True)
def _state_folder(tmp_path, monkeypatch):
    monkeypatch.setenv("PERFKIT_STATE_DIR", str(tmp_path / "state"))


@pytest.fixture
def triton():
    server = Triton()
    with serving(server.handler) as port:
        server.url = f"http://127.0.0.1:{port}"
        yield server
