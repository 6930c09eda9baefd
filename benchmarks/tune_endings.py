"""Every ending of a tune on a real Triton: the model's configuration afterwards is the one before.

    python -m benchmarks.tune_endings [--only NAME …] [--peers FOLDER] [--out reports/tune-endings.md]

Each row is a `perfkit tune` of a model, or an ensemble, that loads with one and two instances; all together take about three minutes. The configuration is
compared as the server writes it, byte for byte, or with sorted keys where it writes `parameters` in another order. The exit code is 1 if
one is another, or a command ends in another way than expected.
"""

import dataclasses
import json
import os
import pathlib
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
import urllib.request
from collections.abc import Callable, Sequence

import psutil

from benchmarks.peers.install import peers_folder
from benchmarks.peers.triton import ODD_MODELS, Triton, running_triton
from benchmarks.processes import ROOT
from benchmarks.report import Report, describe_machine, program_options
from benchmarks.tune_live import models_folder
from perfkit.machine.listeners import read_listeners

MODEL, ENSEMBLE = "batch_cost", "pipeline"
MODELS = {MODEL: (MODEL,), ENSEMBLE: (ENSEMBLE, "resize", "classify")}
"""The models whose configurations are compared, by the one that is tuned."""
_ENDS_WITHIN_S, _POLL_S, _ATTEMPTS = 60, 0.002, 3
_OPTIONS = ("-c", "1,8", "--indifference", "50%", "--set", "measure.warmup=50ms", "--set", "telemetry=false")
_ANOTHER = "another one"
_EXPLICIT = ("--model-control-mode=explicit", f"--load-model={MODEL}", f"--load-model={ENSEMBLE}")
_COUNTS = ("instance_group.count=1,2",)
_COUNTS_OF_MEMBERS = ("resize.instance_group.count=1,2", "classify.instance_group.count=1,2")


@dataclasses.dataclass(frozen=True, slots=True)
class Ending:
    """How a tune ends."""

    name: str
    codes: tuple[int, ...]
    """The exit codes that are right."""
    act: Callable[["Command"], None] = lambda _: None
    """What happens to the command."""
    model: str = MODEL
    space: tuple[str, ...] = _COUNTS
    options: tuple[str, ...] = ()

    @property
    def is_restored(self) -> bool:
        """Whether the configuration is put back by another command."""
        return "--restore" in self.name


class NotReachedError(Exception):
    """A tune has ended before the stage at which something was to happen to it, as on a machine that is too busy to measure on."""


class Command:
    """The `perfkit tune` of an ending on a running Triton, with its folders in `place`."""

    def __init__(self, ending: Ending, triton: Triton, place: pathlib.Path) -> None:
        self.triton, self.folder, self._state, self.model = triton, place / "tune", place / "state", ending.model
        self.before = read_configs(triton, ending.model)
        spaces = [word for space in ending.space for word in ("--space", space)]
        words = [triton.url(), "-m", ending.model, *spaces, "--time", "30s", *_OPTIONS, *ending.options, "--out", str(self.folder)]
        self.process = self._start("tune", *words)
        self.lines: list[str] = []
        self._watchdog = threading.Timer(_ENDS_WITHIN_S, self.process.kill)
        self._watchdog.start()

    def _start(self, *words: str) -> "subprocess.Popen[str]":
        environment = {**os.environ, "PERFKIT_STATE_DIR": str(self._state)}
        return subprocess.Popen(
            [sys.executable, "-m", "perfkit", *words],
            cwd=ROOT,
            env=environment,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            text=True,
        )

    def await_line(self, text: str) -> None:
        """Reads its output up to a line with this text."""
        assert self.process.stderr is not None
        for line in self.process.stderr:
            self.lines.append(line)
            if text in line:
                return
        raise NotReachedError(f"the tune ended without a line with {text!r}: {''.join(self.lines[-5:])}")

    def send(self, number: signal.Signals) -> None:
        """Sends it a signal."""
        self.process.send_signal(number)

    def end(self) -> int:
        """Its exit code, once it has ended."""
        assert self.process.stderr is not None
        self.lines += self.process.stderr
        self._watchdog.cancel()
        return self.process.wait()

    def restore(self) -> int:
        """Puts the configuration back by a command of its own, whose exit code this is."""
        process = self._start("tune", "--restore", str(self.folder))
        _, errors = process.communicate(timeout=_ENDS_WITHIN_S)
        self.lines.append(errors)
        return process.returncode

    @property
    def windows(self) -> int:
        """How many windows it has measured."""
        file = self.folder / "windows.jsonl"
        return file.read_text().count("\n") if file.exists() else 0

    @property
    def has_mark(self) -> bool:
        """Whether the next perfkit would say that the configuration was not put back."""
        return any(self._state.rglob("changed-models/*.json"))


