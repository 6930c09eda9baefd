"""Perfkit as a person runs it: a process, its exit code, what it prints."""

import dataclasses
import itertools
import json
import os
import pathlib
import queue
import signal
import subprocess
import sys
import threading

import psutil
import pytest
import yaml

from tests.json_server import JsonHandler, serving

WAIT_S = 60


@dataclasses.dataclass
class Finished:
    """How a command ended."""

    code: int
    stdout: str
    stderr: str
    folder: pathlib.Path

    @property
    def result(self):
        return json.loads((self.folder / "result.json").read_text())

    def assert_measured(self):
        """A machine that is busy elsewhere may make the generator its bottleneck, which the result then says; all else ends with 0."""
        status = self.result["status"]
        assert status in ("complete", "invalid"), self.stderr
        assert self.code == (5 if status == "invalid" else 0), self.stderr


class Running:
    """A `perfkit run` under way; its stderr can be waited on line by line."""

    def __init__(self, arguments, folder, environ):
        self.folder = folder
        self.lines: queue.SimpleQueue[str | None] = queue.SimpleQueue()
        self.seen = []
        self.process = subprocess.Popen(
            [sys.executable, "-m", "perfkit", *map(str, arguments)],
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

    def signal(self, number: signal.Signals):
        self.process.send_signal(number)

    def descendants(self):
        return psutil.Process(self.process.pid).children(recursive=True)

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


@pytest.fixture
def perfkit(tmp_path):
    """Starts a perfkit command; `perfkit.run(...)` waits for its end, `perfkit.start(...)` does not."""
    started = []

    class Perfkit:
        @staticmethod
        def start(*arguments, environ=()):
            folder = tmp_path / "out"
            extra = ["--out", folder] if arguments[0] == "run" and "--out" not in arguments else []
            running = Running([*arguments, *extra], folder, dict(environ))
            started.append(running)
            return running

        @classmethod
        def run(cls, *arguments, environ=()):
            return cls.start(*arguments, environ=environ).finish()

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
        path.write_text(yaml.safe_dump(document))
        return path

    return write


@dataclasses.dataclass
class HangingServer:
    """Where it is, and whether a request hangs there by now."""

    url: str
    hangs: threading.Event


@pytest.fixture
def hanging_server():
    """Speaks enough v2 for a run to begin; from its second inference on it never answers."""
    hangs, end, inferences = threading.Event(), threading.Event(), itertools.count(1)
    tensor = {"datatype": "FP32", "shape": [1]}

    class Handler(JsonHandler):
        def do_GET(self):
            inputs, outputs = [{"name": "i", **tensor}], [{"name": "o", **tensor}]
            metadata = {"name": "m", "versions": ["1"], "platform": "x", "inputs": inputs, "outputs": outputs}
            self.answer(404 if self.path.endswith("config") else 200, metadata)

        def do_POST(self):
            self.body()
            if next(inferences) > 1:
                hangs.set()
                end.wait(WAIT_S)
            self.answer(200, {"model_name": "m", "model_version": "1", "outputs": [{"name": "o", **tensor, "data": [1.0]}]})

    with serving(Handler) as port:
        yield HangingServer(f"http://127.0.0.1:{port}", hangs)
        end.set()