def _at(line: str, *signals: signal.Signals) -> Callable[[Command], None]:
    def act(command: Command) -> None:
        command.await_line(line)
        for number in signals:
            command.send(number)
            time.sleep(0.05)  # two signals at once are one

    return act


def _before_any_change(command: Command) -> None:
    while not (command.folder / "progress.json").exists() and command.process.poll() is None:
        time.sleep(_POLL_S)
    command.send(signal.SIGINT)


def _during_a_load(command: Command) -> None:
    """Stops Triton while it is to load the first configuration, and lets it go on after the signal."""
    server = _server_process(command.triton)
    command.await_line("round 1")
    server.suspend()
    try:
        time.sleep(0.5)
        command.send(signal.SIGINT)
        command.await_line("the server is put back")
    finally:
        server.resume()


def _killed(command: Command) -> None:
    command.await_line("round 2")
    for is_another in (False, True):  # at the beginning of a visit, whose windows follow
        while (compared(command.before, read_configs(command.triton, command.model)) == _ANOTHER) != is_another:
            if command.process.poll() is not None:
                raise NotReachedError("the tune ended before it was to be killed")
            time.sleep(_POLL_S)
    command.send(signal.SIGKILL)


ENDINGS = (
    Ending("done", (0, 3)),
    Ending("error: a request that Triton refuses", (2, 6), options=("--set", "workload.parameters={triton_own: 1}")),
    Ending("Ctrl-C before the first change", (130,), _before_any_change),
    Ending("Ctrl-C during a load", (130,), _during_a_load),
    Ending("Ctrl-C in the scan", (130,), _at("scan, ", signal.SIGINT)),
    Ending("Ctrl-C in the race", (130,), _at("round 2", signal.SIGINT)),
    Ending("Ctrl-C in the confirmation", (130,), _at("confirmation: ", signal.SIGINT)),
    Ending("Ctrl-C twice within 50 ms", (130,), _at("round 2", signal.SIGINT, signal.SIGINT)),
    Ending("SIGTERM", (143,), _at("round 2", signal.SIGTERM)),
    Ending("SIGHUP", (129,), _at("round 2", signal.SIGHUP)),
    Ending("SIGKILL, then `perfkit tune --restore`", (-9,), _killed),
    Ending("a load that Triton refuses", (0, 3), space=("max_batch_size=8,many",)),
    Ending("ensemble: done", (0, 3), model=ENSEMBLE, space=_COUNTS_OF_MEMBERS),
    Ending("ensemble: Ctrl-C twice within 50 ms", (130,), _at("round 2", signal.SIGINT, signal.SIGINT), ENSEMBLE, _COUNTS_OF_MEMBERS),
    Ending("ensemble: SIGKILL, then `perfkit tune --restore`", (-9,), _killed, ENSEMBLE, _COUNTS_OF_MEMBERS),
)


LOST = Ending("the server is lost, comes back, then `perfkit tune --restore`", (6,))
NOT_EXPLICIT = Ending("Triton does not load on request", (2,))


def read_configs(triton: Triton, model: str) -> list[str]:
    """The configurations of a model, and of an ensemble's members, as the server writes them."""
    found = []
    for one in MODELS[model]:
        with urllib.request.urlopen(f"http://127.0.0.1:{triton.http_port}/v2/models/{one}/config", timeout=10) as answer:
            found.append(answer.read().decode())
    return found


def load_another(triton: Triton) -> None:
    """Loads the model with another number of instances."""
    config = json.loads(read_configs(triton, MODEL)[0])
    config["instance_group"][0]["count"] = 1 + int(config["instance_group"][0]["count"])
    triton.request(f"v2/repository/models/{MODEL}/load", {"parameters": {"config": json.dumps(config)}})


def compared(before: Sequence[str], after: Sequence[str]) -> str:
    """How configurations differ, in words."""
    if before == after:
        return "the same bytes"
    first, second = ([json.loads(text) for text in texts] for texts in (before, after))
    if first != second:
        return _ANOTHER
    without = [json.dumps([{**one, "parameters": None} for one in found]) for found in (first, second)]
    return "the same, `parameters` in another order" if without[0] == without[1] else "the same, keys in another order"


def main() -> int:
    """Ends a tune in each way."""
    options = program_options(__doc__, out="tune-endings", only=([""], "the endings whose names contain this"), peers=peers_folder(None))
    report = Report(options.out, "Every ending of a tune")
    report.add(
        "The configuration of a model of a real Triton before a `perfkit tune` and after it, of an ensemble also those of its members. A row is "
        "met if they are the same, before a `--restore` another one, the exit code is the one expected, and no mark is left that tells the next "
        "perfkit otherwise. "
        f"{describe_machine()}",
        "",
    )
    report.table("ending", ">exit code", ">windows", "configuration afterwards", "met")

    def judge(ending: Ending, command: Command, triton: Triton) -> None:
        left = compared(command.before, read_configs(triton, ending.model))
        restored = command.restore() if ending.is_restored else 0
        found = compared(command.before, read_configs(triton, ending.model))
        code = command.process.returncode
        was_changed = not ending.is_restored or left == _ANOTHER
        is_met = code in ending.codes and was_changed and not restored and found != _ANOTHER and not command.has_mark
        report.judged_row(is_met, ending.name, code, command.windows, f"{left}, then {found}" if ending.is_restored else found)
        if not is_met:
            print("".join(command.lines[-8:]), file=sys.stderr)

    def is_wanted(ending: Ending) -> bool:
        return any(one in ending.name for one in options.only)

    with tempfile.TemporaryDirectory(prefix="perfkit-endings-") as name, models_folder() as models:
        shutil.copytree(ODD_MODELS, models, dirs_exist_ok=True)
        places = (pathlib.Path(name, str(number)) for number in range(_ATTEMPTS * len(ENDINGS) + 2))
        with running_triton(options.peers, models=models, options=_EXPLICIT) as triton:
            for ending in filter(is_wanted, ENDINGS):
                for _ in range(_ATTEMPTS):
                    command = Command(ending, triton, next(places))
                    try:
                        ending.act(command)
                        break
                    except NotReachedError as error:
                        print(error, file=sys.stderr)
                    finally:
                        command.end()
                judge(ending, command, triton)
        if is_wanted(LOST):
            with running_triton(options.peers, models=models, options=_EXPLICIT) as triton:
                command = Command(LOST, triton, next(places))
                command.await_line("round 2")
                _server_process(triton).kill()
                command.end()
            with running_triton(options.peers, triton.http_port, triton.grpc_port, models=models, options=_EXPLICIT) as again:
                load_another(again)  # it comes back with that of the repository
                judge(LOST, command, again)
        if is_wanted(NOT_EXPLICIT):
            with running_triton(options.peers, models=models) as triton:
                command = Command(NOT_EXPLICIT, triton, next(places))
                command.end()
                judge(NOT_EXPLICIT, command, triton)
    return report.write()


def _server_process(triton: Triton) -> psutil.Process:
    """The process that listens at Triton's port."""
    return psutil.Process(next(pid for port, pid in read_listeners() if port == triton.http_port and pid))


if __name__ == "__main__":
    sys.exit(main())
